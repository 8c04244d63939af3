"""The same events give the identical report from a file and over Kafka, by either client, on either broker."""

from __future__ import annotations

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
    pipeline = Pipeline(settings, time.time)
    source = KafkaSource(settings.kafka, app.make_decoder(settings, pipeline), lab.dead_letters(settings.kafka), 700)
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
    assert len(pipeline.monitors) == 4
    found = pipeline.snapshot().report()
    which = []
    for report in (found, expected):  # placement curves are a partition's own: here four, in the file one
        which.append([(c["id"], c["setup"], c["start"], c["looked"]) for c in report.pop("comparisons")])
        for result in report["results"]:
            del result["auc_stderr"]
    assert which[0] == which[1]
    assert found == expected
