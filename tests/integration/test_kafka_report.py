"""The same events give the identical report from a file and over Kafka, by either client, on either broker."""

from __future__ import annotations

import random
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from streameval import app
from streameval.config import Settings
from streameval.pipeline import Pipeline
from streameval.simulate.encode import events
from streameval.simulate.files import write_file
from streameval.simulate.scenario import nasty_scenario
from streameval.simulate.traffic import Traffic
from streameval.sources.kafka.source import KafkaSource
from streameval.sources.kafka.writer import KafkaWriter

PATIENCE = 120.0


def read_all(settings: Settings, lab: Any, sent: int, max_events: int) -> Pipeline:
    """A pipeline that has read everything there is."""
    pipeline = Pipeline(settings, time.time)
    decoder, letters = app.make_decoder(settings, pipeline), lab.dead_letters(settings.kafka)
    source = KafkaSource(settings.kafka, decoder, letters, max_events)
    try:
        got, deadline = 0, time.monotonic() + PATIENCE
        while got < sent and time.monotonic() < deadline:
            for batch in source.poll(0.5):
                pipeline.take(batch)
                got += len(batch)
    finally:
        source.close()
    assert got == sent
    pipeline.finish()
    return pipeline


def test_a_report_over_kafka_is_the_report_of_the_file(lab: Any, tmp_path: Path) -> None:
    scenario = replace(nasty_scenario(), malformed=0.0, duration_s=120.0, rate=60.0)
    settings = Settings.model_validate(
        {
            "join": {"attribution_window": "60s", "allowed_lateness": "60s", "idle_timeout": "1h"},
            "slices": {"dimensions": ["country"]},
            "files": {"dead_letters": ""},
        }
    ).model_copy(update={"kafka": lab.settings()})
    path = tmp_path / "events.jsonl"
    write_file(Traffic(scenario), path)
    expected = app.replay(settings, [path]).report()
    lab.create(lab.impressions, lab.clicks)
    writer = KafkaWriter(lab.address)
    sent = 0
    for event in events(Traffic(scenario)):
        topic = lab.impressions if event.kind == "impression" else lab.clicks
        writer.write(topic, [event.key], [event.json()])
        sent += 1
    writer.close()
    pipeline = read_all(settings, lab, sent, 700)
    assert len(pipeline.monitors) == 4
    found = pipeline.snapshot().report()
    which = []
    for report in (found, expected):  # placement curves are a partition's own: here four, in the file one
        which.append([(c["id"], c["setup"], c["start"], c["looked"]) for c in report.pop("comparisons")])
        for result in report["results"]:
            del result["auc_stderr"]
    assert which[0] == which[1]
    assert found == expected


def test_a_backlog_of_two_topics_is_counted_as_the_file_to_the_last_bit_with_clicks_later_than_the_horizon(
    lab: Any, tmp_path: Path
) -> None:
    """One partition: verdicts and standard errors of AUC too. Clients read the smaller topic far ahead."""
    scenario = replace(nasty_scenario(), malformed=0.0, duration_s=450.0, rate=15.0)  # as the embedded broker holds
    settings = Settings.model_validate(
        {
            "join": {
                "attribution_window": "60s", "allowed_lateness": "15s", "correction_horizon": "2m",
                "request_gap": "20s", "idle_timeout": "1h",
            },
            "windows": {"pane": "10s", "sliding": ["1m", "5m"]},
            "compare": {"min_duration": "1m", "min_clicks": 20, "min_blocks": 10, "gauc_window": "20s"},
            "slices": {"dimensions": ["country"]},
            "files": {"dead_letters": ""},
        }
    ).model_copy(update={"kafka": lab.settings()})  # fmt: skip
    luck = random.Random(5)
    arriving = []
    for number, event in enumerate(events(Traffic(scenario))):
        late = event.kind == "click" and luck.random() < 0.1
        arriving.append((event.arrives + (luck.choice([30_000, 90_000, 200_000]) if late else 0), number, event))
    arriving.sort(key=lambda one: one[:2])
    path = tmp_path / "events.jsonl"
    path.write_bytes(b"".join(event.json(with_type=True) + b"\n" for _, _, event in arriving))
    expected = app.replay(settings, [path]).report()
    assert expected["events"]["corrected"]
    assert expected["events"]["unmatched_clicks"] > 20
    assert any(c["impressions"] for c in expected["comparisons"])

    lab.create(lab.impressions, lab.clicks)
    writer = KafkaWriter(lab.address)
    for _, _, event in arriving:
        topic = lab.impressions if event.kind == "impression" else lab.clicks
        writer.write(topic, [event.key], [event.json()], partition=0)
    writer.close()
    assert read_all(settings, lab, len(arriving), 2_000).snapshot().report() == expected
