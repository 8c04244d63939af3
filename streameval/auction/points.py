"""The operating points of the settings, and the names under which their sums are kept."""

from __future__ import annotations

import hashlib

import numpy as np

from streameval.auction.rerun import AUCTION_CELLS, CLICK_SCALE, USER_GROUPS, OperatingPoints
from streameval.settings.measures import Auction
from streameval.sketches.tally import Tally, reals


def operating_points(settings: Auction) -> OperatingPoints:
    """Returns the settings as the auction's kernel reads them."""
    return OperatingPoints(
        settings.mainline,
        settings.slots,
        settings.squash,
        np.array([point.mainline_reserve for point in settings.points]),
        np.array([point.sidebar_reserve for point in settings.points]),
    )


def auction_tallies(settings: Auction) -> tuple[Tally, ...]:
    """Returns the tallies of every operating point, in order: its auctions, then the effects through the tables."""
    scales = reals("clicks", "mainline_clicks", scale=CLICK_SCALE)
    cells = tuple(f"{name}_{group}" for group in range(USER_GROUPS) for name in ("clicks", "mainline_clicks"))
    through = reals(*cells, scale=CLICK_SCALE)
    return tuple(
        tally
        for name in tally_names(settings)
        for tally in (Tally(name, AUCTION_CELLS, scales=scales), Tally(through_name(name), cells, False, through))
    )


def through_name(name: str) -> str:
    """Returns the name of the tally of effects through the tables, for an operating point's tally."""
    return f"{name}_tables"


def tally_names(settings: Auction) -> list[str]:
    """Returns names with everything that the sums depend on: another reserve, or a longer history, gives other sums."""
    rules = settings.model_dump(mode="json", exclude={"points", "memory"})
    return [
        "auction_" + hashlib.sha256(repr((sorted(rules.items()), *point)).encode()).hexdigest()[:16]
        for point in ((one.mainline_reserve, one.sidebar_reserve) for one in settings.points)
    ]
