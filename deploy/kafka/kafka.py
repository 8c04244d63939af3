#!/usr/bin/env python3
"""One real Apache Kafka broker (KRaft, one JVM, 512 MB) out of Maven Central's jars, for tests and trials.

    kafka.py start DIR [NAME=VALUE ...]
                                  start it with its data in DIR (a new or an earlier one); prints host:port;
                                  the broker's settings may be given when DIR is new
    kafka.py join DIR FIRST [NAME=VALUE ...]
                                  the same for a second broker, of the cluster whose first one has its data in FIRST
    kafka.py stop DIR             stop it; the data stays
    kafka.py run -- COMMAND ...   start it in a temporary folder, run COMMAND with STREAMEVAL_TEST_KAFKA=host:port
                                  in its environment, stop it, and exit with COMMAND's status

Needs Java 17 or newer on the PATH, and Maven the first time (the jars, about 43 MB, are kept in
~/.cache/streameval/kafka-<version>, or in $KAFKA_JARS). More options for the JVM may be in $KAFKA_OPTS, as for
Kafka's own scripts. Listens on 127.0.0.1 only, without TLS. Uses nothing but Python's standard library.
"""

from __future__ import annotations

import base64
import contextlib
import os
import random
import re
import shlex
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterable
from pathlib import Path

HERE = Path(__file__).resolve().parent
START_TIMEOUT = 240.0  # seconds; it takes 3 to 6 on two idle cores, and far more where a dozen others want them
STOP_TIMEOUT = 90.0

# 512 MB is enough once the log cleaner's buffer (128 MiB by default, taken from the heap at start) is small.
JVM = ("-Xms256m", "-Xmx512m", "-XX:+UseSerialGC", "-Djava.awt.headless=true")

# without idle records: a quorum of one wrote two a second for nobody, which was half of what an idle broker takes
PROPERTIES = """\
process.roles=broker,controller
node.id=1
controller.quorum.bootstrap.servers=127.0.0.1:{controller}
listeners=PLAINTEXT://127.0.0.1:{broker},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{broker}
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT
log.dirs={data}
num.partitions=4
offsets.topic.num.partitions=4
offsets.topic.replication.factor=1
transaction.state.log.num.partitions=4
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
group.initial.rebalance.delay.ms=0
log.cleaner.dedupe.buffer.size=16777216
message.max.bytes=20971520
metadata.max.idle.interval.ms=0
num.recovery.threads.per.data.dir=1
"""


class KafkaLaunchError(RuntimeError):
    """Kafka could not be fetched, started or stopped; the message says why."""


# over those above, for a broker that joins another
JOINED = """\
process.roles=broker
node.id=2
controller.quorum.bootstrap.servers={controller}
listeners=PLAINTEXT://127.0.0.1:{broker}
"""


def start(folder: Path, settings: Iterable[str] = (), first: Path | None = None) -> str:
    """Start a broker whose data is in `folder`; returns host:port once it answers.

    A folder that held a broker before is started again with its data, its port and its settings; for a new one
    `settings` ("name=value") go over those above. `first`: the folder of the broker whose cluster it joins.
    """
    folder = folder.resolve()
    if (pid := running(folder)) is not None:
        raise KafkaLaunchError(f"{folder}: a broker runs here already (pid {pid}); stop it first")
    java = shutil.which("java")
    if java is None:
        raise KafkaLaunchError("java: not found on the PATH; install Java 17 or newer")
    options = (*JVM, *shlex.split(os.environ.get("KAFKA_OPTS", "")))
    command = [java, *options, f"-Dlog4j2.configurationFile={HERE / 'log4j2.properties'}", "-cp", f"{jars()}/*"]
    folder.mkdir(parents=True, exist_ok=True)
    properties = folder / "server.properties"
    with (folder / "broker.log").open("ab") as log:
        if not properties.exists():
            broker, controller = free_ports(2)
            own = PROPERTIES.format(broker=broker, controller=controller, data=folder / "data")
            cluster, how = _cluster_id(uuid.uuid4().bytes), ["--standalone"]
            if first is not None:
                at = _known(first / "server.properties", "controller.quorum.bootstrap.servers")
                own += JOINED.format(controller=at, broker=broker)
                cluster, how = _known(first / "data" / "meta.properties", "cluster.id"), []
            properties.write_text(own + "".join(f"{setting}\n" for setting in settings))  # the last of a name counts
            tool = [*command, "kafka.tools.StorageTool", "format", *how, "-t", cluster, "-c", str(properties)]
            if subprocess.run(tool, stdout=log, stderr=log, check=False).returncode:
                properties.unlink()
                raise KafkaLaunchError(f"kafka.tools.StorageTool format failed:\n{_tail(folder)}")
        process = subprocess.Popen(
            [*command, "kafka.Kafka", str(properties)],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,  # Ctrl-C at the terminal is for the command under test, not for the broker
        )
    (folder / "pid").write_text(str(process.pid))
    listeners = properties.read_text().rsplit("advertised.listeners=PLAINTEXT://", 1)[1]  # the last of a name counts
    address = listeners.split()[0].split(",")[0]
    deadline = time.monotonic() + START_TIMEOUT
    while not _answers(address):
        if process.poll() is not None:
            (folder / "pid").unlink()
            raise KafkaLaunchError(f"kafka.Kafka ended with status {process.returncode}:\n{_tail(folder)}")
        if time.monotonic() > deadline:
            stop(folder)
            raise KafkaLaunchError(f"{address} did not answer within {START_TIMEOUT:.0f} s:\n{_tail(folder)}")
        time.sleep(0.1)
    return address


def _known(properties: Path, name: str) -> str:
    """The value of a name in a file of properties; the last one counts."""
    lines = [line.partition("=") for line in properties.read_text().splitlines()]
    return next(value for key, _, value in reversed(lines) if key == name)


