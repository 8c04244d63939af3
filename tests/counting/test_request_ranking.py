"""Ranking metrics of requests, from events to results, against the definitions applied to the log."""

from __future__ import annotations

import pytest

from streameval.loop.pipeline import Pipeline
from streameval.testing import ManualClock, Shown, Tap, make_batch
from tests.ranked_lists import BASE, MINUTE, judged, log, result, run, settings


@pytest.mark.parametrize(
    ("gain", "n"),
    [
        pytest.param("click", 40_000, marks=pytest.mark.slow),
        ("value", 4_000),
        ("sqrt_value", 2_000),
        ("log_value", 2_000),
    ],
)
def test_a_replayed_log_gives_what_the_definitions_give(gain: str, n: int) -> None:
    rows = log(n, seed=n)
    pipeline = run(rows, gain)
    for version in ("v1", "v2"):
        expected = judged(rows, version, gain)
        metrics = result(pipeline, version).metrics
        assert {name: metrics[name] for name in expected} == pytest.approx(expected, abs=1e-9)


def lists(*clicks: str, k: tuple[int, ...] = (1, 2, 10), gain: str = "click", users: str = "") -> Pipeline:
    """Requests in the order of their scores: "010" has a click at the second of three ranks."""
    pipeline = Pipeline(settings(gain, k), ManualClock())
    events = []
    for number, marks in enumerate(clicks):
        for rank, mark in enumerate(marks):
            user = users[number] if users else f"u{number}"
            name = f"{number}-{rank}"
            events.append(Shown(name, BASE + number, user, 0.9 - rank / 20, request=f"r{number}"))
            if mark != "0":
                events.append(Tap(name, BASE + number + 1, {"value": float(mark)}))
    pipeline.take(make_batch(events, pipeline.catalog))
    pipeline.finish()
    return pipeline


def test_hit_rate_by_list() -> None:
    """Shi et al., figure 5: users with 3, 2 and 1 lists, of which 2, 1 and 0 have a hit at the first rank."""
    metrics = result(lists("10", "10", "01", "10", "01", "01", users="aaabbc")).metrics
    assert metrics["hit_rate_1"] == 0.5
    assert metrics["hit_rate_1_by_user"] == pytest.approx((2 / 3 + 1 / 2 + 0) / 3, abs=1e-9)
    assert metrics["hit_rate_1_by_user"] == pytest.approx(0.3889, abs=5e-5)


def test_two_rankings_that_auc_cannot_tell_apart() -> None:
    """Clicks of 180 s and 10 s at ranks 1 and 3 of four, in either order: AUC 0.75 both."""
    pipelines = []
    for marks in ("9010", "1090"):  # digits are tenths: 180 s and 10 s are 18 to 1
        pipeline = Pipeline(settings("value", (4,)), ManualClock())
        events = [Shown(f"{i}", BASE, pclick=0.9 - i / 20, request="r") for i in range(4)]
        events += [
            Tap(f"{i}", BASE + 1, {"value": {"9": 180.0, "1": 10.0}[m]}) for i, m in enumerate(marks) if m != "0"
        ]
        pipeline.take(make_batch(events, pipeline.catalog))
        pipeline.finish()
        pipelines.append(result(pipeline).metrics)
    assert [m["auc"] for m in pipelines] == [m["gauc_request"] for m in pipelines] == [0.75, 0.75]
    assert [m["ndcg_4"] for m in pipelines] == pytest.approx([0.99297, 0.53674], abs=5e-6)


def test_mean_average_precision_is_over_all_clicks() -> None:
    """Clicks at 1, 2, 4 and 7 of 4, and at 1, 3 and 5 of 5, two of which stand behind the cut."""
    metrics = result(lists("110100100000", "101010000011")).metrics
    assert metrics["map_10"] == pytest.approx(0.641845, abs=5e-7)


def test_lists_without_clicks_are_in_no_ndcg() -> None:
    """xgboost#2208 and Surprise#328 count them as 1, lenskit#871 differently by metric."""
    metrics = result(lists("10", "00", "00")).metrics
    assert (metrics["requests"], metrics["requests_clicked"]) == (3, 1)
    assert [metrics[name] for name in ("ndcg_10", "map_10", "recall_10", "mrr", "map", "click_hit_rate_10")] == [
        1.0
    ] * 6
    assert metrics["hit_rate_10"] == pytest.approx(1 / 3)
    assert metrics["precision_2"] == pytest.approx(1 / 6)


def test_only_lists_without_clicks() -> None:
    found = result(lists("00", "0"))
    assert found.metrics["ndcg_10"] is found.metrics["mrr"] is found.metrics["click_hit_rate_1"] is None
    assert found.reasons["ndcg_10"] == found.reasons["mrr"] == found.reasons["click_hit_rate_1"] == "no_clicked_request"
    assert found.metrics["hit_rate_1"] == found.metrics["precision_10"] == 0.0


