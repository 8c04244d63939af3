"""What other monitors and metric libraries got wrong, one decisive test each; the docstrings say who and where.

Label series that never expire in Prometheus (prometheus/client_python#875) are the one trap that is not here: see
`test_a_version_past_its_ttl_leaves_every_family` in tests/server/prometheus/test_collector.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from functools import partial
from itertools import permutations
from math import prod

import numpy as np
import pytest
from river import metrics as river_metrics
from sklearn.metrics import roc_auc_score

from streameval.counting import scoreboard
from streameval.counting.exact_scores import RUN_START
from streameval.counting.users import Users
from streameval.counting.windows import Panes
from streameval.events.batch import Batch, Catalog, Impressions, empty_clicks
from streameval.loop.pipeline import Pipeline
from streameval.metrics.auc import binned_auc, ranked_auc
from streameval.metrics.registry import evaluate
from streameval.metrics.view import Ranked, View
from streameval.results.result import Result
from streameval.results.snapshot import Snapshot
from streameval.settings.tree import Settings
from streameval.sketches.grid import bin_edges, score_keys, scores_bits
from streameval.sketches.layout import Layout, Moments, read_histogram
from streameval.sketches.ranks import GroupRanks
from streameval.sketches.sorted_lists import entries
from streameval.sketches.sparse import SparseVector
from streameval.testing import Event, ManualClock, Shown, Tap, make_batch, readers_see, sketched
from tests.aucs import auc_of

BASE = 1_700_000_040_000  # on a minute
MINUTE = 60_000
EDGES = (0.0, *Settings().buckets.edges, 1.0)


# -- windows, time and versions --------------------------------------------------------------------------------------


def test_a_batch_larger_than_a_window_does_not_make_the_window_wrong() -> None:
    """torchrec#4424: a micro-batch larger than the window made windowed metrics NaN or silently wrong."""
    events = traffic(4_000, minutes=150)
    tiny = make_pipeline()
    for part in cut(events, 50):  # the window slides, and somebody looks
        tiny.take(make_batch(part, tiny.catalog))
        readers_see(tiny)
    whole = make_pipeline()
    whole.take(make_batch(events, whole.catalog))
    then_whole = make_pipeline()  # a window that stands somewhere is passed by one batch
    for part in (events[:200], events[200:]):
        then_whole.take(make_batch(part, then_whole.catalog))
        readers_see(then_whole)
    for pipeline in (tiny, whole, then_whole):
        pipeline.finish()
        snapshot = readers_see(pipeline)
        assert {r.window for r in snapshot.results} == {"5m", "1h", "24h", "all"}
        for r in snapshot.results:
            agrees_with_sklearn(r, events)
        assert snapshot.report()["results"] == readers_see(tiny).report()["results"]
    assert result(readers_see(whole), "5m").totals.impressions < result(readers_see(whole), "1h").totals.impressions / 5


def test_a_new_version_reports_nothing_that_the_old_one_left_behind() -> None:
    """TorchEasyRec#651: a fine-tuned model's metrics began with the state of the model that it was made from."""
    before = known(1_000, seed=1, version="v1")
    after = [replace(e, id=f"new-{e.id}", ts=e.ts + 20 * MINUTE) for e in known(12, seed=2, version="v2", minutes=1)]
    for e in after:  # a model that gets everything wrong, so that any trace of v1 shows
        e.pclick = 0.9 if not e.clicked else 0.1
    pipeline = make_pipeline(attribution_window=0, allowed_lateness=0)
    pipeline.take(make_batch(before, pipeline.catalog))
    v1 = result(readers_see(pipeline), "all", "v1")
    for part in cut([*after, Shown("clock", BASE + 21 * MINUTE, version="v3")], 5):
        pipeline.take(make_batch(part, pipeline.catalog))
    snapshot = readers_see(pipeline)
    for window in ("5m", "1h", "all"):
        r = result(snapshot, window, "v2")
        agrees_with_sklearn(r, after)
        assert r.metrics["auc"] == 0.0
        assert sum(b.impressions for b in r.buckets) == len(after)
        assert sum(b.impressions for b in r.quantiles) == len(after)
        assert r.scores.negatives.sum() + r.scores.positives.sum() == len(after)
    assert result(snapshot, "all", "v1").metrics == v1.metrics
    users = {s.version: u for s, u in readers_see(pipeline).users.items()}
    assert users["v1"].impressions.sum() == len(before)
    panes = {s.version: p for s, p in snapshot.panes.items()}
    assert panes["v2"].impressions.tolist() == [len(after)]