def stop(folder: Path) -> None:
    """Stop the broker of `folder` and wait for its end; nothing happens when none runs."""
    folder = folder.resolve()
    pid = running(folder)
    for number, patience in ((signal.SIGTERM, STOP_TIMEOUT), (signal.SIGKILL, 30.0)):
        if pid is None:
            break
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)
        deadline = time.monotonic() + patience
        while running(folder) is not None and time.monotonic() < deadline:
            time.sleep(0.05)
        pid = running(folder)
    if pid is not None:
        raise KafkaLaunchError(f"broker of {folder} (pid {pid}) does not end")
    (folder / "pid").unlink(missing_ok=True)


def run(command: list[str]) -> int:
    """Run a command beside a broker that lives as long as it; returns the command's status."""
    with tempfile.TemporaryDirectory(prefix="streameval-kafka-") as name:
        folder = Path(name)
        for number in (signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, lambda *_: sys.exit(143))  # so that the broker is stopped below
        try:
            address = start(folder)
            print(f"kafka at {address}", file=sys.stderr)
            environment = {**os.environ, "STREAMEVAL_TEST_KAFKA": address}
            return subprocess.run(command, env=environment, check=False).returncode
        finally:
            stop(folder)


def _cluster_id(raw: bytes) -> str:
    """Sixteen bytes as Kafka writes an id; never with a dash in front, which its tools take for an option."""
    return base64.urlsafe_b64encode(raw).decode().rstrip("=").replace("-", "A")


def running(folder: Path) -> int | None:
    """The pid of the broker that runs in `folder`, if one does."""
    try:
        pid = int((folder / "pid").read_text())
    except (FileNotFoundError, ValueError):
        return None
    with contextlib.suppress(ChildProcessError):
        os.waitpid(pid, os.WNOHANG)  # started by this very process: a zombie is not running
    try:
        # the pid may long belong to somebody else: only a process with our folder on its command line is ours
        arguments = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return None
    return pid if os.fsencode(folder / "server.properties") in arguments else None


def jars() -> Path:
    """The folder of Kafka's jars, fetched with Maven the first time."""
    version = re.findall(r"<kafka.version>(.+?)<", (HERE / "pom.xml").read_text())[0]
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "streameval" / f"kafka-{version}"
    folder = Path(os.environ.get("KAFKA_JARS") or cache)
    if any(folder.glob("kafka_2.13-*.jar")):
        return folder
    maven = shutil.which("mvn")
    if maven is None:
        raise KafkaLaunchError(f"mvn: not found on the PATH, and {folder} holds no Kafka yet; install Maven")
    folder.parent.mkdir(parents=True, exist_ok=True)
    partial = Path(tempfile.mkdtemp(prefix=f"{folder.name}.", dir=folder.parent))
    goal = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies"
    arguments = ["-q", "-B", "-f", str(HERE / "pom.xml"), goal, "-DincludeScope=runtime"]
    try:
        fetched = subprocess.run(
            [maven, *arguments, f"-DoutputDirectory={partial}"], capture_output=True, text=True, check=False
        )
        if fetched.returncode:
            raise KafkaLaunchError(
                f"mvn could not fetch Kafka {version}:\n{fetched.stdout[-3000:]}{fetched.stderr[-1000:]}"
            )
        with contextlib.suppress(OSError):  # another process was faster: its jars are as good
            partial.rename(folder)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return folder


def _answers(address: str) -> bool:
    """True once a Metadata request (version 1, no topics) is answered with at least one broker."""
    host, port = address.rsplit(":", 1)
    body = struct.pack(">hhihi", 3, 1, 1, -1, 0)  # api key, version, correlation, no client id, no topics
    try:
        with socket.create_connection((host, int(port)), timeout=10.0) as connection:
            connection.sendall(struct.pack(">i", len(body)) + body)
            answer = b""
            while len(answer) < 12:
                part = connection.recv(4096)
                if not part:
                    return False
                answer += part
    except OSError:
        return False
    brokers: int = struct.unpack_from(">i", answer, 8)[0]  # after the size and the correlation number
    return brokers > 0


def free_ports(count: int) -> list[int]:
    """Ports that nobody uses; held together so that they differ.

    Where the system says which ones it gives to outgoing connections, they are below those: so that none of these (of
    clients, say, that look for a broker which is away) gets one before it is listened on.
    """
    try:
        lowest = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    except (OSError, ValueError, IndexError):
        lowest = 0
    luck, found = random.SystemRandom(), []
    with contextlib.ExitStack() as stack:
        while len(found) < count:
            one = stack.enter_context(socket.socket())
            with contextlib.suppress(OSError):  # somebody has it
                one.bind(("127.0.0.1", luck.randrange(10_000, lowest) if lowest > 20_000 else 0))
                found.append(one.getsockname()[1])
    return found


def _tail(folder: Path) -> str:
    return (folder / "broker.log").read_text(errors="replace")[-3000:]


def main(arguments: list[str]) -> int:
    """Exit status: 0 done, 1 a failure said in one line, 2 wrong usage, or the command's own."""
    try:
        match arguments:
            case ["start", folder, *settings] if all("=" in setting for setting in settings):
                print(start(Path(folder), settings))
            case ["join", folder, first, *settings] if all("=" in setting for setting in settings):
                print(start(Path(folder), settings, Path(first).resolve()))
            case ["stop", folder]:
                stop(Path(folder))
            case ["run", "--", _, *_]:
                return run(arguments[2:])
            case _:
                print(__doc__, file=sys.stderr)
                return 2
    except KafkaLaunchError as failure:
        print(f"kafka.py: {failure}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
