"""A real schema registry for the tests: Apicurio, with Confluent's interface, out of Maven Central.

(Confluent's own and Karapace are in no public package index.) `python -m tests.integration.registry` fetches it, about
109 MB, into ~/.cache/streameval; it runs in one JVM, and keeps schemas in memory.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
import zipfile
from pathlib import Path
from typing import Any

VERSION = "3.0.9"
NAME = f"apicurio-registry-app-{VERSION}"
SOURCE = f"https://repo.maven.apache.org/maven2/io/apicurio/apicurio-registry-app/{VERSION}/{NAME}-all.zip"
SHA256 = "8fc13160eaaafeec930a9a93b7e82da1ee8caef3eae29c9ce4b403d80a1523ea"
PATIENCE = 300.0  # seconds, on a slow machine


def fetched() -> Path:
    """The folder of the program, fetched the first time."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "streameval"
    folder = cache / f"apicurio-{VERSION}"
    if (folder / f"{NAME}-runner.jar").exists():
        return folder
    cache.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache) as name:
        packed, partial = Path(name) / "all.zip", Path(name) / "all"
        with urllib.request.urlopen(SOURCE, timeout=60) as answer, packed.open("wb") as out:
            shutil.copyfileobj(answer, out)
        found = hashlib.sha256(packed.read_bytes()).hexdigest()
        if found != SHA256:
            raise RuntimeError(f"{SOURCE}: has the digest {found}, not {SHA256}")
        with zipfile.ZipFile(packed) as archive:
            archive.extractall(partial)
        partial.rename(folder)
    return folder


class Registry:
    """A running one."""

    def __init__(self, folder: Path) -> None:
        """`folder`: for its log."""
        from tests.ports import free_port  # this file also runs as a script

        self._log = folder / "registry.log"
        self._process: subprocess.Popen[bytes] | None = None
        self._port = free_port()
        self.url = f"http://127.0.0.1:{self._port}/apis/ccompat/v7"

    def start(self) -> None:
        """Return once it answers."""
        arguments = [
            "-Xmx384m",
            "-XX:+UseSerialGC",
            "-XX:TieredStopAtLevel=1",
            "-Dquarkus.http.host=127.0.0.1",
            f"-Dquarkus.http.port={self._port}",
        ]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                ["java", *arguments, "-jar", f"{NAME}-runner.jar"], cwd=fetched(), stdout=log, stderr=log
            )
        deadline = time.monotonic() + PATIENCE
        while True:
            try:
                urllib.request.urlopen(f"{self.url}/subjects", timeout=20.0).close()
                return
            except (urllib.error.URLError, OSError):
                assert self._process.poll() is None, self._log.read_text()[-2000:]
                assert time.monotonic() < deadline, self._log.read_text()[-2000:]
                time.sleep(0.3)

    def stop(self) -> None:
        """It forgets everything."""
        if self._process is not None:
            self._process.terminate()
            try:
                self._process.wait(60)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait(60)
            self._process = None

    def register(self, subject: str, schema: Any, kind: str = "AVRO", references: Any = ()) -> int:
        """The id of a schema."""
        text = schema if isinstance(schema, str) else json.dumps(schema)
        body = {"schema": text, "schemaType": kind, "references": list(references)}
        request = urllib.request.Request(
            f"{self.url}/subjects/{subject}/versions",
            json.dumps(body).encode(),
            {"Content-Type": "application/vnd.schemaregistry.v1+json"},
        )
        with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
            return int(json.load(answer)["id"])


if __name__ == "__main__":
    print(fetched())
