"""Columns of a labelled table that have the names of event fields, and that only a log of events is read for."""

from __future__ import annotations

import logging
from collections.abc import Collection

import pyarrow as pa

log = logging.getLogger(__name__)

IF_SHOWN = "shown"
_OF_LOGS = ("predictions", "policies", "propensity", "position")
_NOT = {"false", "0", "0.0"}  # as any format writes it


def tell_unread(known: Collection[str], read: Collection[str]) -> None:
    """Logs which of the columns `known` are not read."""
    names = sorted(name for name in known if name not in read and name.partition(".")[0] in _OF_LOGS)
    if names:
        log.warning(
            "columns %s are not read of a table with labels: versions in shadow are several `score` columns; for the rest use "
            "`streameval replay`, or write the events as JSON lines",
            ", ".join(names[:20]),
        )


def check_shown(table: pa.Table) -> None:
    """Raises ValueError if rows are candidates that were not shown: a table has impressions."""
    values = table[IF_SHOWN].unique().to_pylist() if IF_SHOWN in table.column_names else []
    if any(str(value).lower() in _NOT for value in values):
        raise ValueError(
            "shown: rows with shown = false are candidates, and would count as impressions without a click; leave them out, or "
            "give the events to `streameval replay`"
        )
