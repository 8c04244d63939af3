"""The page outlives the monitor: it says that the connection is lost, and goes on when there is one again."""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from streameval.commands.demo import simulate
from streameval.settings.tree import Settings
from streameval.sources.kafka.embedded import EmbeddedBroker
from tests.browser.watching import PATIENCE, ask, until
from tests.ports import free_port

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

CONFIG = """
[kafka]
bootstrap_servers = "{servers}"
start = "earliest"
group_id = "page"
[kafka.client_options]
"session.timeout.ms" = 6000
[join]
attribution_window = "5s"
allowed_lateness = "1s"
[windows]
pane = "5s"
sliding = ["30s"]
[store]
path = "{store}"
checkpoint_interval = "1s"
[server]
port = {port}
"""


def test_the_page_survives_a_monitor_that_is_killed_and_started_again(watch, tmp_path: Path) -> None:
    port = free_port()
    address = f"http://127.0.0.1:{port}"
    stop = threading.Event()
    with EmbeddedBroker() as broker:
        options = broker.client_options("confluent")
        text = CONFIG.format(servers=broker.bootstrap_servers, store=tmp_path / "store", port=port)
        text = text.replace(
            "[join]",
            "\n".join(f'"{k}" = {str(v).lower() if isinstance(v, bool) else repr(v)}' for k, v in options.items())
            + "\n[join]",
        )
        config = tmp_path / "page.toml"
        config.write_text(text)
        settings = Settings.model_validate(
            {"kafka": {"bootstrap_servers": broker.bootstrap_servers, "client_options": options}}
        )
        traffic = threading.Thread(
            target=simulate, args=("kafka", "demo", 600.0, 200.0, 1.0, 1, settings, stop), daemon=True
        )
        traffic.start()
        command = [sys.executable, "-m", "streameval", "run", "--config", str(config)]
        monitor = subprocess.Popen(command)
        try:
            watched = watch(address)
            until(lambda: answers(port))
            page = watched.open("overview?window=all")
            page.wait_for_selector("tr[data-series]")
            page.evaluate("window.sameDocument = true")
            until(lambda: checkpoint(address) > 0)
            before = impressions(page)
            monitor.kill()
            monitor.wait()
            page.wait_for_selector("#connection[data-state=lost]")
            assert impressions(page) >= before  # what was known stays on the screen
            watched.errors.clear()  # refused connections are what this test is about
            monitor = subprocess.Popen(command)
            page.wait_for_selector("#connection[data-state=live]")
            watched.errors.clear()
            until(lambda: impressions(page) > before)
            assert page.evaluate("window.sameDocument")
        finally:
            stop.set()
            monitor.terminate()
            monitor.wait(PATIENCE)
            traffic.join(PATIENCE)


def checkpoint(address: str) -> int:
    """The checkpoints so far, once every partition has one."""
    state = ask(address, "status")["checkpoints"]
    return 0 if state["never_written"] else int(state["written"])


def answers(port: int) -> bool:
    with socket.socket() as one:
        return one.connect_ex(("127.0.0.1", port)) == 0


def impressions(page) -> int:
    cell = page.locator("tr[data-series] td[data-label=Impressions] .value").first
    return int(cell.inner_text().replace(",", ""))
