"""The layout of a ledger's rows, and of those of its windows: what further metrics of comparisons add to them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from streameval.compare.ledger.exposed_lists import ExposedCut
from streameval.compare.ledger.list_rows import NO_LISTS, ListMetrics
from streameval.compare.ledger.partial import PAUC, pauc_piece
from streameval.compare.ledger.pieces import NO_PIECES, RowPiece, RowPieces
from streameval.compare.ledger.policy import OWN_POLICY, policy_piece
from streameval.compare.ledger.snips import SNIPS, snips_piece
from streameval.compare.ledger.values import VALUE, value_piece
from streameval.compare.reading.further import cut_of

CLICK_YIELD = "click_yield"
WHOLE_CURVE = (0.0, 1.0)


@dataclass(frozen=True, slots=True)
class RowShape:
    """`pieces`: in every row by hour; `lists`: in every row of a window of users' AUC.

    `requests`: whether windows have rows of requests, too. `operating_range`: false positive rates of the partial AUC.
    """

    pieces: RowPieces = NO_PIECES
    lists: ListMetrics = NO_LISTS
    requests: bool = False
    operating_range: tuple[float, float] = WHOLE_CURVE


PLAIN_ROWS = RowShape()


def shape_of(
    more: Sequence[str],
    min_propensity: float,
    operating_range: tuple[float, float] = WHOLE_CURVE,
    guard_cut: int | None = None,
) -> RowShape:
    """Returns the layout for these further metrics; some need no sums of their own. `guard_cut`: the K of the Simpson
    guard's NDCG.
    """
    made: dict[str, Callable[[], RowPiece]] = {
        SNIPS: lambda: snips_piece(min_propensity),
        VALUE: value_piece,
        PAUC: lambda: pauc_piece(*operating_range),
        OWN_POLICY: lambda: policy_piece(min_propensity),
    }
    pieces = [made[metric]() for metric in more if metric in made]
    guard = None if guard_cut is None else ExposedCut(guard_cut, min_propensity)
    lists = ListMetrics([m for m in more if m == "mrr" or cut_of(m) is not None], guard)
    return RowShape(RowPieces(pieces), lists, CLICK_YIELD in more, operating_range)
