"""Findings, mixes and early readings end to end: simulated traffic through a pipeline."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator
from dataclasses import fields, replace
from typing import Any, NamedTuple

import numpy as np
import pytest

from streameval.compare.explain import explanations as explaining
from streameval.events.batch import Batch
from streameval.loop.pipeline import Pipeline
from streameval.results.snapshot import Snapshot
from streameval.settings.tree import Settings
from streameval.simulate.encode import Message, events
from streameval.simulate.scenario import Scenario, Version
from streameval.simulate.traffic import Traffic
from streameval.sources.formats.decode import Decoder
from streameval.testing import ManualClock, readers_see

pytestmark = pytest.mark.slow

BROKEN = "jp"


def scenario(**more: object) -> Scenario:
    settings = {
        "rate": 20.0, "duration_s": 2_400.0, "users": 2_000, "ctr": 0.15, "click_delay_s": 30.0, "window_s": 600.0,
        "versions": (Version("v1"), Version("v2", share=0.0)), "shadow": True, **more,
    }  # fmt: skip
    return Scenario(**settings)


def make_pipeline(**sections: object) -> Pipeline:
    tree = {
        "slices": {"dimensions": ["country", "position"]},
        "compare": {"alpha": 0.05, "min_duration": "5m"},
        "join": {"attribution_window": "10m", "allowed_lateness": "1m", "request_gap": "1m"},
        **sections,
    }
    return Pipeline(Settings.model_validate(tree), ManualClock())


@functools.cache
def traffic(s: Scenario) -> tuple[Message, ...]:
    return tuple(events(Traffic(s)))


class Wire(NamedTuple):
    """An event as it is sent."""

    arrives: float
    kind: str
    key: bytes
    value: bytes

    def json(self, with_type: bool) -> bytes:
        """As a Message has it, with its type."""
        assert with_type
        return self.value


def kept(stream: Callable[..., Iterable[Message]]) -> Callable[..., tuple[Wire, ...]]:
    """A stream that several tests send: encoded once, which takes as long as half of what a pipeline does with it."""

    @functools.lru_cache(maxsize=2)  # of 20 MB each
    def made(*given: Any, **more: Any) -> tuple[Wire, ...]:
        return tuple(Wire(e.arrives, e.kind, e.key, e.json(with_type=True)) for e in stream(*given, **more))

    return made


@kept
def broken(s: Scenario) -> Iterator[Message]:
    """The shadow version has gone wrong in one country; elsewhere it is the one that serves."""
    for event in traffic(s):
        if event.kind == "impression":
            fields = {**event.fields}
            p = fields["pclick"]
            fields["predictions"] = {"v2": min(3 * p, 0.95) if fields["slices"]["country"] == BROKEN else p}
            yield Message(event.arrives, event.kind, event.key, fields)
        else:
            yield event


def batches(pipeline: Pipeline, some: Iterable[Message | Wire], size: int = 3_000) -> Iterator[Batch]:
    decoder = Decoder(pipeline.catalog, clock=lambda: 1 << 60, max_future=0)
    every = [event.json(with_type=True) for event in some]
    for start in range(0, len(every), size):
        values = every[start : start + size]
        n = len(values)
        yield decoder.messages(
            values, [0] * n, topic=("t",), partition=0, offsets=range(n), format="json", shared=True
        )[0]


def counted(some: Iterable[Message | Wire], **sections: object) -> Pipeline:
    """A pipeline that has taken all of these events."""
    pipeline = make_pipeline(**sections)
    for batch in batches(pipeline, some):
        pipeline.take(batch)
    pipeline.finish()
    return pipeline


def comparison(snapshot: Snapshot, setup: str):
    return next(c for c in snapshot.comparisons if c.setup == setup)


def test_a_country_that_breaks_is_named_and_only_it() -> None:
    pipeline = make_pipeline()
    for batch in batches(pipeline, broken(scenario(users=8_000))):
        pipeline.take(batch)
    pipeline.finish()
    snapshot = readers_see(pipeline)
    c = comparison(snapshot, "paired")
    first = c.findings[0]
    assert (first.dimension, first.value, first.significant) == ("country", BROKEN, True)
    assert first.share == pytest.approx(1.0)
    others = [f for f in c.findings if f.dimension == "country" and f.value != BROKEN]
    assert len(others) == 4
    assert not any(f.significant or f.difference for f in others)
    totals = {
        r.slice[1]: r.totals for r in snapshot.results if r.slice and r.slice[0] == "country" and r.window == "all"
    }
    assert 0.97 < first.impressions / totals[BROKEN].impressions <= 1  # the first pane has no curves
    positions = [f for f in c.findings if f.dimension == "position"]
    assert {f.value for f in positions} == {"0", "1", "2", "3-4"}
    assert sum(f.share for f in positions) == pytest.approx(1.0)
    users = [f for f in c.findings if f.dimension == "user"]
    assert users
    assert users[0].difference > 0
    assert not any(f.significant for f in users)
    said = snapshot.report()["comparisons"][0]
    assert said["findings"][0]["value"] == BROKEN
    # a report does not depend on when somebody looked
    assert not any(f["dimension"] == "user" for f in said["findings"])
    assert "early" not in said
    assert c.calibration_buckets == ()  # the shadow serves nobody: selection alone makes it look under-predicting
    assert {e.name for e in c.early} == {"promised_auc", "promised_ctr", "corrected_calibration", "score_shift"}


def test_a_pair_has_the_auc_and_gauc_of_either_side() -> None:
    s = scenario(versions=(Version("v1"), Version("v2", noise=1.0, share=0.0)))
    pipeline = make_pipeline(compare={"alpha": 0.05, "min_duration": "5m", "gauc_window": "10m"})
    for batch in batches(pipeline, traffic(s)):
        pipeline.take(batch)
    pipeline.finish()
    snapshot = readers_see(pipeline)
    c = comparison(snapshot, "paired")
    of = {(r.series.version, r.window, r.slice): r for r in snapshot.results}
    for m in c.metrics:
        if m.metric == "calibration":  # the shadow's is not compared
            continue
        assert m.candidate is not None
        if m.metric != "log_loss":  # its difference is a ratio
            assert m.candidate - m.baseline == pytest.approx(m.difference, abs=1e-6)
        if m.metric in ("log_loss", "auc"):
            for version, value in (("v1", m.baseline), ("v2", m.candidate)):
                known = of[version, "all", None].metrics[m.metric]
                assert value == pytest.approx(known, abs=0.004)  # without the first pane


def test_early_readings_come_before_the_labels(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(explaining, "EARLY_SECONDS", 0.0)
    monkeypatch.setattr(explaining, "EARLY_SHARE", 0)
    s = scenario(versions=(Version("v1"), Version("v2", bias=0.5, start_s=1_200.0, share=0.5)), duration_s=1_750.0)
    pipeline = make_pipeline()
    early = {}
    end = s.start_ms + 1_700_000
    some = tuple(e for e in traffic(s) if e.arrives < end)
    for batch in batches(pipeline, some):
        pipeline.take(batch)
        for c in readers_see(pipeline).comparisons:
            early[c.id.split("-")[1]] = c.impressions, {e.name: e for e in c.early}
    impressions, readings = early["paired"]
    assert impressions == 0, "no label of the deploy is mature yet"
    shift = readings["score_shift"]
    assert (shift.baseline, shift.candidate) == (0.0, pytest.approx(0.5, abs=0.05))
    assert readings["promised_ctr"].candidate > readings["promised_ctr"].baseline
    block = [b for b in Traffic(s).blocks() if 1_200 <= (b.ts[0] - s.start_ms) / 1000 < 1_700]
    served = [np.concatenate([b.version for b in block]) == v for v in (0, 1)]
    pclick, clicked = np.concatenate([b.pclick for b in block]), np.concatenate([b.clicked for b in block])
    for version, found in (
        (0, readings["corrected_calibration"].baseline),
        (1, readings["corrected_calibration"].candidate),
    ):
        final = pclick[served[version], version].sum() / clicked[served[version]].sum()
        assert found == pytest.approx(final, rel=0.12)
    assert early["split"][1]["score_shift"].reason == "not_the_same_impressions"


def test_a_snapshot_without_news_reads_nothing_again(monkeypatch: pytest.MonkeyPatch) -> None:
    pipeline = make_pipeline()
    for batch in batches(pipeline, broken(scenario(duration_s=1_800.0))):
        pipeline.take(batch)
    pipeline.finish()
    before = readers_see(pipeline)

    def never(*_: object) -> None:
        raise AssertionError("read again")

    readers = "paired_findings", "paired_mixes", "split_findings", "split_mixes", "user_findings", "calibration_buckets"
    for name in readers:
        monkeypatch.setattr(explaining, name, never)
    after = readers_see(pipeline)
    assert [c.findings for c in after.comparisons] == [c.findings for c in before.comparisons]
    assert before.comparisons[0].findings


def test_a_split_separates_mix_and_within() -> None:
    s = scenario(versions=(Version("v1"), Version("v2", noise=1.5, start_s=60.0, share=0.5)), shadow=False, users=5_000)
    pipeline = counted(traffic(s))
    c = comparison(readers_see(pipeline), "split")
    assert {(m.dimension, m.metric) for m in c.mixes} >= {
        (d, m) for d in ("country", "position") for m in ("ctr", "log_loss", "calibration")
    }
    for m in c.mixes:
        assert m.total == pytest.approx(m.mix + m.within)
    assert {f.dimension for f in c.findings} == {"country", "position", "pclick"}
    for dimension in ("country", "position"):
        assert sum(f.share for f in c.findings if f.dimension == dimension) == pytest.approx(1.0)
        assert sum(f.impressions for f in c.findings if f.dimension == dimension) == c.impressions


def test_calibration_by_bucket_is_of_what_each_version_served() -> None:
    s = scenario(versions=(Version("v1"), Version("v2", bias=0.6, start_s=60.0, share=0.5)), shadow=False, users=20_000)
    pipeline = counted(traffic(s))
    snapshot = readers_see(pipeline)
    c = comparison(snapshot, "split")
    found = {b.bucket: b for b in c.calibration_buckets}
    assert list(found) == sorted(found, key=lambda name: float(name.split("-")[0]))
    blocks = [b for b in Traffic(s).blocks() if b.ts[0] - s.start_ms > 120_000]  # the first pane has no curves
    version, pclick, clicked = (
        np.concatenate(columns)
        for columns in zip(
            *((b.version, b.pclick[np.arange(b.ts.size), b.version], b.clicked) for b in blocks), strict=True
        )
    )
    for name, bucket in found.items():
        low, high = map(float, name.split("-"))
        on = (pclick >= low) & (pclick < high)
        for v, share, clicks in (
            (0, bucket.baseline, bucket.baseline_clicks),
            (1, bucket.candidate, bucket.candidate_clicks),
        ):
            mine = on & (version == v)
            assert clicks == pytest.approx(clicked[mine].sum(), rel=0.1, abs=3)
            if clicks >= 200:
                assert share == pytest.approx(pclick[mine].sum() / clicked[mine].sum(), rel=0.05)
    named = [b.bucket for b in found.values() if b.significant]
    assert named
    assert all(found[name].candidate > 1.3 for name in named)
    said = snapshot.report()["comparisons"]
    assert [b["bucket"] for one in said if one["setup"] == "split" for b in one["calibration_buckets"]] == list(found)


def test_findings_are_those_of_one_partition_whatever_their_number() -> None:
    found = []
    for partitions in (1, 3):
        pipeline = make_pipeline()
        for batch in batches(pipeline, broken(scenario(duration_s=1_200.0))):
            for p in range(partitions):
                keep = [batch] if partitions == 1 else _parts(batch, partitions, p)
                for one in keep:
                    pipeline.take(one)
        pipeline.finish()
        c = comparison(readers_see(pipeline), "paired")
        found.append({(f.dimension, f.value): (f.impressions, f.clicks, f.difference, f.share) for f in c.findings})
    assert found[0].keys() == found[1].keys()
    for key, numbers in found[0].items():
        assert found[1][key] == pytest.approx(numbers, rel=1e-6)


def test_findings_leave_out_the_hours_that_comparisons_do() -> None:
    """A third of an hour's clicks lag: it is left out until nothing can correct it any more."""
    hour = 3_600_000
    s = scenario(duration_s=4_200.0)
    s = replace(s, start_ms=s.start_ms // hour * hour + hour - 2_400_000)
    luck = np.random.default_rng(1)
    late = []
    for event in broken(s):
        at = event.arrives / 1000 - s.start_ms / 1000
        lags = event.kind == "click" and 1_000 < at < 2_300 and luck.random() < 0.6
        late.append(event._replace(arrives=event.arrives + 900_000.0) if lags else event)
    pipeline = make_pipeline(windows={"pane": "30s"})
    for batch in batches(pipeline, sorted(late, key=lambda event: event.arrives)):
        pipeline.take(batch)
    c = comparison(readers_see(pipeline), "paired")
    assert any(change.kind == "withheld" for change in c.changes)
    countries = [f for f in c.findings if f.dimension == "country"]
    assert sum(f.impressions for f in countries) == c.impressions
    assert sum(f.clicks for f in countries) == c.clicks


def _parts(batch: Batch, partitions: int, which: int) -> list[Batch]:
    """The events of the impressions that fall to one partition."""

    def taken(columns: Any, on: np.ndarray) -> dict[str, object]:
        plain = {
            f.name: getattr(columns, f.name)[on]
            for f in fields(columns)
            if isinstance(getattr(columns, f.name), np.ndarray)
        }
        return {**plain, "fields": {name: column[on] for name, column in columns.fields.items()}}

    mine = batch.impressions.id % np.uint64(partitions) == which
    at = np.flatnonzero(mine)
    shadow = batch.impressions.shadow
    indptr = np.arange(at.size + 1, dtype=np.int64)
    kept = replace(
        batch.impressions,
        **taken(batch.impressions, mine),
        shadow=shadow._replace(indptr=indptr, series=shadow.series[at], pclick=shadow.pclick[at]),
    )
    clicks = replace(batch.clicks, **taken(batch.clicks, batch.clicks.id % np.uint64(partitions) == which))
    return [replace(batch, partition=which, impressions=kept, clicks=clicks)]
