"""The metrics that `compare.more` can add to a comparison, one row each, with their names for people and their signs.

Each has an interval and its own verdict; only those in `compare.decide` enter the overall verdict. Their sums are
counted in `compare.ledger` (`pieces`, `list_rows`), and turned into a difference in `compare.tracking.further_sums`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class FurtherMetric:
    """`setup`: the only one in which it can be computed. `sign`: turns a difference into harm, -1 where more is better.
    `relative`: differences are the candidate's value over the baseline's, less 1. `by_k`: its name ends in a K.
    """

    name: str
    setup: Literal["paired", "split"]
    sign: float
    words: str
    relative: bool = True
    by_k: bool = False


_ROWS = (
    FurtherMetric("ctr", "split", -1.0, "CTR"),
    FurtherMetric("value", "split", -1.0, "value per impression"),
    FurtherMetric("click_yield", "split", -1.0, "click yield"),
    FurtherMetric("log_loss_snips", "paired", 1.0, "log loss (SNIPS)"),
    FurtherMetric("ndcg", "paired", -1.0, "NDCG", relative=False, by_k=True),
    FurtherMetric("mrr", "paired", -1.0, "MRR", relative=False),
    FurtherMetric("pauc", "paired", -1.0, "partial AUC", relative=False),
    FurtherMetric("policy_value", "paired", -1.0, "policy value"),
)
_FURTHER = {one.name: one for one in _ROWS}


def cut_of(metric: str) -> int | None:
    """Returns the K of a name like "ndcg_10"; None if it has none."""
    name, _, cut = metric.rpartition("_")
    return int(cut) if name in _FURTHER and _FURTHER[name].by_k and cut.isdecimal() else None


def further_metric(metric: str) -> FurtherMetric | None:
    """Returns the row of a metric by its full name; None if it is none of these."""
    cut = cut_of(metric)
    one = _FURTHER.get(metric if cut is None else metric.rpartition("_")[0])
    return None if one is None or one.by_k != (cut is not None) else one


def further_words(metric: str) -> str | None:
    """Returns a metric's name for people; None if it is none of these."""
    one, cut = further_metric(metric), cut_of(metric)
    return None if one is None else one.words if cut is None else f"{one.words}@{cut}"
