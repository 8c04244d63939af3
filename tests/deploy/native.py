"""docker-compose.yml without Docker: each service's own command as a process of this machine, in the same order.

What differs: addresses are loopback with free ports (the settings of ours by their environment names, the others by
their files), the image is this checkout, folders of containers are in a temporary one, Kafka comes out of its jars,
and Prometheus and Alertmanager are Debian's. Grafana is left out: there is no package of it.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests import asking
from tests.deploy.manifests import COMPOSE, ROOT, demo_settings, here, services
from tests.integration.conftest import launch
from tests.ports import free_port

PROGRAMS = {"prometheus": "prometheus", "alertmanager": "prometheus-alertmanager"}
LEFT_OUT = {"grafana"}
OWN = re.compile(r"LISTENER|^KAFKA_(NODE_ID|PROCESS_ROLES|CONTROLLER_QUORUM_VOTERS|LOG_DIRS|HEAP_OPTS)$")  # of a place
PATIENCE = 300.0  # seconds, on a slow machine


@dataclass
class Stack:
    """What runs: a process and its log of every service, and its address here."""

    folder: Path
    processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    addresses: dict[str, str] = field(default_factory=dict)  # "name:port" in the compose network -> host:port here

    def log(self, name: str) -> str:
        """What a service has said."""
        return (self.folder / f"{name}.log").read_text(errors="replace")

    def url(self, name: str) -> str:
        """Of a service with one port."""
        (address,) = [there for here_, there in self.addresses.items() if here_.startswith(name + ":")]
        return f"http://{address}"

    def get(self, name: str, path: str) -> Any:
        """A JSON answer of a service."""
        answer = asking.get(self.url(name) + path, timeout=PATIENCE)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def translated(self, text: str) -> str:
        """The same text with the addresses of here."""
        for there, address in self.addresses.items():
            text = text.replace(there, address)
        return text

    def path(self, container_path: str, name: str) -> str:
        """A path of a container: a copy of its file with the addresses of here, or a folder of its own."""
        service = services()[name]
        file = here(container_path, service)
        if file is None:
            return str(self.folder / name / container_path.strip("/"))
        copies = self.folder / name / "files"
        if not copies.exists():
            copies.mkdir(parents=True)
            for one in file.parent.iterdir():
                if one.is_file():
                    (copies / one.name).write_text(self.translated(one.read_text()))
        return str(copies / file.name)

    def command(self, name: str) -> list[str]:
        """The service's command line as it is run here."""
        service = services()[name]
        if name in PROGRAMS:
            port = service["ports"][0].rsplit(":", 1)[1]
            words = [PROGRAMS[name]]
            for word in service["command"]:
                flag, _, value = word.partition("=")
                words.append(f"{flag}={self.path(value, name) if value.startswith('/') else value}")
            return [*words, f"--web.listen-address={self.addresses[f'{name}:{port}']}"]
        program = [sys.executable] if service.get("entrypoint") == ["python"] else [sys.executable, "-m", "streameval"]
        words = [self.path(word, name) if word.startswith("/") else word for word in service["command"]]
        if "0.0.0.0" in words:  # the webhook: HOST PORT
            words[-2:] = self.addresses[f"{name}:{words[-1]}"].split(":")
        return program + words

    def environment(self) -> dict[str, str]:
        """The settings of ours that are of a place: names of keys, so that a misspelt one is an error."""
        host, port = self.addresses[f"streameval:{demo_settings().server.port}"].split(":")
        own = {
            "PYTHONPATH": str(ROOT),
            "STREAMEVAL_KAFKA__BOOTSTRAP_SERVERS": self.addresses[demo_settings().kafka.bootstrap_servers],
            "STREAMEVAL_SERVER__HOST": host,
            "STREAMEVAL_SERVER__PORT": port,
            "STREAMEVAL_STORE__PATH": str(self.folder / "state"),
        }
        return {k: v for k, v in os.environ.items() if not k.startswith("STREAMEVAL_")} | own

    def start(self, name: str) -> None:
        """Starts a service, in a folder of its own."""
        place = self.folder / name
        place.mkdir(exist_ok=True)
        with (self.folder / f"{name}.log").open("wb") as log:
            self.processes[name] = subprocess.Popen(
                self.command(name), cwd=place, env=self.environment(), stdout=log, stderr=log, start_new_session=True
            )

    def healthy(self, name: str) -> bool:
        """Whether the service's own health check passes."""
        words = services()[name].get("healthcheck", {}).get("test") or ["CMD", *_image_check()]
        assert words[0] == "CMD"
        (address,) = [there for here_, there in self.addresses.items() if here_.startswith(name + ":")]
        own = [re.sub(r"127\.0\.0\.1:\d+", address, word) for word in words[1:]]
        own[0] = sys.executable if own[0] == "python" else own[0]
        return subprocess.run(own, capture_output=True, check=False).returncode == 0

    def await_(self, name: str, condition: str) -> None:
        """Waits for what `depends_on` asks for."""
        process = self.processes.get(name)
        if process is None:
            return  # Kafka, which its launcher has seen answer
        deadline = time.monotonic() + PATIENCE
        while True:
            ended = process.poll()
            if condition == "service_completed_successfully" and ended == 0:
                return
            if condition == "service_healthy" and ended is None and self.healthy(name):
                return
            if ended is not None or time.monotonic() > deadline:
                pytest.fail(f"{name} ({condition}, exit status {ended}): {self.log(name)[-3000:]}")
            time.sleep(0.2)

    def stop(self, name: str) -> int:
        """Ends a service as `docker stop` does; its exit status.

        With more patience than `stop_grace_period`, which is of a machine that has nothing else to do.
        """
        process = self.processes[name]
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(PATIENCE)
            except subprocess.TimeoutExpired:
                process.kill()
        return process.wait()


