"""The program as its users know it: the command line, its files, and HTTP. Imports nothing of `streameval`."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
import tomllib
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from confluent_kafka import Producer
from numpy._core._multiarray_umath import __cpu_features__

from streameval.process import quick_sort
from tests.house.traffic import Message

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
TOKEN = "golden"
PATIENCE = 900.0  # seconds; the first start on a machine compiles, beside whatever else runs there
TOPICS = ("impressions", "clicks")
# The last bit of a sum or a logarithm is the processor's: the record was made with AVX-512 and OpenBLAS's kernels for it.
AVX512 = bool(__cpu_features__.get("AVX512_SKX"))
ARITHMETIC = {"OPENBLAS_CORETYPE": "SkylakeX", quick_sort.DISABLED: ""} if AVX512 else {}


def replay(folder: Path, messages: Sequence[Message], name: str, more: str = "", **environment: str) -> dict[str, Any]:
    """`streameval replay` of one file, in order of arrival: its report and its dead letters."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_bytes(file_of(messages))
    config, report, letters = folder / "settings.toml", folder / "report.json", folder / "letters.jsonl"
    config.write_text(settings(more + f'[files]\ndead_letters = "{letters}"\n'), encoding="utf-8")
    command = [sys.executable, "-m", "streameval", "--log-format", "json", "replay", name, "-c", str(config)]
    done = subprocess.run(
        [*command, "--report", str(report), "--predictions", "predictions.parquet"], cwd=folder, env=_environment(environment),
        capture_output=True, text=True, timeout=PATIENCE, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return {
        "report": json.loads(report.read_text(encoding="utf-8")),
        "letters": [json.loads(line) for line in letters.read_text(encoding="utf-8").splitlines()],
    }


def file_of(messages: Sequence[Message]) -> bytes:
    """JSON lines that say what they are; a message that is no JSON object, or holds a line's end, cannot."""
    lines = []
    for m in messages:
        if m.value.startswith(b"{") and m.value.endswith(b"}"):
            lines.append(b'{"type":"%s",' % (b"click" if m.click else b"impression") + m.value[1:])
        else:
            lines.append(m.value)
    return b"\n".join(lines) + b"\n"


def settings(more: str = "") -> str:
    """`settings.toml`, and other sections in the place of those of the same name."""
    sections = re.split(r"^(?=\[)", (HERE / "settings.toml").read_text(encoding="utf-8"), flags=re.MULTILINE)
    return more + "".join(s for s in sections if s.split("]")[0].strip("[") not in tomllib.loads(more))


@contextmanager
def broker() -> Iterator[str]:
    """librdkafka's own mock cluster, in this process; 4 partitions a topic, which come into being when written to."""
    cluster = Producer({"test.mock.num.brokers": 1, "bootstrap.servers": "unused:1", "log_level": 4})
    brokers = cluster.list_topics(timeout=10).brokers.values()
    yield ",".join(f"{one.host}:{one.port}" for one in brokers)
    del cluster


def produce(address: str, messages: Sequence[Message], topics: tuple[str, str] = TOPICS) -> None:
    """Every message where it belongs, in order."""
    writer = Producer({"bootstrap.servers": address, "enable.idempotence": True, "linger.ms": 20})
    for m in messages:
        writer.produce(topics[m.click], m.value, m.key, m.partition)
        writer.poll(0)
    assert writer.flush(60) == 0


class Monitor:
    """`streameval run` in a process of its own."""

    def __init__(self, folder: Path, address: str, more: str = "", **environment: str) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        config = folder / "settings.toml"
        config.write_text(settings(more), encoding="utf-8")
        self._report = folder / "report.json"
        self._log = (folder / "log.jsonl").open("w+b")
        own = {"STREAMEVAL_KAFKA__BOOTSTRAP_SERVERS": address, "STREAMEVAL_STORE__PATH": str(folder / "store")}
        command = [sys.executable, "-m", "streameval", "--log-format", "json", "run", "-c", str(config)]
        self._process = subprocess.Popen(
            [*command, "--report", str(self._report)], cwd=folder, env=_environment({**own, "STREAMEVAL_TOKEN": TOKEN, **environment}),
            stdout=subprocess.DEVNULL, stderr=self._log,
        )  # fmt: skip
        try:
            self.url = self._wait_for_the_page()
        except BaseException:
            self.kill()
            raise

    def get(self, path: str, **headers: str) -> tuple[int, str, bytes]:
        """(status, content type, body)."""
        request = urllib.request.Request(self.url + path, headers={"Authorization": f"Bearer {TOKEN}", **headers})
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return answer.status, answer.headers.get_content_type(), answer.read()
        except urllib.error.HTTPError as error:
            return error.code, error.headers.get_content_type(), error.read()

    def post(self, path: str, body: dict[str, Any]) -> tuple[int, str, bytes]:
        """The same of a body."""
        headers = {"Authorization": f"Bearer {TOKEN}", "Content-Type": "application/json"}
        request = urllib.request.Request(self.url + path, json.dumps(body).encode(), headers, method="POST")
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.status, answer.headers.get_content_type(), answer.read()

    def first_of_stream(self) -> dict[str, Any]:
        """The snapshot that a page gets when it is opened."""
        request = urllib.request.Request(self.url + "/api/v1/stream", headers={"Authorization": f"Bearer {TOKEN}"})
        with urllib.request.urlopen(request, timeout=60) as answer:
            for line in answer:
                if line.startswith(b"data:"):
                    return dict(json.loads(line[5:]))
        raise AssertionError("the stream ended without a snapshot")

    def wait_until(self, holds: Any, what: str) -> None:
        """Until `holds()`."""
        deadline = time.monotonic() + PATIENCE
        while not holds():
            assert self._process.poll() is None, self.log()
            assert time.monotonic() < deadline, f"{what}: not within {PATIENCE:.0f} s\n{self.log()}"
            time.sleep(0.1)

    def stop(self) -> dict[str, Any]:
        """As systemd stops it; its report."""
        self._process.send_signal(signal.SIGTERM)
        assert self._process.wait(60) == 0, self.log()
        self._log.close()
        return dict(json.loads(self._report.read_text(encoding="utf-8")))

    def kill(self) -> None:
        """Whatever state it is in."""
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()
        self._log.close()

    def log(self) -> str:
        """What it has said."""
        return (self._folder / "log.jsonl").read_text(encoding="utf-8")

    def _wait_for_the_page(self) -> str:
        found = None
        deadline = time.monotonic() + PATIENCE
        while found is None and time.monotonic() < deadline and self._process.poll() is None:
            time.sleep(0.05)
            found = re.search(r"http://127\.0\.0\.1:\d+", self.log())
        assert found, f"the monitor said no address\n{self.log()}"
        return found[0]


def _environment(more: dict[str, str]) -> dict[str, str]:
    clean = {k: v for k, v in os.environ.items() if not k.startswith("STREAMEVAL_")}
    return {**clean, **ARITHMETIC, "PYTHONPATH": str(ROOT), "TZ": "UTC", **more}
