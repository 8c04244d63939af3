"""A complete log replayed, both as history and as traffic: the output of `streameval auction`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from streameval.auction.frontier import Frontier, frontier_of
from streameval.auction.gather import Book
from streameval.auction.history import ClickCurves, count_pairs, curves_of, tables_of
from streameval.auction.points import operating_points
from streameval.auction.rerun import run
from streameval.auction.rows import named, rows
from streameval.auction.spread import through_tables
from streameval.events.batch import Series
from streameval.settings.measures import Auction

SCHEMA = "streameval/auction/1"


@dataclass(frozen=True, slots=True)
class AsServed:
    """What the log itself says about the requests that one version served."""

    requests: int
    click_yield: float
    mainline_click_yield: float
    mainline_ads: float


@dataclass(frozen=True, slots=True)
class Replayed:
    """Requests replayed, by version (`series`) and operating point (`settings.points`)."""

    settings: Auction
    series: tuple[Series, ...]
    requests: int
    skipped: dict[str, int]
    curves: ClickCurves
    reference: int  # number of the version that served most requests, whose mainline ads are matched
    frontier: Frontier
    observed: dict[int, AsServed]  # by number of the version that served
    invalid: dict[str, int]  # events that were rejected, and are in no request, by reason


def replayed(book: Book, settings: Auction, names: Sequence[Series], invalid: Mapping[str, int]) -> Replayed:
    """Replays the requests of a log; `names`: the series by code; `invalid`: rejected events, by reason."""
    points = operating_points(settings)
    counts = count_pairs(book.pair, book.position, book.clicked, book.pairs, settings.slots)
    curves = curves_of(counts, settings.slots, settings.curve)
    tables = tables_of(counts, curves)
    sums = run(book.auctions, tables, points)
    served = np.bincount(book.served[book.served >= 0], minlength=len(book.versions))
    reference = int(np.argmax(served))
    return Replayed(
        settings=settings,
        series=tuple(names[code] for code in book.versions),
        requests=book.auctions.block.size,
        skipped=book.skipped,
        curves=curves,
        reference=reference,
        frontier=frontier_of(sums, points, reference, through_tables(book, tables, points)),
        observed={v: _observed(book, v, settings.mainline) for v in np.flatnonzero(served).tolist()},
        invalid=dict(invalid),
    )


def counted(by_reason: Mapping[str, int]) -> str:
    """In words; empty where nothing was counted."""
    return ", ".join(f"{reason} {count:,}" for reason, count in by_reason.items() if count)


def _observed(book: Book, version: int, mainline: int) -> AsServed:
    requests = int(np.count_nonzero(book.served == version))
    own = book.served[book.request] == version
    above = own & (book.position < mainline)
    counts = (book.clicked[own].sum(), book.clicked[above].sum(), np.count_nonzero(above))
    return AsServed(requests, *(float(count) / requests for count in counts))


def as_json(found: Replayed) -> dict[str, Any]:
    """Returns everything; undefined numbers are null."""
    settings, curves = found.settings, found.curves
    return {
        "schema": SCHEMA,
        "requests": found.requests,
        "skipped": dict(found.skipped),
        "invalid": dict(found.invalid),
        "settings": settings.model_dump(mode="json"),
        "positions": [
            {
                "position": k,
                "impressions": int(curves.impressions[k]),
                "clicks": int(curves.clicks[k]),
                "curve": float(curves.curve[k]),
                "reference_ctr": float(curves.reference[k]),
            }
            for k in range(settings.slots)
        ],
        "observed": [
            {
                **named(found.series[v]),
                "requests": one.requests,
                "click_yield": one.click_yield,
                "mainline_click_yield": one.mainline_click_yield,
                "mainline_ads": one.mainline_ads,
            }
            for v, one in found.observed.items()
        ],
        "matched_to": named(found.series[found.reference]),
        "results": rows(found.frontier, found.series, settings.points),
    }


_COLUMNS = (
    "version",
    "point",
    "mainline ads",
    "click yield",
    "+-",
    "mainline",
    "replayed",
    "matched yield",
    "matched mainline",
)


def as_text(found: Replayed) -> str:
    """Returns the frontier as a table, followed by what was left out."""
    models = {series.model for series in found.series}
    names = [one.version if len(models) == 1 else f"{one.model} {one.version}" for one in found.series]
    rows: list[tuple[str, ...]] = [_COLUMNS]
    for v, name in enumerate(names):
        for p, point in enumerate(found.settings.points):
            m, matched = found.frontier.measures, found.frontier.matched
            mark = "*" if v == found.reference else ""
            of_yield = (m["click_yield"].value, m["click_yield"].stderr, m["mainline_click_yield"].value)
            of_matched = (matched["click_yield"].value, matched["mainline_click_yield"].value)
            numbers = (m["mainline_ads"].value, *of_yield, m["replayed_share"].value, *of_matched)
            cells = ["-" if np.isnan(one[v, p]) else f"{one[v, p]:.4f}" for one in numbers]
            rows.append((f"{name}{mark}", point.name, *cells))
    widths = [max(len(row[i]) for row in rows) for i in range(len(_COLUMNS))]
    lines = ["  ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)).rstrip() for row in rows]
    curve = ", ".join(f"{x:.3f}" for x in found.curves.curve)
    lines += ["", f"{found.requests:,} requests; click curve ({found.settings.curve}) {curve}"]
    for v, one in found.observed.items():
        lines.append(
            f"observed under {names[v]}: {one.requests:,} requests, click yield {one.click_yield:.4f}, "
            f"mainline {one.mainline_click_yield:.4f}, mainline ads {one.mainline_ads:.4f}"
        )
    left_out = counted(found.skipped)
    if left_out:
        lines.append(f"not replayed: {left_out}")
    if found.invalid:
        lines.append(f"dead letters: {counted(found.invalid)}; requests are replayed without them")
    return "\n".join([*lines, f"matched: at the mainline ads of * {names[found.reference]} at each operating point"])