@contextmanager
def stack(folder: Path) -> Iterator[Stack]:
    """All services but those that cannot be had here, each once what it depends on is there."""
    known = services()
    running = Stack(folder)
    with ExitStack() as ends:
        for name, service in known.items():
            for port in service.get("ports", []):
                inside = port.rsplit(":", 1)[1]
                running.addresses[f"{name}:{inside}"] = f"127.0.0.1:{free_port()}"
        settings = [
            f"{name.removeprefix('KAFKA_').lower().replace('_', '.')}={value}"
            for name, value in known["kafka"]["environment"].items()
            if name.startswith("KAFKA_") and not OWN.search(name)
        ]
        ends.callback(launch, "stop", str(folder / "kafka"))
        del running.addresses["kafka:9092"]  # for programs of the host
        running.addresses[demo_settings().kafka.bootstrap_servers] = launch("start", str(folder / "kafka"), *settings)
        for name in _order(known):
            if name in LEFT_OUT | {"kafka"}:
                continue
            for other, how in known[name].get("depends_on", {}).items():
                running.await_(other, how["condition"])
            running.start(name)
            ends.callback(running.stop, name)
        for name in running.processes:
            if not known[name].get("healthcheck", {}).get("disable"):
                running.await_(name, "service_healthy")
        yield running


def _order(known: dict[str, dict[str, Any]]) -> list[str]:
    """The services, each behind those that it depends on."""
    done: list[str] = []
    while len(done) < len(known):
        ready = [n for n, s in known.items() if n not in done and set(s.get("depends_on", {})) <= set(done)]
        assert ready, f"{COMPOSE.name}: a circle of depends_on"
        done += ready
    return done


def _image_check() -> list[str]:
    """The HEALTHCHECK of the image."""
    text = (ROOT / "deploy" / "docker" / "Dockerfile").read_text()
    (command,) = re.findall(r"^HEALTHCHECK .*\\\n\s+CMD (\[.*\])$", text, re.MULTILINE)
    return list(json.loads(command))