def test_rates_count_by_event_time_however_late_and_at_whatever_speed_events_arrive() -> None:
    """torchrec#4764: rates taken by the time of processing, so that a backlog or a replay reads as a burst."""
    events = traffic(2_000, minutes=60)
    shown = [e for e in events if isinstance(e, Shown)]
    clicked = {e.id for e in events if isinstance(e, Tap)}
    rng = np.random.default_rng(0)
    late = [e for _, e in sorted(((e.ts + rng.uniform(0, 59_000), i), e) for i, e in enumerate(events))]
    behind = [e for i, e in enumerate(events) if i % 5]  # a fifth comes at the very end, in no order at all
    behind += [e for _, e in sorted((rng.random(), e) for i, e in enumerate(events) if i % 5 == 0)]
    for arrivals, pause in ((events, 0.0), (events, 3_600.0), (late, 0.1), (behind, 0.0)):
        clock = ManualClock()
        pipeline = make_pipeline(clock)
        for part in cut(arrivals, 100):
            clock.advance(pause)
            pipeline.take(make_batch(part, pipeline.catalog))
            readers_see(pipeline)
        pipeline.finish()
        (panes,) = readers_see(pipeline).panes.values()
        starts = sorted({e.ts // MINUTE * MINUTE for e in shown})
        assert panes.start.tolist() == starts
        mine = [[e for e in shown if e.ts // MINUTE * MINUTE == start] for start in starts]
        assert panes.impressions.tolist() == [len(m) for m in mine]
        assert panes.clicks.tolist() == [sum(e.id in clicked for e in m) for m in mine]
        assert panes.metrics["mean_pclick"] == pytest.approx([np.mean([e.pclick for e in m]) for m in mine])
        assert (panes.corrected.sum() > 50) == (arrivals is behind)


# -- equal scores ----------------------------------------------------------------------------------------------------


def test_the_order_of_equal_scores_does_not_decide_auc() -> None:
    """torchrec `auc.py`: samples are sorted by score alone, so among equal scores whoever comes first decides."""
    events = [
        Shown(f"i{i}", BASE, pclick=p, clicked=y)
        for i, (p, y) in enumerate([(0.3, 1), (0.3, 0), (0.3, 0), (0.7, 1), (0.7, 0)])
    ]
    y, p = [e.clicked for e in events], [e.pclick for e in events]
    exact = roc_auc_score(y, p)
    layout = Layout(10, (0.01,))
    for order in permutations(events):
        r = result(labelled_run(order))
        assert r.metrics["auc"] == pytest.approx(exact, abs=1e-15)
        assert r.metrics["gauc"] == pytest.approx(exact, abs=1e-9)  # kept with 31 fractional bits
        y, p = np.array([e.clicked for e in order]), np.array([e.pclick for e in order])
        found, _ = binned_auc(*histogram(p, y, layout))
        assert found == pytest.approx(exact, abs=1e-15)
    orders = {ranked_auc(np.sort(scores_bits(p[list(o)], y[list(o)] == 1))) for o in permutations(range(5))}
    assert len(orders) == 1


@pytest.mark.parametrize("exact_limit", [1 << 22, 100])
@pytest.mark.parametrize("digits", [1, 2])
def test_ties_get_exactly_half_credit(monkeypatch: pytest.MonkeyPatch, digits: int, exact_limit: int) -> None:
    """River's RollingROCAUC: tied pairs "get an integer-truncated half-credit instead of the proper 0.5"."""
    limit_exact_scores(monkeypatch, exact_limit)
    events = known(3_001, seed=3, digits=digits)  # an odd number of pairs somewhere
    r = result(labelled_run(events))
    assert len({e.pclick for e in events}) <= 10**digits + 1
    agrees_with_sklearn(r, events)  # binned too: these scores have a histogram bin each
    assert (r.metrics["auc_error"] == 0) == (exact_limit > 3_001)


# -- users -----------------------------------------------------------------------------------------------------------


def test_a_user_split_over_batches_is_one_user() -> None:
    """torchrec `gauc.py`: groups are sessions inside one batch, so a user split over batches becomes several."""
    events = known(1_000, seed=4, users=40)
    found = []
    for size in (1, 7, 1000):
        pipeline = make_pipeline()
        for part in cut(events, size):
            pipeline.take(make_batch(part, pipeline.catalog))
        pipeline.finish()
        snapshot = readers_see(pipeline)
        assert len(next(iter(snapshot.users.values()))) == 40
        r = result(snapshot)
        agrees_with_sklearn(r, events)
        found.append([(r.window, r.metrics["gauc"], r.metrics["gauc_users"]) for r in snapshot.results])
    assert found[0] == found[1] == found[2]


def test_users_of_one_class_do_not_enter_gauc() -> None:
    """torchmetrics (retrieval: 0) and torchrec `auc.py grouped_auc` (0.5) count users whose AUC is undefined."""
    both = known(300, seed=5, users=10)
    expected = brute_gauc(both)
    assert expected is not None
    ones = [Shown(f"c{i}", BASE + i, f"all-clicks-{i % 9}", 0.1, clicked=1) for i in range(90)]
    zeros = [Shown(f"n{i}", BASE + i, f"no-clicks-{i % 9}", 0.9, clicked=0) for i in range(90)]
    r = result(labelled_run([*both, *ones, *zeros]))
    assert r.metrics["gauc"] == pytest.approx(expected[0], abs=1e-9)
    assert (r.metrics["gauc_users"], r.metrics["gauc_impressions"]) == expected[1:]


def test_a_window_of_one_class_users_only_has_no_gauc_and_says_why() -> None:
    """torchmetrics, torchrec: 0 or 0.5 where nothing can be known; no alert can tell it from a bad model."""
    ones = [Shown(f"c{i}", BASE + i, "clicks", 0.9, clicked=1) for i in range(5)]
    zeros = [Shown(f"n{i}", BASE + i, "does-not", 0.1, clicked=0) for i in range(5)]
    for events, auc, why in (([*ones, *zeros], 1.0, None), (ones, None, "no_non_clicks"), (zeros, None, "no_clicks")):
        for r in labelled_run(events).results:
            assert (r.metrics["gauc"], r.reasons["gauc"]) == (None, "no_eligible_user")
            assert r.metrics["gauc_users"] == 0
            assert (r.metrics["auc"], r.reasons.get("auc")) == (auc, why)


# -- bins ------------------------------------------------------------------------------------------------------------


def test_scores_of_exactly_0_and_1_fall_in_the_first_and_last_bin() -> None:
    """torchmetrics#3510: p = 1.0 got a bin of its own behind the last; #1646: p = 0 crashed."""
    rng = np.random.default_rng(6)
    p = np.concatenate((np.zeros(30), np.ones(40), [1e-15, 1e-9, 1 - 2**-53, 1 - 1e-9], rng.random(100)))
    y = rng.random(p.size) < np.clip(p, 0.2, 0.8)
    events = [Shown(f"i{i}", BASE, f"u{i % 5}", a, clicked=int(b)) for i, (a, b) in enumerate(zip(p, y, strict=True))]
    r = result(labelled_run(events))
    agrees_with_sklearn(r, events)  # AUC, GAUC, log loss, ECE
    assert len(r.buckets) == len(EDGES) - 1
    first, last = p < EDGES[1], p >= EDGES[-2]
    for bucket, inside in ((r.buckets[0], first), (r.buckets[-1], last)):
        assert (bucket.impressions, bucket.clicks) == (inside.sum(), y[inside].sum())
        assert bucket.mean_pclick == pytest.approx(p[inside].mean())
    assert (r.buckets[0].lower, r.buckets[-1].upper) == (0.0, 1.0)
    assert (r.scores.lower[0], r.scores.upper[-1]) == (0.0, 1.0)
    counts = r.scores.negatives + r.scores.positives
    assert counts.sum() == p.size
    assert (counts[0], counts[-1]) == (32, 42)  # with their neighbours, not alone
    assert (r.quantiles[0].lower, r.quantiles[-1].upper) == (0.0, 1.0)
    assert sum(b.impressions for b in r.quantiles) == p.size


def test_what_a_binned_metric_keeps_does_not_grow_with_its_inputs(monkeypatch: pytest.MonkeyPatch) -> None:
    """torcheval `BinaryBinnedAUROC` (and torchmetrics#1461) keeps every score and bins them when asked.

    Bounded here: the panes and windows, and the scores kept for an exact AUC. Per-user ranks keep every score of a
    user by design (GAUC is exact); they have a budget of their own, see the next test.
    """
    limit_exact_scores(monkeypatch, 1_000)
    rng = np.random.default_rng(7)
    p, ts = rng.beta(1, 20, 20_000), BASE + np.sort(rng.integers(0, 30 * MINUTE, 20_000))
    user = rng.integers(1, 500, p.size).astype(np.uint64)
    y = (rng.random(p.size) < p).astype(np.int8)
    pipeline = make_pipeline(attribution_window=0, allowed_lateness="1h")
    sizes = []
    for turn in range(6):  # the same scores again and again, as other impressions
        pipeline.take(columns_batch(pipeline.catalog, ts, user, p, y, first=turn * p.size))
        if turn == 0:  # everything matures at once when it comes, from here on
            pipeline.take(make_batch([Shown("clock", BASE + 2 * 60 * MINUTE, clicked=0)], pipeline.catalog))
        snapshot = readers_see(pipeline)
        (monitor,) = pipeline.partitions.values()
        for number in monitor.scoreboard.overall.numbers():
            monitor.scoreboard.overall.get(number)  # merges the pane's deltas
        sizes.append(readers_see(pipeline).table_bytes["panes"])
        r = result(snapshot)
        assert r.totals.impressions == (turn + 1) * p.size
        assert abs(r.metrics["auc"] - roc_auc_score(y, p)) <= r.metrics["auc_error"] < 1e-3
        assert r.metrics["auc_error"] > 0
        kept = monitor.scoreboard.users.scores(r_code(pipeline, r)).scores(RUN_START, -RUN_START)
        assert kept is None
    assert sizes[1:] == [sizes[0]] * 5


def test_what_users_keep_stays_within_the_budget_and_says_what_it_rests_on() -> None:
    """torcheval, torchmetrics: per-group metrics keep everything until memory ends."""
    budget, between_checks = 20_000_000, (1 << 19) * 14  # bytes; 14 an impression
    rng = np.random.default_rng(8)
    users = Users([5], "impressions", budget, exact_limit=1_000)
    ids = rng.integers(1, 2**62, 50_000).astype(np.uint64)
    sizes = []
    for number in range(400):
        p = rng.beta(1, 4, 10_000)
        y = (rng.random(p.size) < p).astype(np.int8)
        slots = users.slots(ids[rng.integers(0, ids.size, p.size)])
        users.add(number // 80, 0, entries(slots, score_keys(p), y), scores_bits(p, y), None, 1)
        users.fit_budget()
        sizes.append(users.nbytes)
    assert max(sizes) <= budget + between_checks
    assert max(sizes) < 400 * 10_000 * 12  # what keeping everything would take
    assert users.sampled < 1
    ranked, spread = users.ranked(0, None, 5)
    assert 0.5 < ranked.weighted_auc / ranked.weight < 1
    assert spread is not None
    assert ranked.users == pytest.approx(ids.size * users.sampled, rel=0.2)


def test_at_a_ctr_of_two_in_a_thousand_bins_of_equal_width_see_nothing_and_ours_do() -> None:
    """200 equal-width bins (torcheval, TF-Keras) read 0.136 too low; River's 10 thresholds read 0.50 for 0.757."""
    rng = np.random.default_rng(9)
    p = 1 / (1 + np.exp(-rng.normal(-6.8, 1, 5_000_000)))  # more than are sorted for an exact AUC
    y = rng.random(p.size) < p
    assert 0.0015 < y.mean() < 0.0025
    exact = roc_auc_score(y, p)
    pipeline = make_pipeline(attribution_window=0, allowed_lateness=0)
    for at in range(0, p.size, 500_000):
        part = slice(at, at + 500_000)
        n = p[part].size
        user = np.arange(n, dtype=np.uint64) % np.uint64(1_000) + np.uint64(1)
        ts = np.full(n, BASE + at // 500_000)
        pipeline.take(columns_batch(pipeline.catalog, ts, user, p[part], y[part].astype(np.int8), first=at))
    pipeline.finish()
    r = result(readers_see(pipeline, with_history=False))
    assert 0 < r.metrics["auc_error"] < 1e-3
    assert r.metrics["auc"] == pytest.approx(exact, abs=1e-6)

    equal = np.minimum((p * 200).astype(int), 199)
    others, _ = binned_auc(np.bincount(equal[~y], minlength=200), np.bincount(equal[y], minlength=200))
    assert exact - others > 0.05
    few = river_metrics.ROCAUC()
    for score, label in zip(p[:20_000].tolist(), y[:20_000].tolist(), strict=True):
        few.update(label, score)
    assert few.get() == pytest.approx(0.5, abs=0.01)


# -- large numbers ---------------------------------------------------------------------------------------------------


def test_ten_million_clicks_overflow_no_pair_count() -> None:
    """pROC#19: clicks times non-clicks overflowed int32 at large n, and the interval read 1 to 1; float32 rounds."""
    layout = Layout(10, (0.01, 0.1))
    edges = bin_edges(10)
    rng = np.random.default_rng(10)
    used = rng.choice(edges.size - 1, 1_000, replace=False)
    p = np.repeat((edges[used] + edges[used + 1]) / 2, 4)  # 4,000 scores, each inside a bin
    y = np.append(rng.permutation(p.size - 1) < 1_000, False).astype(np.int8)
    base, times = sketched(layout, np.zeros(p.size, np.int32), p, y), 10_000
    panes = Panes(layout.size)
    window = panes.window(1)
    window.move_to(1)
    panes.add(0, SparseVector(base.cells, base.values * times))
    row = window.move_to(1).row(0)
    assert Moments.read(row).clicks == 10**7
    view = View.of(row, layout, Ranked(0, 0, 0, 0))
    values, _ = evaluate(view)
    counts = [(int(c), int(n)) for n, c in zip(*(h.tolist() for h in read_histogram(row, layout)), strict=True)]
    exact, tied = pair_auc(counts)
    assert float(exact) == pytest.approx(roc_auc_score(y, p), abs=1e-12)  # copies change nothing
    assert values["auc"] == pytest.approx(float(exact), rel=1e-14)
    assert values["auc_error"] == pytest.approx(float(tied), rel=1e-14)


def test_ten_million_clicks_overflow_no_pair_count_when_the_scores_themselves_are_ranked() -> None:
    """pROC#19, for the exact AUC: 10 million clicks x 12 million non-clicks are 1.2e14 pairs."""
    scores = np.arange(1_000, dtype=np.uint64) * np.uint64(1_000_003)
    clicks, others = 10_000, 12_000  # per score
    one = np.concatenate((np.zeros(others, np.uint64), np.ones(clicks, np.uint64)))
    found = ranked_auc(((scores << np.uint64(1))[:, None] | one).ravel())
    assert found == 0.5  # every score has the same mixture
    ordered = np.concatenate((np.zeros(10**7, np.uint64), np.full(10**7, 3, np.uint64)))
    assert ranked_auc(ordered) == 1.0
    ordered[0] = 4  # one non-click above all clicks
    assert ranked_auc(np.sort(ordered)) == pytest.approx(1 - 1e-7, abs=1e-15)


def test_one_user_with_four_times_ten_to_the_ten_pairs_overflows_nothing() -> None:
    """pROC#19, for GAUC: a crawler with 200,000 clicks and as many non-clicks is a user too."""
    n = 200_000
    rng = np.random.default_rng(11)
    p = np.round(rng.random(2 * n), 4)
    y = np.repeat(np.array([0, 1], np.int8), n)
    p[n:] = np.round(np.minimum(1.0, p[n:] + 0.1), 4)
    add = np.sort(entries(np.zeros(2 * n, np.int32), score_keys(p), y))
    ranks = GroupRanks()
    ranks.apply(add[::2], add[:0], 1)
    ranks.apply(add[1::2], add[:0], 1)
    values, place = np.unique(p, return_inverse=True)
    counts = [np.bincount(place[y == label], minlength=values.size).tolist() for label in (1, 0)]
    exact, _ = pair_auc(list(zip(*counts, strict=True)))
    assert Fraction(int(ranks.columns()["pairs"][0]), 2 * n * n) == exact
    assert 2 * n * n > 2**36
    assert ranks.gauc == pytest.approx(float(exact), abs=1e-9)
    assert float(exact) == pytest.approx(roc_auc_score(y, p), abs=1e-12)


# -- helpers ---------------------------------------------------------------------------------------------------------


def make_pipeline(clock: ManualClock | None = None, **join: object) -> Pipeline:
    tree = {"join": {"attribution_window": "2m", "allowed_lateness": "1m", "request_gap": "1m", **join}}
    return Pipeline(Settings.model_validate(tree), clock or ManualClock())


def limit_exact_scores(monkeypatch: pytest.MonkeyPatch, limit: int) -> None:
    monkeypatch.setattr(scoreboard, "Users", partial(Users, exact_limit=limit))


def traffic(n: int, seed: int = 0, minutes: int = 30) -> list[Event]:
    """Impressions and their clicks, by time."""
    rng = np.random.default_rng(seed)
    ts = BASE + np.sort(rng.integers(0, minutes * MINUTE, n))
    events: list[Event] = []
    for i in range(n):
        p = float(rng.beta(2, 8))
        events.append(Shown(f"i{i}", int(ts[i]), f"u{rng.integers(0, 60)}", p))
        if rng.random() < p:
            events.append(Tap(f"i{i}", int(ts[i] + rng.integers(1, 119_000))))
    return sorted(events, key=lambda e: e.ts)


def known(
    n: int, seed: int, version: str = "v1", users: int = 20, digits: int | None = None, minutes: int = 4
) -> list[Shown]:
    """Impressions that carry their label, by time."""
    rng = np.random.default_rng(seed)
    ts = BASE + np.sort(rng.integers(0, minutes * MINUTE, n))
    p = rng.beta(2, 4, n)
    y = rng.random(n) < p
    p = p if digits is None else np.round(p, digits)
    return [Shown(f"i{i}", int(ts[i]), f"u{i * 7 % users}", float(p[i]), version, clicked=int(y[i])) for i in range(n)]


def labelled_run(events: Sequence[Event], size: int = 3) -> Snapshot:
    """The snapshot after events in small batches, each label counted when it arrives."""
    pipeline = make_pipeline(attribution_window=0, allowed_lateness=0)
    for part in cut(events, size):
        pipeline.take(make_batch(part, pipeline.catalog))
    pipeline.finish()
    return readers_see(pipeline, with_history=False)


def columns_batch(
    catalog: Catalog, ts: np.ndarray, user: np.ndarray, p: np.ndarray, y: np.ndarray, first: int
) -> Batch:
    """Impressions with labels, from arrays; ids go on from `first`."""
    n = p.size
    zero = np.zeros(n, np.uint64)
    impressions = Impressions(
        order=np.arange(n, dtype=np.int32), id=np.arange(first + 1, first + n + 1, dtype=np.uint64), ts=ts, user=user,
        request=zero, item=zero, series=np.full(n, catalog.series_code("default", "v1"), np.int32), pclick=p,
        slices=np.zeros(n, np.int64), label=y,
    )  # fmt: skip
    return Batch(0, impressions, empty_clicks(), shared=True)


def cut(events: Sequence[Event], size: int) -> list[Sequence[Event]]:
    return [events[at : at + size] for at in range(0, len(events), size)]


def result(snapshot: Snapshot, window: str = "all", version: str = "v1") -> Result:
    return next(r for r in snapshot.results if r.window == window and r.series.version == version)


def r_code(pipeline: Pipeline, r: Result) -> int:
    return pipeline.catalog.series.index(r.series)


def histogram(p: np.ndarray, y: np.ndarray, layout: Layout) -> tuple[np.ndarray, np.ndarray]:
    row = np.zeros(layout.size, np.int64)
    sketched(layout, np.zeros(p.size, np.int32), p, y).add_to(row)
    return read_histogram(row, layout)


def pair_auc(counts: list[tuple[int, int]]) -> tuple[Fraction, Fraction]:
    """(AUC, half the share of tied pairs) of (clicks, non-clicks) by increasing score, in Python's own integers."""
    won = tied = below = 0
    for clicks, others in counts:
        won, tied, below = won + 2 * clicks * below, tied + clicks * others, below + others
    pairs = 2 * prod(sum(column) for column in zip(*counts, strict=True))
    return Fraction(won + tied, pairs), Fraction(tied, pairs)


def brute_gauc(shown: list[Shown], clicked: set[str] | None = None) -> tuple[float, int, int] | None:
    """(GAUC, users, impressions) over users with both labels."""
    by_user: dict[str, tuple[list[int], list[float]]] = {}
    for e in shown:
        y, p = by_user.setdefault(e.user, ([], []))
        y.append(e.clicked if clicked is None else int(e.id in clicked))
        p.append(e.pclick)
    both = [(y, p) for y, p in by_user.values() if 0 < sum(y) < len(y)]
    if not both:
        return None
    weight = sum(len(y) for y, _ in both)
    return sum(len(y) * auc_of(y, p) for y, p in both) / weight, len(both), weight


def agrees_with_sklearn(r: Result, events: list) -> None:
    """Every count, AUC, GAUC, log loss and ECE of a result, from the impressions of its window alone."""
    start, end = r.window_start or 0, r.window_end or 1 << 62
    shown = [e for e in events if isinstance(e, Shown) and start <= e.ts < end]
    clicked = {e.id for e in events if isinstance(e, Tap) or e.clicked}
    y, p = np.array([e.id in clicked for e in shown]), np.array([e.pclick for e in shown])
    assert (r.totals.impressions, r.totals.clicks) == (len(shown), y.sum())
    assert r.metrics["auc"] == pytest.approx(roc_auc_score(y, p), abs=1e-12)
    gauc = brute_gauc(shown, clicked)
    if gauc is None:
        assert (r.metrics["gauc"], r.metrics["gauc_users"]) == (None, 0)
    else:
        assert (r.metrics["gauc"], r.metrics["gauc_users"], r.metrics["gauc_impressions"]) == (
            pytest.approx(gauc[0], abs=1e-9),
            *gauc[1:],
        )
    q = np.clip(p, 1e-7, 1 - 1e-7)
    loss = -(y * np.log(q) + ~y * np.log1p(-q))
    assert r.metrics["log_loss"] == pytest.approx(loss.mean(), rel=1e-9)
    bucket = np.searchsorted(EDGES[1:-1], p, side="right")
    ece = sum(abs(p[bucket == b].sum() - y[bucket == b].sum()) for b in range(len(EDGES) - 1)) / p.size
    assert r.metrics["ece"] == pytest.approx(ece, abs=1e-9)
