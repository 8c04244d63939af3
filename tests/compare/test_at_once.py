"""Two versions of a table, looked at once: the differences are those of the metrics, and verdicts are as rare as promised."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sklearn import metrics as sk

import streameval


def scored(n: int, seed: int, noise: float, users: int = 800) -> dict[str, np.ndarray]:
    """A calibrated score, and one with noise on the logit; users differ in their CTR."""
    rng = np.random.default_rng(seed)
    user = rng.integers(0, users, n)
    logit = rng.normal(-2, 1, n)
    clicked = rng.random(n) < 1 / (1 + np.exp(-logit - rng.normal(0, 0.4, users)[user]))
    other = logit + rng.normal(0, noise, n)
    return {"user_id": user, "a": 1 / (1 + np.exp(-logit)), "b": 1 / (1 + np.exp(-other)), "clicked": clicked}


def compared(result: streameval.Evaluation) -> dict[str, dict[str, object]]:
    return {row["metric"]: row for row in result.comparisons.to_pylist()}


def test_the_differences_are_those_of_the_metrics() -> None:
    table = scored(20_000, 1, 0.7)
    found = compared(streameval.evaluate(table, score=["a", "b"]))
    y, a, b = table["clicked"], table["a"], table["b"]
    assert found["auc"]["difference"] == pytest.approx(sk.roc_auc_score(y, b) - sk.roc_auc_score(y, a), abs=2e-4)
    assert found["log_loss"]["difference"] == pytest.approx(sk.log_loss(y, b) / sk.log_loss(y, a) - 1, abs=1e-6)
    whole = streameval.evaluate(table, score=["a", "b"])
    gauc = [whole.metric("gauc", version=version) for version in "ab"]
    assert found["gauc"]["difference"] == pytest.approx((gauc[1] or 0) - (gauc[0] or 0), abs=1e-6)
    for name in ("auc", "log_loss", "gauc"):
        assert found[name]["lower"] < found[name]["difference"] < found[name]["upper"]
    assert (found["auc"]["setup"], found["overall"]["verdict"]) == ("paired", "worse")


def test_the_other_way_round_is_the_same_with_the_sign_turned() -> None:
    table = scored(20_000, 2, 0.5)
    one = compared(streameval.evaluate(table, score=["a", "b"]))
    other = compared(streameval.evaluate(table, score=["b", "a"]))
    for name in ("auc", "gauc"):
        assert other[name]["difference"] == pytest.approx(-one[name]["difference"], rel=1e-6)
        assert other[name]["stderr"] == pytest.approx(one[name]["stderr"], rel=1e-3)
    assert streameval.evaluate(table, score=["a", "b"], baseline="b").comparisons.to_pylist()[0]["candidate"] == "a"


@pytest.mark.parametrize("place", [lambda p: p * 1e-8, lambda p: 1 - p * 1e-8])
@pytest.mark.parametrize("users", [1, 2])
def test_nothing_is_certified_of_scores_that_are_told_apart_by_nobody(place: Any, users: int) -> None:
    """One version ranks, the other does not; both paired, and each with its own users."""
    table = scored(60_000, 3, 0.0)
    a, b = place(table["a"]), place(np.random.default_rng(1).permutation(table["a"]))
    if users == 1:
        table |= {"a": a, "b": b}
        found = compared(streameval.evaluate(table, score=["a", "b"]))
    else:
        second = table["user_id"] % 2 == 1
        table |= {"pclick": np.where(second, b, a), "model_version": np.where(second, "b", "a")}
        del table["a"], table["b"]
        found = compared(streameval.evaluate(table))
    assert (found["overall"]["verdict"], found["overall"]["reason"]) == ("undecided", "scores_too_close_to_0_or_1")


def test_a_version_whose_scores_all_vanish_is_worse() -> None:
    table = scored(20_000, 3, 0.0)
    table["b"] = table["a"] * 1e-8
    found = compared(streameval.evaluate(table, score=["a", "b"]))
    assert found["overall"]["verdict"] == "worse"


def squeezed(p: np.ndarray, factor: float) -> np.ndarray:
    """The same ranking, with log-odds closer together."""
    logit = np.log(p / (1 - p))
    return 1 / (1 + np.exp(-(logit.mean() + factor * (logit - logit.mean()))))


@pytest.mark.parametrize(
    "how", [lambda p: 0.5 + p / 2, lambda p: 0.9 + p / 20, lambda p: squeezed(p, 0.1), lambda p: squeezed(p, 0.03)]
)
def test_a_version_that_ranks_the_same_differs_by_nothing_however_close_its_scores_lie(how: object) -> None:
    table = scored(20_000, 4, 0.0)
    found = compared(streameval.evaluate({**table, "b": how(table["a"])}, score=["a", "b"]))  # type: ignore[operator]
    assert sk.roc_auc_score(table["clicked"], how(table["a"])) == pytest.approx(  # type: ignore[operator]
        sk.roc_auc_score(table["clicked"], table["a"]), abs=1e-6
    )
    assert abs(found["auc"]["difference"]) < 1e-3  # type: ignore[arg-type]
    assert (found["auc"]["verdict"], found["gauc"]["verdict"]) == ("not_worse", "not_worse")


def test_equal_scores_are_not_worse() -> None:
    table = scored(20_000, 3, 0.0)
    result = streameval.evaluate(table, score={"old": "a", "new": "b"})
    assert result.verdict("new") == "not_worse"
    assert compared(result)["auc"]["difference"] == 0


def test_a_bound_covers_the_truth_and_no_version_is_worse_by_chance() -> None:
    """Arms of the same model, 40 times: all would have to be covered at 99% but for one or two, and none is worse."""
    missed = 0
    for seed in range(40):
        table = scored(4_000, 100 + seed, 0.0, users=400)
        arm = np.array(["v1", "v2"])[table["user_id"] % 2]
        result = streameval.evaluate({**table, "arm": arm}, score="a", version="arm")
        assert result.verdict() != "worse", seed
        found = compared(result)["auc"]
        missed += not found["lower"] <= 0 <= found["upper"]
    assert missed <= 2


def test_arms_of_different_models_are_told_apart() -> None:
    table = scored(60_000, 5, 1.5)
    second = table["user_id"] % 2 == 1
    result = streameval.evaluate(
        {**table, "arm": np.where(second, "v2", "v1"), "p": np.where(second, table["b"], table["a"])}, score="p", version="arm"
    )  # fmt: skip
    found = compared(result)
    assert (found["overall"]["setup"], result.verdict("v2")) == ("split", "worse")
    on = [~second, second]
    auc = [sk.roc_auc_score(table["clicked"][i], p[i]) for i, p in zip(on, (table["a"], table["b"]), strict=True)]
    assert found["auc"]["difference"] == pytest.approx(auc[1] - auc[0], abs=2e-3)
    assert found["gauc"]["reason"] == "not_compared"


def test_few_clicks_and_few_users_decide_nothing() -> None:
    few = streameval.evaluate(scored(300, 6, 3.0), score=["a", "b"])
    assert few.verdict() == "undecided"
    assert compared(few)["overall"]["reason"] == "too_few_clicks"
    heavy = streameval.evaluate(scored(20_000, 7, 3.0, users=5), score=["a", "b"])
    assert heavy.verdict() == "undecided"
    assert compared(heavy)["overall"]["reason"] == "too_few_users"
    alone = {name: column for name, column in scored(20_000, 7, 3.0).items() if name != "user_id"}
    found = streameval.evaluate(alone, score=["a", "b"])
    assert found.verdict() == "worse"
    assert compared(found)["gauc"]["difference"] is None


def test_versions_that_served_in_turn_are_not_compared_and_the_reason_says_so() -> None:
    table = scored(20_000, 9, 0.0)
    row = np.arange(20_000)
    table |= {
        "ts": 1_714_953_600_000 + 1_000 * row + 10_000_000 * (row >= 10_000),
        "arm": np.array(["v1", "v2"])[row // 10_000],
    }
    result = streameval.evaluate(table, score="a", version="arm")
    found = compared(result)
    assert {found[name]["reason"] for name in ("overall", "log_loss", "auc", "calibration")} == {
        "no_hour_served_by_both"
    }
    assert found["gauc"]["reason"] == "not_compared"
    assert str(result).endswith("after 0 impressions and 0 clicks in the arm with fewer (no hour served by both)")
    without = {name: column for name, column in table.items() if name != "ts"}
    assert compared(streameval.evaluate(without, score="a", version="arm"))["overall"]["reason"] is None


def test_three_versions_are_two_comparisons_of_one_baseline() -> None:
    table = scored(5_000, 8, 0.2)
    result = streameval.evaluate({**table, "c": table["a"]}, score=["a", "b", "c"], baseline="b")
    pairs = {(row["baseline"], row["candidate"]) for row in result.comparisons.to_pylist()}
    assert pairs == {("b", "a"), ("b", "c")}
    with pytest.raises(
        KeyError, match=r"comparisons of 2 candidates, not of one; there are verdict\('a'\), verdict\('c'\)"
    ):
        result.verdict()
    assert {result.verdict("a"), result.verdict("c")} == {"undecided"}


def test_the_interval_of_gauc_includes_errors_by_item() -> None:
    """Two versions that are wrong about items for as long as these stay."""
    table, rng = scored(20_000, 9, 0.0), np.random.default_rng(9)
    item = rng.integers(0, 60, 20_000)
    odds = np.log(table["a"] / (1 - table["a"])) + rng.normal(0.0, 1.0, 60)[item]
    table |= {"item_id": item, "clicked": rng.random(20_000) < 1 / (1 + np.exp(-odds))}
    for version in "ab":
        table[version] = 1 / (1 + np.exp(-odds - rng.normal(0.0, 0.8, 60)[item]))
    found = compared(streameval.evaluate(table, score=["a", "b"]))
    del table["item_id"]
    without = compared(streameval.evaluate(table, score=["a", "b"]))
    for name in ("gauc", "auc"):
        assert found[name]["difference"] == without[name]["difference"]
        assert found[name]["stderr"] > 1.2 * without[name]["stderr"], name


def test_a_verdict_of_a_single_look_is_not_said_to_be_over() -> None:
    """One shown on one side only, in which case the two-sided bounds reach into the margin: it no longer supported itself."""
    rng = np.random.default_rng(0)
    logit = rng.normal(-2, 1, 20_000)
    clicked = rng.random(logit.size) < 1 / (1 + np.exp(-logit))
    user = rng.integers(0, 2000, logit.size)
    table = {"user_id": user, "clicked": clicked, "b": 1 / (1 + np.exp(-logit))}
    table["c"] = 1 / (1 + np.exp(-logit - rng.normal(0, 0.24, logit.size)))
    (found,) = streameval.evaluate(table, score={"b": "b", "c": "c"}).report()["comparisons"]
    assert (found["verdict"], found["supported_now"]) == ("worse", True)
    assert found["words"].startswith("c is worse than b: AUC "), found["words"]
