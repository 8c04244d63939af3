"""The cells of ranking metrics: one tally over all lists, and one for every cut K.

A version has its sums for each of 16 groups of users, four blocks each (see `blocks`): by 64 blocks they would take four
times the 6 kB that they take by pane and version with three cuts.
"""

from __future__ import annotations

from dataclasses import dataclass

from streameval.sketches.blocks import SCALE
from streameval.sketches.list_terms import AP, HIT, HITS, NDCG, RECALL, TERMS_A_CUT
from streameval.sketches.tally import Tally, reals

GROUPS = 16
GROUP_SHIFT = 2  # a block's group is block >> 2

# lists, those with a click, clicks, sums of 1 / rank of the first click and of average precision; then, of lists with a click
# and all positions: how many, and 1 / position
LISTS, LISTS_CLICKED, LIST_CLICKS, RECIPROCAL, PRECISION, LISTS_SHOWN, SHOWN_RECIPROCAL = range(7)
_LIST_CELLS = ("requests", "requests_clicked", "clicks", "mrr", "map", "shown", "shown_mrr")
# at a cut, behind the terms of `list_terms`; lists with a gain above 0, unless every click has one
assert (NDCG, AP, HITS, RECALL, HIT) == (0, 1, 2, 3, 4)
SHOWN_NDCG, GAINED, SHOWN_GAINED = range(5, 8)
_CUT_CELLS = ("ndcg", "map", "hits", "recall", "hit", "shown_ndcg", "gained", "shown_gained")

LISTS_TALLY = "ranking"


def cut_tally(k: int, gain: str) -> str:
    """The name of the tally of one cut."""
    return f"ranking_{k}_{gain}"


def ranking_tallies(cuts: tuple[int, ...], gain: str) -> tuple[Tally, ...]:
    """The tallies of these cuts; none without cuts."""
    if not cuts:
        return ()
    whole = Tally(LISTS_TALLY, _LIST_CELLS, scales=reals("mrr", "map", "shown_mrr"))
    scales = reals("ndcg", "map", "hits", "recall", "hit", "shown_ndcg")
    return (whole, *(Tally(cut_tally(k, gain), _CUT_CELLS, scales=scales) for k in cuts))


LIST_CELLS, CUT_CELLS = len(_LIST_CELLS), len(_CUT_CELLS)


def unit(where: str, cell: int) -> float:
    """The integer that stands for 1.0 in a cell of the tally of all `lists`, or of a `cut`."""
    reals_of = (RECIPROCAL, PRECISION, SHOWN_RECIPROCAL) if where == "lists" else range(SHOWN_NDCG + 1)
    return SCALE if cell in reals_of else 1.0


MEAN_SCALE = SCALE  # units per 1.0 of a user's mean
# what a user's sum of a metric is divided by: the user's lists, lists with a click, lists with a gain, clicks
BY_LISTS, BY_CLICKED, BY_GAINED, BY_CLICKS = range(4)
_AT_A_CUT = {
    "ndcg": (NDCG, BY_CLICKED),
    "map": (AP, BY_CLICKED),
    "precision": (HITS, BY_LISTS),
    "recall": (RECALL, BY_CLICKED),
    "hit_rate": (HIT, BY_LISTS),
    "click_hit_rate": (HITS, BY_CLICKS),
}


@dataclass(frozen=True, slots=True)
class Averages:
    """A user's row: first the denominators (`kinds`), then the sum of each metric.

    By metric: its term of a list (see `list_terms`), a divisor of that term, and the row's cell with the denominator
    of its sum.
    """

    names: tuple[str, ...]
    kinds: tuple[int, ...]
    term: tuple[int, ...]
    per: tuple[int, ...]
    below: tuple[int, ...]

    @property
    def cells(self) -> int:
        """Cells of a row."""
        return len(self.kinds) + len(self.names)


def averages_of(names: tuple[str, ...], cuts: tuple[int, ...], gain: str) -> Averages | None:
    """The rows for these metrics by user; None without metrics."""
    found = [_average(name, cuts, gain) for name in names]
    if not found:
        return None
    kinds = tuple(sorted({kind for *_, kind in found}))
    term, per = tuple(term for term, *_ in found), tuple(per for _, per, _ in found)
    return Averages(names, kinds, term, per, tuple(kinds.index(kind) for *_, kind in found))


def _average(name: str, cuts: tuple[int, ...], gain: str) -> tuple[int, int, int]:
    if name in ("mrr", "map"):
        return TERMS_A_CUT * len(cuts) + (name == "map"), 1, BY_CLICKED
    metric, k = name.rsplit("_", 1)
    term, kind = _AT_A_CUT[metric]
    graded = metric == "ndcg" and gain != "click"
    return (
        TERMS_A_CUT * cuts.index(int(k)) + term,
        int(k) if metric == "precision" else 1,
        BY_GAINED if graded else kind,
    )
