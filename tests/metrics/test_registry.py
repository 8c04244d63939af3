"""The table of metrics: what it says of its rows is so."""

from __future__ import annotations

import numpy as np

from streameval.loop.options import options_of
from streameval.metrics.registry import by_name, evaluate, judged, rows
from streameval.metrics.view import NOT_KEPT_FOR_SLICES, View
from streameval.settings.tree import Settings
from streameval.sketches.accumulate import sketched

OPTIONS = options_of(Settings.model_validate({"ranking": {"k": [3], "by_user": ["mrr"]}, "metrics": {"value": True}}))


def in_slice() -> View:
    p, label = np.array([0.1, 0.2, 0.7]), np.array([0, 1, 1], np.int8)
    sparse, vector = sketched(OPTIONS.slice, np.zeros(3, np.int32), p, label), np.zeros(OPTIONS.slice.size, np.int64)
    sparse.add_to(vector)
    return View.of(vector, OPTIONS.slice, NOT_KEPT_FOR_SLICES)


def test_what_is_kept_overall_only_would_have_said_so_itself() -> None:
    view = in_slice()
    overall = [metric for metric in rows(OPTIONS) if metric.overall]
    assert {"mrr", "ndcg_3", "mrr_by_user", "click_yield", "policy_snips", "log_loss_snips"} <= {
        m.name for m in overall
    }
    assert {metric.function(view) for metric in overall} == {NOT_KEPT_FOR_SLICES}
    values, reasons = evaluate(view)
    assert list(values) == [metric.name for metric in rows(OPTIONS)]
    assert all(reasons[metric.name] == NOT_KEPT_FOR_SLICES.reason for metric in overall)
    assert values["log_loss"] is not None


def test_every_row_is_found_by_its_name_and_the_judged_ones_are_those_with_errors() -> None:
    assert all(by_name(metric.name) is metric for metric in rows(OPTIONS))
    assert list(judged(OPTIONS)) == [metric for metric in rows(OPTIONS) if metric.influence is not None]
