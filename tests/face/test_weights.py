"""Tables that are samples: rows that stand for several impressions, against scikit-learn's sample weights and the engine's own stream."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import log_loss, mean_squared_error, roc_auc_score

import streameval

N = 20_000


@pytest.fixture(scope="module")
def frame() -> pd.DataFrame:
    rng = np.random.default_rng(3)
    p = rng.beta(1, 8, N)
    clicked = rng.random(N) < p
    worse = np.clip(p * np.exp(rng.normal(0, 0.6, N)), 1e-4, 0.999)
    return pd.DataFrame(
        {
            "clicked": clicked, "p": p, "worse": worse, "user_id": rng.integers(0, 500, N),
            "stands_for": np.where(clicked, 1.0, rng.integers(1, 20, N)),
        }
    )  # fmt: skip


def metrics(result: streameval.Evaluation, version: str = "p") -> dict[str, Any]:
    (row,) = [row for row in result.results.to_pylist() if row["version"] == version and row["window"] == "all"]
    return dict(row)


def test_the_weights_of_rows_are_scikit_learns_sample_weights(frame: pd.DataFrame) -> None:
    found = metrics(streameval.evaluate(frame, score="p", weight="stands_for"))
    label, p, weight = frame.clicked, frame.p, frame.stands_for
    assert found["impressions"] == weight.sum()
    assert found["log_loss"] == pytest.approx(log_loss(label, p, sample_weight=weight), rel=1e-9)
    assert found["mse"] == pytest.approx(mean_squared_error(label, p, sample_weight=weight), rel=1e-9)
    assert found["auc"] == pytest.approx(roc_auc_score(label, p, sample_weight=weight), abs=found["auc_error"])
    assert found["auc_error"] < 5e-4
    alike = metrics(streameval.evaluate(frame, score="p"))
    assert found["log_loss"] < alike["log_loss"] - 0.05


def test_a_share_of_the_non_clicks_is_a_weight_of_them(frame: pd.DataFrame) -> None:
    found = metrics(streameval.evaluate(frame, score="p", settings={"sampling": {"negatives": 0.1}}))
    weight = np.where(frame.clicked, 1.0, 10.0)
    assert found["impressions"] == weight.sum()
    assert found["log_loss"] == pytest.approx(log_loss(frame.clicked, frame.p, sample_weight=weight), rel=1e-9)


def test_a_weight_that_is_no_whole_number_is_right_on_the_average(frame: pd.DataFrame) -> None:
    found = metrics(streameval.evaluate(frame.assign(stands_for=2.5), score="p", weight="stands_for"))
    assert found["impressions"] == pytest.approx(2.5 * N, rel=0.01)
    assert found["impressions"] != 2.5 * N


def test_scores_of_a_model_trained_on_a_sample_are_corrected(frame: pd.DataFrame) -> None:
    high = frame.assign(p=frame.p / (frame.p + (1 - frame.p) * 0.1))
    sampling = {"trained_negatives": 0.1, "recalibrate": ["p"]}
    found = metrics(streameval.evaluate(high, score="p", settings={"sampling": sampling}))
    assert found["log_loss"] == pytest.approx(log_loss(frame.clicked, frame.p), rel=1e-9)
    assert metrics(streameval.evaluate(high, score="p"))["log_loss"] > found["log_loss"] + 0.1


def test_with_every_weight_1_it_is_the_table_as_it_is(frame: pd.DataFrame) -> None:
    plain = metrics(streameval.evaluate(frame, score=["p", "worse"]))
    ones = metrics(streameval.evaluate(frame.assign(stands_for=1), score=["p", "worse"], weight="stands_for"))
    of_users_or_requests = {name for name in plain if name.startswith("gauc_") and ones[name] is None}
    assert {n: v for n, v in plain.items() if n not in of_users_or_requests} == {
        n: v for n, v in ones.items() if n not in of_users_or_requests
    }


def test_a_stream_of_the_same_rows_has_the_same_numbers(frame: pd.DataFrame) -> None:
    events = frame.assign(
        ts=1_700_000_000_000 + np.arange(N), model_version="p", pclick=frame.p, weight=frame.stands_for
    )
    stream = streameval.Monitor(settings={"sampling": {"weights": True}})
    stream.update(events[["ts", "user_id", "clicked", "model_version", "pclick", "weight"]])
    stream.finish()
    streamed = metrics(stream.snapshot())
    found = metrics(streameval.evaluate(frame, score="p", weight="stands_for"))
    for name in (
        "impressions",
        "clicks",
        "auc",
        "auc_error",
        "gauc",
        "log_loss",
        "mse",
        "calibration",
        "log_loss_stderr",
        "gauc_stderr",
    ):
        assert found[name] == streamed[name], name


def comparison(result: streameval.Evaluation) -> dict[str, dict[str, Any]]:
    rows = result.comparisons.to_pylist()
    return {row["metric"]: row for row in rows}


def test_versions_differ_by_their_weighted_metrics_and_copies_are_no_evidence(frame: pd.DataFrame) -> None:
    weight = frame.stands_for
    found = comparison(streameval.evaluate(frame, score=["p", "worse"], user="user_id", weight="stands_for"))
    losses = [log_loss(frame.clicked, frame[name], sample_weight=weight) for name in ("p", "worse")]
    aucs = [roc_auc_score(frame.clicked, frame[name], sample_weight=weight) for name in ("p", "worse")]
    again = frame.loc[np.repeat(frame.index, weight.astype(int))]
    copied = comparison(streameval.evaluate(again, score=["p", "worse"], user="user_id"))
    for name, expected in (("log_loss", losses[1] / losses[0] - 1), ("auc", aucs[1] - aucs[0])):
        assert found[name]["difference"] == pytest.approx(expected, abs=2e-4), name
        assert found[name]["difference"] == pytest.approx(copied[name]["difference"], abs=1e-4), name
        low, high = found[name]["lower"], found[name]["upper"]
        assert high - low >= 0.99 * (copied[name]["upper"] - copied[name]["lower"])
    assert found["gauc"]["difference"] == pytest.approx(copied["gauc"]["difference"], abs=1e-4)


@pytest.mark.parametrize("weight", [0.0, -1.0, np.nan, 1_000.5, np.inf])
def test_a_weight_that_cannot_be_is_named_with_its_row(frame: pd.DataFrame, weight: float) -> None:
    wrong = frame.stands_for.copy()
    wrong[77] = weight
    with pytest.raises(ValueError, match=r"^weight: 'stands_for' of row 77 is .*must be above 0 and at most 1000$"):
        streameval.evaluate(frame.assign(stands_for=wrong), score="p", weight="stands_for")


def test_what_goes_with_no_weights_is_refused(frame: pd.DataFrame) -> None:
    with pytest.raises(ValueError, match="weight = 'w': there is no such column"):
        streameval.evaluate(frame, score="p", weight="w")
    with pytest.raises(ValueError, match=r"weight: sampling\.weights needs a column"):
        streameval.evaluate(frame, score="p", settings={"sampling": {"weights": True}})
    with pytest.raises(ValueError, match="negatives"):
        streameval.evaluate(frame, score="p", weight="stands_for", settings={"sampling": {"negatives": 0.1}})


def test_requests_of_a_sample_are_not_whole_and_their_metrics_say_so(frame: pd.DataFrame) -> None:
    result = streameval.evaluate(frame.assign(r=np.arange(N) // 5), score="p", request="r", weight="stands_for")
    (row,) = [row for row in result.snapshot.results if row.window == "all"]
    assert row.metrics["gauc_request"] is None
    assert row.reasons["gauc_request"] == "weights_not_supported"
