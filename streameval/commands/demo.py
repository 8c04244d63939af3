"""`demo`: broker, traffic, monitor and page in one process; and `simulate`: the traffic alone."""

from __future__ import annotations

import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from streameval import app
from streameval.process.opening import Opening
from streameval.results.snapshot import Snapshot
from streameval.settings.tree import ConfigError, Settings
from streameval.simulate.files import write_file
from streameval.simulate.runner import run as run_traffic
from streameval.simulate.scenario import Scenario, bench_scenario, demo_scenario, nasty_scenario
from streameval.simulate.traffic import Traffic

if TYPE_CHECKING:
    from streameval.sources.kafka.writer import KafkaWriter

LONGEST = 86_400.0  # seconds of traffic that the demo plans for; it ends before, with Ctrl-C


def demo_settings(
    bootstrap_servers: str, client: str, client_options: dict[str, object], port: int, folder: str
) -> Settings:
    """The demo's settings: everything quick, so that there is something to see within a minute.

    `folder`: for checkpoints and history.
    """
    return Settings.model_validate(
        {
            "join": {
                "attribution_window": "20s",
                "allowed_lateness": "2s",
                "correction_horizon": "10m",
                "request_gap": "5s",
                "idle_timeout": "5s",
            },
            "windows": {"pane": "5s", "sliding": ["30s", "5m"]},
            "slices": {"dimensions": ["country"], "max_values": 20},
            "compare": {"min_duration": "20s", "learning_window": "1m"},
            "models": [{"name": "ftrl", "kind": "ftrl", "bits": 18, "alpha": 0.3, "l2": 0.1}],
            "kafka": {
                "bootstrap_servers": bootstrap_servers,
                "client": client,
                "client_options": client_options,
                "start": "earliest",
                "group_id": "streameval-demo",
            },
            "store": {"path": folder, "checkpoint_interval": "15s"},
            "server": {"port": port},
        }
    )


def run(
    port: int,
    seconds: float | None,
    client: str,
    stop: threading.Event,
    say: Callable[[str], None],
    opening: Opening | None = None,
) -> Snapshot:
    """Runs the demo until `stop` is set or `seconds` have passed; returns the last snapshot. `opening`: see `app.run`."""
    from streameval.sources.kafka.embedded import EmbeddedBroker
    from streameval.sources.kafka.writer import KafkaWriter

    say("streameval demo: starting an embedded Kafka broker, simulated traffic, the monitor and its page ...")
    with EmbeddedBroker() as broker, tempfile.TemporaryDirectory(prefix="streameval-demo-") as folder:
        settings = demo_settings(broker.bootstrap_servers, client, broker.client_options(client), port, folder)
        broker.create_topics([settings.kafka.impressions_topic, settings.kafka.clicks_topic])
        writer = KafkaWriter(broker.bootstrap_servers)
        timer = threading.Timer(seconds, stop.set) if seconds else None

        def produce() -> None:
            traffic = Traffic(demo_scenario(start_ms=int(time.time() * 1000), duration_s=LONGEST))
            run_traffic(traffic, _sender(writer, settings), speed=1.0, stop=stop)

        producer = threading.Thread(target=produce, daemon=True)

        def reading() -> None:
            """Starts the traffic once the monitor is reading: a first start, which compiles, would miss the deploy."""
            producer.start()
            if timer is not None:
                timer.start()

        def ready(url: str) -> None:
            say(
                f"\n  page     {url}/\n  metrics  {url}/metrics\n  API      {url}/api/v1/results, described at {url}/docs"
            )
            say("")
            say("  Version v1 serves; after 30 s a bad deploy, v2, takes over, while v1 keeps scoring in shadow.")
            say("  Labels mature 20 s after an impression; about 20 s later there is a verdict on v2.")
            say("  Press Ctrl-C to stop.\n")

        try:
            return app.run(settings, stop, ready, on_reading=reading, opening=opening)
        finally:
            stop.set()
            if timer is not None:
                timer.cancel()
            if producer.is_alive():
                producer.join(timeout=10)
            writer.close()


def simulate(
    target: str,
    scenario: str,
    seconds: float,
    rate: float | None,
    speed: float | None,
    seed: int,
    settings: Settings,
    stop: threading.Event,
    advance: Callable[[float | None, str], None] | None = None,
) -> tuple[int, int]:
    """Writes traffic to a file, or to the configured Kafka topics; returns (impressions, clicks) sent.

    `advance` gets the share that is done, in event time, and words. A file ends early when `stop` is set.

    In Kafka events begin now; in a file at a fixed moment, so that the same seed writes the same bytes. Raises ConfigError for topics
    whose reader expects something else than our fields as JSON.
    """
    start = int(time.time() * 1000) if target == "kafka" else Scenario().start_ms
    made = {
        "demo": lambda: demo_scenario(start_ms=start, duration_s=seconds),
        "bench": lambda: bench_scenario(int(seconds * (rate or 1000.0))),
        "nasty": nasty_scenario,
    }[scenario]()
    made = replace(made, seed=seed, start_ms=start, duration_s=seconds, rate=rate or made.rate)
    traffic = Traffic(made)
    counts = {"impression": 0, "click": 0}
    if target != "kafka":
        return write_file(traffic, Path(target), stop, None if advance is None else partial(_told, advance))
    from streameval.sources.kafka.writer import KafkaWriter

    kafka = settings.kafka
    if kafka.format != "json" or kafka.columns or kafka.click_columns:
        what = f'kafka.format = "{kafka.format}"' if kafka.format != "json" else "kafka.columns"
        raise ConfigError(
            f"{what}: simulate writes the standard fields as JSON, which a reader of these topics would reject; use a config without it, with other topics"
        )
    writer = KafkaWriter(kafka.bootstrap_servers, kafka.client_options, client=kafka.client, oauth=kafka.oauth)
    send = _sender(writer, settings)

    def counted(kind: str, keys: list[bytes], values: list[bytes]) -> None:
        counts[kind] += len(values)
        send(kind, keys, values)
        if advance is not None:
            advance(None, f"{counts['impression']:,} impressions, {counts['click']:,} clicks")

    try:
        writer.connect()
        run_traffic(traffic, counted, speed=speed, stop=stop)
        writer.flush()
    finally:
        writer.close()
    return counts["impression"], counts["click"]


def _told(advance: Callable[[float | None, str], None], share: float, events: int) -> None:
    advance(share, f"{events:,} events")


def _sender(writer: KafkaWriter, settings: Settings) -> Callable[[str, list[bytes], list[bytes]], None]:
    topics = {"impression": settings.kafka.impressions_topic, "click": settings.kafka.clicks_topic}

    def send(kind: str, keys: list[bytes], values: list[bytes]) -> None:
        writer.write(topics[kind], keys, values)

    return send
