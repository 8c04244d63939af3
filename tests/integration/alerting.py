"""A real Prometheus and a real Alertmanager with our files in deploy/prometheus/, and a webhook that they deliver to.

What differs from the files: addresses and receivers; evaluations every second, and scrapes every five, which may take as
long (a busy machine needs more than a second now and then, and what was not scraped is a target that is down); a minute
of `for` is a second, and Alertmanager does not wait for more before it tells. With a shorter `for` an alert fires sooner and more
often, never less: silence here is silence there.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from deploy.demo.webhook import Webhook
from tests import asking
from tests.ports import free_port

FILES = Path(__file__).parents[2] / "deploy" / "prometheus"
TOOLS = {"promtool": "prometheus", "prometheus": "prometheus", "amtool": "prometheus-alertmanager"} | {
    "prometheus-alertmanager": "prometheus-alertmanager",
    "systemd-analyze": "systemd",
    "wget": "wget",
}
PATIENCE = 240.0  # seconds, on a slow machine


def need(*tools: str) -> None:
    """Skip by name, or fail when nothing may be skipped, where one of these programs is missing."""
    missing = sorted({TOOLS[tool] for tool in tools if shutil.which(tool) is None})
    if missing:
        why = f"install Debian's {' and '.join(missing)}"
        if os.environ.get("STREAMEVAL_REQUIRE_ALL") == "1":
            pytest.fail(why)
        pytest.skip(why)


def hurried(rules: str) -> str:
    """The same rules, with seconds of `for` where they have minutes."""
    return re.sub(r"^( +for: \d+)m$", r"\1s", rules, flags=re.MULTILINE)


class Hook(Webhook):
    """The demo's webhook on a free port: a receiver's name and one of its alerts each, in order of arrival."""

    def __init__(self) -> None:
        super().__init__("127.0.0.1", 0)

    def firing(self, **labels: str) -> list[dict[str, str]]:
        """The labels of all alerts that have arrived as firing and have these labels."""
        return [
            alert["labels"]
            for _, alert in list(self.delivered)
            if alert["status"] == "firing" and alert["labels"].items() >= labels.items()
        ]


@contextmanager
def webhook() -> Iterator[Hook]:
    """A server that keeps what is posted to it."""
    with Hook() as hook:
        thread = threading.Thread(target=hook.serve_forever)
        thread.start()
        try:
            yield hook
        finally:
            hook.shutdown()
            thread.join()


@dataclass
class Service:
    """One of the two programs."""

    url: str
    log: Path

    def get(self, path: str, **parameters: str) -> Any:
        """A JSON answer."""
        answer = asking.get(self.url + path, params=parameters, timeout=PATIENCE)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def value(self, query: str, at: float) -> list[tuple[dict[str, str], float]]:
        """What PromQL says of a time: labels and value (Prometheus only)."""
        found = self.get("/api/v1/query", query=query, time=str(at))["data"]["result"]
        return [(one["metric"], float(one["value"][1])) for one in found]


@contextmanager
def alertmanager(folder: Path, hook: Hook) -> Iterator[Service]:
    """Alertmanager with alertmanager.yml, whose receivers are the webhook."""
    need("prometheus-alertmanager")
    config = yaml.safe_load((FILES / "alertmanager.yml").read_text())
    for receiver in config["receivers"]:
        for one in receiver["webhook_configs"]:
            one["url"] = f"http://127.0.0.1:{hook.server_address[1]}/"
    for route in (config["route"], *config["route"]["routes"]):
        route |= {"group_wait": "0s", "group_interval": "1s"}
    path = folder / "alertmanager.yml"
    path.write_text(yaml.safe_dump(config))
    port = free_port()
    command = [
        "prometheus-alertmanager", f"--config.file={path}", f"--storage.path={folder / 'alertmanager'}",
        f"--web.listen-address=127.0.0.1:{port}", "--cluster.listen-address=", "--log.level=warn",
    ]  # fmt: skip
    with running_service(command, f"http://127.0.0.1:{port}", folder / "alertmanager.log") as service:
        yield service


@contextmanager
def prometheus(folder: Path, targets: Sequence[str], alerts_to: Service) -> Iterator[Service]:
    """Prometheus with prometheus.yml and the rules, scraping these host:ports."""
    need("prometheus")
    config = yaml.safe_load((FILES / "prometheus.yml").read_text())
    config["global"] = {"scrape_interval": "5s", "scrape_timeout": "5s", "evaluation_interval": "1s"}
    config["alerting"]["alertmanagers"] = [{"static_configs": [{"targets": [alerts_to.url.removeprefix("http://")]}]}]
    (scrape,) = config["scrape_configs"]
    scrape["static_configs"] = [{"targets": list(targets)}]
    for rules in FILES.glob("*.rules.yml"):
        (folder / rules.name).write_text(hurried(rules.read_text()))
    path = folder / "prometheus.yml"
    path.write_text(yaml.safe_dump(config))
    port = free_port()
    command = [
        "prometheus", f"--config.file={path}", f"--storage.tsdb.path={folder / 'prometheus'}",
        f"--web.listen-address=127.0.0.1:{port}", "--log.level=warn",
    ]  # fmt: skip
    with running_service(command, f"http://127.0.0.1:{port}", folder / "prometheus.log") as service:
        yield service


@contextmanager
def running_service(command: list[str], url: str, log: Path) -> Iterator[Service]:
    """The program once it is ready; ended at the end."""
    with log.open("wb") as errors:
        process = subprocess.Popen(command, stdout=errors, stderr=errors, cwd=log.parent)
    try:
        deadline = time.monotonic() + PATIENCE
        while not _ready(url):
            if process.poll() is not None or time.monotonic() > deadline:
                pytest.fail(f"{command[0]} is not ready: {log.read_text(errors='replace')}")
            time.sleep(0.1)
        yield Service(url, log)
    finally:
        process.terminate()
        try:
            process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _ready(url: str) -> bool:
    try:
        return asking.get(url + "/-/ready", timeout=PATIENCE).status_code == 200
    except httpx.TransportError:
        return False
