"""Answers about strata of propensity."""

from __future__ import annotations

from streameval.server.api.schemas.results import Covered, Stratum, Weightings
from streameval.server.api.schemas.shape import Named, Stamped


class StrataTable(Named):
    """The strata of one result; `reason` says why there are none: "not_configured", or "no_propensities"."""

    window: str
    impressions: int
    clicks: int
    reason: str | None
    strata: list[Stratum]
    stratified: dict[str, Weightings]


class Strata(Stamped):
    """Tables of strata; `matched` counts them before `limit`."""

    range: Covered | None = None
    matched: int
    truncated: bool
    tables: list[StrataTable]
