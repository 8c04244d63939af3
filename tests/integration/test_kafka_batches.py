"""The same topic, read by kafka-python in whole batches and message by message, and by the other client."""

from __future__ import annotations

import random
from typing import Any

import pytest
from confluent_kafka import Producer

from streameval.events.columns import concat_clicks, concat_impressions
from streameval.sources.formats.line_text import Lines
from streameval.sources.kafka import python_reader, reader
from tests.sources.conformance import Collected

pytestmark = pytest.mark.kafka
PATIENCE = 180.0  # seconds, on a slow machine
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


def write_mixture(lab: Any, codec: str, impressions: Any, clicks: Any) -> int:
    """Messages of every kind in batches of every size; returns how many are read."""
    rng = random.Random(codec)
    options = {"bootstrap.servers": lab.address, "compression.type": codec, "linger.ms": 20, "log_level": 0}
    plain = Producer({**options, "enable.idempotence": True})
    sure = Producer({**options, "transactional.id": lab.impressions})
    sure.init_transactions(PATIENCE)
    odd = [b"", b"\xff{not json", b'{"impression_id": "\xc3\xa4", "ts": 1}', b'{"user_id": "%s"}' % (b"x" * 300_000)]
    count = first = 0
    for size in (1, 300, 7, 8, 2_000, 20, 3, 40):
        events = clicks(first, size) if size in (300, 20) else impressions(first, size)
        topic = lab.impressions if b"user_id" in events[0] else lab.clicks
        mixed: list[bytes | None] = [*events, *rng.sample(odd, rng.randrange(3)), *[None] * (size in (7, 300))]
        rng.shuffle(mixed)
        first += size
        outcome = "commit" if size in (2_000, 20) else rng.choice(("plain", "commit", "abort"))
        producer = plain if outcome == "plain" else sure
        if outcome != "plain":
            sure.begin_transaction()
        for number, value in enumerate(mixed):
            headers = [("trace", b"\0\xff"), ("none", None)][: rng.randrange(3)] + [("\u00e4", b"")] * (size == 40)
            producer.produce(topic, value, b"key" if number % 3 else None, partition=1, headers=headers)
        assert producer.flush(PATIENCE) == 0
        if outcome != "plain":
            (sure.commit_transaction if outcome == "commit" else sure.abort_transaction)(PATIENCE)
        count += len(mixed) * (outcome != "abort")
    return count


def what_came(lab: Any, count: int, drain: Any, client: str) -> Any:
    """Everything that batches and dead letters say, whatever the sizes of the batches."""
    sink = Collected()
    source = lab.source(lab.settings(client=client), sink, max_events=700)
    arrived = drain(source, count)
    ours = [batch for batch in arrived.batches if len(batch) or batch.invalid]
    rows, taps = (
        concat_impressions([one.impressions for one in ours if len(one.impressions)]),
        concat_clicks([one.clicks for one in ours if len(one.clicks)]),
    )
    letters = sorted((one.topic, one.offset, one.partition, one.reason, one.field, one.value) for one in sink.letters)
    lag = source.lag()
    source.close()
    return rows.id.tolist(), rows.user.tolist(), rows.ts.tolist(), taps.id.tolist(), letters, arrived.offsets(), lag


@pytest.mark.parametrize("codec", CODECS)
def test_every_way_of_reading_gives_the_same(
    codec: str,
    laboratory: Any,
    real_kafka: str,
    impressions: Any,
    clicks: Any,
    drain: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lab = laboratory(real_kafka, "kafka-python")
    seen: list[bool] = []
    joined = reader.joined

    def watched(runs: Any) -> Any:
        values, offsets = joined(runs)
        seen.append(isinstance(values, Lines))
        return values, offsets

    monkeypatch.setattr("streameval.sources.kafka.source.joined", watched)
    lab.create(lab.impressions, lab.clicks)
    count = write_mixture(lab, codec, impressions, clicks)
    whole = what_came(lab, count, drain, "kafka-python")
    assert True in seen
    monkeypatch.setattr(python_reader, "keep_whole", lambda consumer: False)
    seen.clear()
    assert what_came(lab, count, drain, "kafka-python") == whole
    assert True not in seen
    assert what_came(lab, count, drain, "confluent")[:-1] == whole[:-1]  # it learns of the end a moment later
