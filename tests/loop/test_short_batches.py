"""An online model in a small log, which comes as one batch, has the AUC that it would have had live. River is the oracle."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from river import linear_model, stream
from sklearn.metrics import roc_auc_score

import streameval
from streameval.app import replay
from streameval.events.batch import Batch, Catalog
from streameval.loop.pipeline import Pipeline
from streameval.loop.short_batches import short_batches
from streameval.models.protocol import ModelError
from streameval.settings.tree import Settings
from streameval.testing import ManualClock, Shown, Tap, make_batch

HOUR = 3_600_000
START = 1_700_000_000_000
MODEL = {"name": "lr", "kind": "river", "factory": "river.linear_model.LogisticRegression"}


def a_week(n: int = 3_000) -> list[tuple[Shown, bool]]:
    rng = np.random.default_rng(7)
    ts = START + np.sort(rng.integers(0, 7 * 24 * HOUR, n))
    out = []
    for i in range(n):
        x = {f"f{k}": float(rng.normal()) for k in range(3)}
        clicked = bool(rng.random() < 1 / (1 + np.exp(1 - 2 * x["f0"])))
        out.append((Shown(f"i{i}", int(ts[i]), user=f"u{i % 7}", features=x), clicked))
    return out


def river_auc(events: list[tuple[Shown, bool]], delay: int) -> float:
    """The AUC of scores that know each label `delay` ms after its impression."""
    model, scores = linear_model.LogisticRegression(), np.zeros(len(events))
    dataset = [({"ts": e.ts, **e.features}, y) for e, y in events]
    for i, x, y, *_ in stream.simulate_qa(dataset, moment="ts", delay=delay, copy=True):
        features = {k: v for k, v in x.items() if k != "ts"}
        if y is None:
            scores[i] = model.predict_proba_one(features)[True]
        else:
            model.learn_one(features, y)
    return float(roc_auc_score([y for _, y in events], scores))


def as_table(events: list[tuple[Shown, bool]], clicked: bool) -> pa.Table:
    columns = {
        "impression_id": [e.id for e, _ in events],
        "ts": [e.ts for e, _ in events],
        "user_id": [e.user for e, _ in events],
        "pclick": [0.5] * len(events),
        **{f"features.f{k}": [e.features[f"f{k}"] for e, _ in events] for k in range(3)},
    }
    return pa.table(columns | ({"clicked": [int(y) for _, y in events]} if clicked else {}))


def clicks_of(events: list[tuple[Shown, bool]]) -> pa.Table:
    found = [e for e, y in events if y]
    return pa.table({"impression_id": [e.id for e in found], "ts": [e.ts + 1000 for e in found]})


def test_a_table_of_a_week_with_few_rows() -> None:
    events = a_week()
    truth = river_auc(events, 600_000)
    assert truth > 0.75
    for table, clicks in (as_table(events, True), None), (as_table(events, False), clicks_of(events)):
        result = streameval.evaluate(table, clicks=clicks, settings={"models": [MODEL]})
        assert result.metric("auc", model="lr") == pytest.approx(truth, abs=0.01), table.column_names


def test_two_tables_for_a_monitor() -> None:
    events = a_week()
    monitor = streameval.Monitor(settings={"models": [MODEL]})
    monitor.update(as_table(events, False), clicks_of(events))
    monitor.finish()
    assert monitor.snapshot().metric("auc", model="lr") == pytest.approx(river_auc(events, 600_000), abs=0.01)


@pytest.mark.parametrize("score_at", ["impression", "label"])
def test_a_file_of_a_week_with_few_lines(tmp_path: Path, score_at: str) -> None:
    events = a_week()
    table = as_table(events, True)
    table = table.append_column("type", pa.array(["impression"] * table.num_rows))
    pq.write_table(table, tmp_path / "log.parquet")
    settings = Settings.model_validate({"models": [MODEL], "join": {"score_at": score_at}})
    snapshot = replay(settings, [tmp_path / "log.parquet"])
    (found,) = [r for r in snapshot.results.overall if r.series.source == "online" and r.window == "all"]
    assert found.metrics["auc"] == pytest.approx(river_auc(events, 600_000), abs=0.01)
    assert found.violations == 0


def test_what_is_refused_of_a_later_piece_is_found_in_its_batch() -> None:
    pipeline = Pipeline(Settings.model_validate({"models": [MODEL]}), ManualClock())
    refused = []
    pipeline.on_conflicts = lambda conflicts: refused.extend(conflicts.places.tolist())
    events = [Shown(f"i{i}", START + i * HOUR, user="u", features={"x": 1.0}) for i in range(1_000)]
    events[701] = Shown("i700", events[701].ts, user="u", version="other", features={"x": 1.0})
    pipeline.take(make_batch(events, pipeline.catalog))
    assert refused == [701]


def test_invalid_rows_of_a_table_in_pieces_are_counted_once() -> None:
    table = as_table(a_week(), True)
    bad = np.full(table.num_rows, 0.5)
    bad[5] = 7.0
    table = table.set_column(table.column_names.index("pclick"), "pclick", pa.array(bad))
    result = streameval.evaluate(table, settings={"models": [MODEL]})
    assert result.report()["events"]["invalid"] == {"out_of_range": 1}


gaps = st.lists(st.integers(-300_000, 900_000), min_size=0, max_size=1_500)


@given(gaps=gaps, clicked=st.integers(1, 10), so_far=st.integers(0, 200_000))
def test_pieces_are_the_batch(gaps: list[int], clicked: int, so_far: int) -> None:
    times = START + np.cumsum(np.array(gaps, np.int64))
    events: list[Shown | Tap] = []
    for i, ts in enumerate(times.tolist()):
        events.append(Shown(f"i{i}", ts, user="u", features={"x": float(i), "y": 1.0}))
        if i % clicked == 0:
            events.append(Tap(f"i{i}", ts))
    batch = make_batch(events, Catalog())
    pieces = [*short_batches(batch, 600_000, so_far)]
    assert sum(len(piece) for piece, _ in pieces) == len(batch)
    assert [first for _, first in pieces] == np.cumsum([0, *(len(p.impressions) for p, _ in pieces)])[:-1].tolist()
    for kind in ("impressions", "clicks"):
        for column in ("order", "id", "ts"):
            whole = np.concatenate([getattr(getattr(piece, kind), column) for piece, _ in pieces])
            assert whole.tolist() == getattr(getattr(batch, kind), column).tolist()
    ends = [max([*p.impressions.order, *p.clicks.order], default=-1) for p, _ in pieces]
    assert ends == sorted(ends)
    values = np.concatenate([p.impressions.features.value for p, _ in pieces if p.impressions.features is not None])
    assert batch.impressions.features is not None
    assert values.tolist() == batch.impressions.features.value.tolist()
    least = max(10, so_far // 100)
    for piece, _ in pieces[:-1]:
        assert len(piece.impressions) >= least
        at_least = np.maximum.accumulate(piece.impressions.ts)[least - 1]
        assert piece.impressions.ts.max() <= max(at_least, piece.impressions.ts[0] + 60_000)


def test_traffic_that_is_dense_is_not_cut() -> None:
    batch = make_batch([Shown(f"i{i}", START + i, user="u") for i in range(5_000)], Catalog())
    pieces: list[tuple[Batch, int]] = [*short_batches(batch, 600_000, 0)]
    assert len(pieces) == 1
    assert pieces[0][0] is batch


def test_a_table_in_any_order_without_users_or_scores_and_never_without_features() -> None:
    table = as_table(a_week(), True)
    found = streameval.evaluate(table, settings={"models": [MODEL]}).metric("auc", model="lr")
    shuffled = table.take(pa.array(np.random.default_rng(3).permutation(table.num_rows)))
    assert streameval.evaluate(shuffled, settings={"models": [MODEL]}).metric("auc", model="lr") == found
    for lacking in ("user_id", "pclick"):
        result = streameval.evaluate(table.drop([lacking]), settings={"models": [MODEL]})
        assert result.metric("auc", model="lr") == found, lacking
    with pytest.raises(ModelError, match=r"needs features.*features\.<name>"):
        streameval.evaluate(table.drop([f"features.f{k}" for k in range(3)]), settings={"models": [MODEL]})


@pytest.mark.parametrize("clicks_first", [True, False])
def test_clicks_in_a_file_of_their_own(tmp_path: Path, caplog: pytest.LogCaptureFixture, clicks_first: bool) -> None:
    events = a_week()
    table, clicks = as_table(events, False), clicks_of(events)
    pq.write_table(table.append_column("type", pa.array(["impression"] * table.num_rows)), tmp_path / "a.parquet")
    pq.write_table(clicks.append_column("type", pa.array(["click"] * clicks.num_rows)), tmp_path / "b.parquet")
    paths = [tmp_path / name for name in ("a.parquet", "b.parquet")][:: -1 if clicks_first else 1]
    snapshot = replay(Settings.model_validate({"models": [MODEL]}), paths)
    (found,) = [r for r in snapshot.results.overall if r.series.source == "online" and r.window == "all"]
    warned = "before it had learned a label" in caplog.text
    assert warned is not clicks_first
    assert (found.metrics["auc"] == pytest.approx(river_auc(events, 600_000), abs=0.01)) is clicks_first


@pytest.mark.parametrize(("n", "within"), [(300, 0.06), (1_000, 0.03)])
def test_even_a_tiny_log_is_nearly_what_it_would_have_been(n: int, within: float) -> None:
    events = a_week(n)
    result = streameval.evaluate(as_table(events, True), settings={"models": [MODEL]})
    assert result.metric("auc", model="lr") == pytest.approx(river_auc(events, 600_000), abs=within)