def test_precision_is_over_k() -> None:
    """implicit#412 and #713: over min(K, clicks), which is recall."""
    metrics = result(lists("1000000000", "1")).metrics
    assert metrics["precision_10"] == pytest.approx(0.1)
    assert metrics["recall_10"] == 1.0


def test_requests_are_not_one_list() -> None:
    """torchmetrics#3229: several lists were flattened into one, and the second click of two stood at rank 2."""
    assert result(lists("100", "100")).metrics["mrr"] == 1.0


def test_hits_of_lists_and_of_clicks_are_two_metrics() -> None:
    """Papers mean either by "hit rate"."""
    metrics = result(lists("1101", "0010")).metrics
    assert metrics["hit_rate_2"] == 0.5
    assert metrics["click_hit_rate_2"] == pytest.approx(2 / 4)
    assert metrics["click_hit_rate_1"] == pytest.approx(1 / 4)


def test_clicks_that_are_worth_nothing_have_no_best_order() -> None:
    found = result(lists("10", "01", gain="value"))
    assert found.metrics["ndcg_10"] == pytest.approx((1 + 1 / 1.5849625007211563) / 2)
    pipeline = Pipeline(settings("value"), ManualClock())
    events = [Shown("a", BASE, request="r"), Shown("b", BASE, request="r"), Tap("a", BASE + 1, {"value": -2.0})]
    pipeline.take(make_batch(events, pipeline.catalog))
    pipeline.finish()
    found = result(pipeline)
    assert (found.metrics["ndcg_10"], found.reasons["ndcg_10"]) == (None, "no_valued_click")
    assert found.metrics["mrr"] == pytest.approx(0.75)


def test_a_list_that_was_scored_in_part_is_not_ranked() -> None:
    """spiceai#12277: an ideal of what was retrieved alone. v2 scored the click only, and would be perfect."""
    rows = [row for row in log(40, 3) if row.event.version == "v1"][:6]
    for number, row in enumerate(rows):
        row.event.request, row.event.id, row.clicked = "r", f"{number}", number == 0
        row.shadow = 0.5 if row.clicked else None
    found = result(run(rows), "v2")
    assert (found.metrics["requests"], found.metrics["ndcg_10"], found.reasons["ndcg_10"]) == (0, None, "no_request")


def test_a_second_click_that_is_worth_more_is_counted_again() -> None:
    """Also after its request has closed."""

    def ndcg(*taps: Tap) -> float:
        pipeline = Pipeline(settings("value"), ManualClock())
        shown = [Shown(name, BASE, pclick=p, request="r") for name, p in (("a", 0.9), ("b", 0.5))]
        later = Shown("c", BASE + 20 * MINUTE, request="s")
        for part in (
            [*shown, Tap("a", BASE + 1, {"value": 1.0}), Tap("b", BASE + 2, {"value": 1.0})],
            [later],
            list(taps),
        ):
            pipeline.take(make_batch(part, pipeline.catalog))
        pipeline.finish()
        value = result(pipeline).metrics["ndcg_10"]
        assert isinstance(value, float)
        return value

    assert ndcg() == 1.0
    assert ndcg(Tap("b", BASE + 3, {"value": 9.0})) == pytest.approx((1 + 9 / 1.5849625) / (9 + 1 / 1.5849625))


def test_shown_metrics_are_of_versions_that_served() -> None:
    rows = log(600, 9)
    v1, v2 = (result(run(rows), version).metrics for version in ("v1", "v2"))
    assert v1["shown_ndcg_10"] is not None
    assert v2["shown_ndcg_10"] is not None
    for row in rows:
        row.event.version = "v1"
    found = result(run(rows), "v2")
    assert found.metrics["requests"] > 0
    assert found.metrics["shown_mrr"] is None
    assert found.reasons["shown_mrr"] == "no_positions"


def test_without_cuts_there_is_nothing() -> None:
    found = result(lists("10", k=()))
    assert not [name for name in found.metrics if name.startswith("ndcg")]
    assert (found.metrics["requests"], found.reasons["mrr"]) == (None, "not_configured")


def test_without_requests_there_is_nothing() -> None:
    pipeline = Pipeline(settings(), ManualClock())
    pipeline.take(make_batch([Shown("a", BASE), Tap("a", BASE + 1)], pipeline.catalog))
    pipeline.finish()
    found = result(pipeline)
    assert (found.metrics["requests"], found.metrics["requests_clicked"], found.reasons["ndcg_10"]) == (
        0,
        0,
        "no_request",
    )
