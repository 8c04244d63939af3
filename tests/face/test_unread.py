"""Event fields that a labelled table is not read for: named, or refused, and never counted wrong in silence."""

from __future__ import annotations

import pandas as pd
import pytest

import streameval

ROWS = {"ts": [10**12, 10**12 + 1], "user_id": ["u", "v"], "pclick": [0.2, 0.4], "clicked": [0, 1]}


def test_columns_that_are_not_read_are_named(caplog: pytest.LogCaptureFixture) -> None:
    streameval.evaluate({**ROWS, "bucket": [1, 2]})
    streameval.evaluate({**ROWS, "position": [1, 2]}, slices=["position"])
    assert caplog.text == ""
    streameval.evaluate({**ROWS, "predictions.v2": [0.1, 0.2], "propensity": [0.5, 0.5], "position": [1, 2]})
    assert "columns position, predictions.v2, propensity are not read of a table with labels" in caplog.text


@pytest.mark.parametrize("shown", [[True, False], ["true", "FALSE"], [1, 0], [1.0, 0.0]])
def test_candidates_are_no_impressions(shown: list[object]) -> None:
    """They counted as impressions that nobody clicked."""
    with pytest.raises(ValueError, match=r"^shown: rows with shown = false are candidates"):
        streameval.evaluate(pd.DataFrame({**ROWS, "shown": shown}))


@pytest.mark.parametrize("shown", [[True, True], [True, None], ["1", "true"]])
def test_what_was_shown_counts(shown: list[object]) -> None:
    found = streameval.evaluate(pd.DataFrame({**ROWS, "shown": shown}))
    assert found.metric("ctr") == 0.5
