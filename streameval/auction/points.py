"""The operating points of the settings, and the names that their sums are kept under."""

from __future__ import annotations

import hashlib

import numpy as np

from streameval.auction.rerun import AUCTION_CELLS, CLICK_SCALE, USER_GROUPS, OperatingPoints
from streameval.settings.measures import Auction
from streameval.sketches.tally import Tally, reals


def operating_points(settings: Auction) -> OperatingPoints:
    """The settings as the auction's kernel reads them."""
    return OperatingPoints(
        settings.mainline,
        settings.slots,
        settings.squash,
        np.array([point.mainline_reserve for point in settings.points]),
        np.array([point.sidebar_reserve for point in settings.points]),
    )


def auction_tallies(settings: Auction) -> tuple[Tally, ...]:
    """The tallies of every operating point, in their order: of its auctions, then of what comes through the tables."""
    scales = reals("clicks", "mainline_clicks", scale=CLICK_SCALE)
    cells = tuple(f"{name}_{group}" for group in range(USER_GROUPS) for name in ("clicks", "mainline_clicks"))
    through = reals(*cells, scale=CLICK_SCALE)
    return tuple(
        tally
        for name in tally_names(settings)
        for tally in (Tally(name, AUCTION_CELLS, scales=scales), Tally(through_name(name), cells, False, through))
    )


def through_name(name: str) -> str:
    """The tally of what comes through the tables, beside that of an operating point."""
    return f"{name}_tables"


def tally_names(settings: Auction) -> list[str]:
    """Names that say all that the sums depend on: another reserve, or a longer history, and they are other sums."""
    rules = settings.model_dump(mode="json", exclude={"points", "memory"})
    return [
        "auction_" + hashlib.sha256(repr((sorted(rules.items()), *point)).encode()).hexdigest()[:16]
        for point in ((one.mainline_reserve, one.sidebar_reserve) for one in settings.points)
    ]
