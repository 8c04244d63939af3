"""Answers about replayed auctions."""

from __future__ import annotations

from streameval.auction.rows import NUMBERS
from streameval.server.api.schemas.shape import Shape, Stamped
from streameval.server.api.shapes import plus


@plus(dict.fromkeys(NUMBERS, float | None))
class AuctionRow(Shape):
    """One version at one operating point in one window: yields and ads are by request.

    `matched_x`: with as many mainline ads as the version `matched_to` has at that operating point. `reasons` says why a number is null.
    """

    model: str
    version: str
    source: str
    window: str
    window_start: str | None
    window_end: str | None
    matched_to: str
    point: str
    mainline_reserve: float
    sidebar_reserve: float
    requests: int
    reasons: dict[str, str]


class Auctions(Stamped, Shape):
    """Replayed auctions; `skipped`: requests that were not, by reason."""

    skipped: dict[str, int]
    auctions: list[AuctionRow]
