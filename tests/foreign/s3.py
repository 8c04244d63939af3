"""A real server of the S3 protocol for the tests: S3Proxy before a folder, out of Maven Central.

`python -m tests.foreign.s3` fetches its jars, about 30 MB, into ~/.cache/streameval. It checks signatures, and takes uploads
in parts.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path
from types import TracebackType

HERE = Path(__file__).parent
PATIENCE = 240.0  # seconds, on a slow machine
KEY, SECRET = "writer", "hush-of-tests"
BUCKET = "bucket"
PROPERTIES = """\
s3proxy.endpoint=http://127.0.0.1:{port}
s3proxy.authorization=aws-v2-or-v4
s3proxy.identity={key}
s3proxy.credential={secret}
jclouds.provider=filesystem-nio2
jclouds.filesystem.basedir={data}
"""


def jars() -> Path:
    """The folder of its jars, fetched with Maven the first time."""
    version = re.findall(r"<version>(\d.+\..+?)<", (HERE / "s3proxy.xml").read_text())[0]
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "streameval"
    folder = cache / f"s3proxy-{version}"
    if folder.exists():
        return folder
    cache.mkdir(parents=True, exist_ok=True)
    goal = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies"
    with tempfile.TemporaryDirectory(prefix=f"{folder.name}.", dir=cache) as name:
        partial = Path(name) / "jars"
        command = ["mvn", "-q", "-B", "-f", HERE / "s3proxy.xml", goal, "-DincludeScope=runtime"]
        subprocess.run([*command, f"-DoutputDirectory={partial}"], check=True)
        with contextlib.suppress(OSError):  # another process was faster: its jars are as good
            partial.rename(folder)
    return folder


def missing() -> str:
    """What it needs and this machine lacks."""
    return " and ".join(tool for tool in ("java", "mvn") if shutil.which(tool) is None)


class S3:
    """A running one with one bucket, until the end of the block; it may be killed and started in between."""

    def __init__(self, folder: Path) -> None:
        """`folder`: for its data."""
        from tests.ports import free_port  # this file also runs as a script

        self.data = folder / "s3"
        (self.data / BUCKET).mkdir(parents=True)
        self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None
        port = free_port()
        self.place = f"127.0.0.1:{port}"
        own = PROPERTIES.format(port=port, key=KEY, secret=SECRET, data=self.data)
        (folder / "s3.properties").write_text(own)

    def address(self, path: str, bucket: str = BUCKET) -> str:
        """Of an object, with the way to it."""
        return f"s3://{bucket}/{path}?endpoint_override={self.place}&scheme=http"

    @property
    def environment(self) -> dict[str, str]:
        """Credentials as the tools of AWS read them; and nobody asks the machine for its role."""
        return {"AWS_ACCESS_KEY_ID": KEY, "AWS_SECRET_ACCESS_KEY": SECRET, "AWS_EC2_METADATA_DISABLED": "true"}

    def __enter__(self) -> S3:
        self.start()
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self.crash()

    def start(self) -> None:
        """Returns once it answers."""
        java = ["java", "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
        command = [*java, f"-Dlogback.configurationFile={HERE / 'logback.xml'}", "-cp", f"{jars()}/*"]
        with (self._folder / "s3.log").open("ab") as log:
            self._process = subprocess.Popen(
                [*command, "org.gaul.s3proxy.Main", "--properties", self._folder / "s3.properties"],
                stdout=log,
                stderr=log,
            )
        deadline = time.monotonic() + PATIENCE
        while not self._answers():
            said = (self._folder / "s3.log").read_text()[-2000:]
            assert self._process.poll() is None, said
            assert time.monotonic() < deadline, said
            time.sleep(0.1)

    def crash(self) -> None:
        """Kills it: what it was sent and has not confirmed is lost."""
        if self._process is not None:
            self._process.send_signal(signal.SIGKILL)
            self._process.wait(PATIENCE)
            self._process = None

    @property
    def down(self) -> bool:
        """Whether it was killed."""
        return self._process is None

    def _answers(self) -> bool:
        try:
            urllib.request.urlopen(f"http://{self.place}/", timeout=60.0).close()
        except urllib.error.HTTPError:  # it wants a signature
            return True
        except OSError:
            return False
        return True


if __name__ == "__main__":
    print(jars())
