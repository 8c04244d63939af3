"""Pages of users, sorted by a metric, in one pass over the columns and without sorting all of them.

A cursor holds the sort key and the hash of the last user shown, so paging stays right while the numbers move: a page
starts behind that place in the order of its own snapshot. Users whose metric is undefined come last; ties go by hash.
"""

from __future__ import annotations

import base64
import binascii
import json
import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streameval.events.batch import Series
from streameval.metrics.users import user_auc, user_calibration, user_log_loss
from streameval.results.snapshot import UserColumns
from streameval.server.api.queries import UsersQuery
from streameval.server.http.problems import bad_parameter


def page(users: UserColumns, series: Series, query: UsersQuery) -> tuple[list[dict[str, Any]], str | None]:
    """(the users of this page, the cursor of the next page or None)."""
    key = sort_key(users, query.sort, descending=query.order == "desc")
    left = np.arange(len(users))
    if query.cursor is not None:
        last_key, last_user = _read_cursor(query.cursor, series, query)
        left = np.flatnonzero((key > last_key) | ((key == last_key) & (users.user > np.uint64(last_user))))
    shown = first_in_order(key, left, query.limit)
    cursor = None
    if len(shown) < len(left):
        last = shown[-1]
        cursor = _write_cursor(series, query, float(key[last]), int(users.user[last]))
    return rows(users, shown), cursor


def sort_key(users: UserColumns, sort: str, *, descending: bool) -> NDArray[np.float64]:
    """A column that sorts smallest first; +inf where the metric is undefined."""
    column = {
        "impressions": lambda: users.impressions.astype(np.float64),
        "clicks": lambda: users.clicks.astype(np.float64),
        "auc": lambda: user_auc(users.impressions, users.clicks, users.pairs),
        "log_loss": lambda: user_log_loss(users.impressions, users.log_loss_nats),
        "log_loss_nats": lambda: users.log_loss_nats.astype(np.float64),
        "calibration": lambda: user_calibration(users.clicks, users.predicted_clicks),
    }[sort]()
    key = -column if descending else column
    return np.where(np.isfinite(key), key, np.inf)


def first_in_order(key: NDArray[np.float64], rows: NDArray[np.intp], count: int) -> NDArray[np.intp]:
    """The first `count` of `rows` (increasing) by key, ties by row. Linear in the rows."""
    if len(rows) > count:
        keys = key[rows]
        last = np.partition(keys, count - 1)[count - 1]
        below, ties = rows[keys < last], rows[keys == last]
        rows = np.sort(np.concatenate((below, ties[: count - len(below)])))
    return rows[np.argsort(key[rows], kind="stable")]


def rows(users: UserColumns, at: NDArray[np.intp]) -> list[dict[str, Any]]:
    """The users in these rows as the API shows them."""
    impressions, clicks = users.impressions[at], users.clicks[at]
    auc = user_auc(impressions, clicks, users.pairs[at])
    log_loss = user_log_loss(impressions, users.log_loss_nats[at])
    calibration = user_calibration(clicks, users.predicted_clicks[at])
    out = []
    for i, row in enumerate(at.tolist()):
        n, p = int(impressions[i]), int(clicks[i])
        metrics = {
            "ctr": p / n if n else None,
            "mean_pclick": float(users.predicted_clicks[row]) / n if n else None,
            "auc": _or_none(auc[i]),
            "log_loss": _or_none(log_loss[i]),
            "calibration": _or_none(calibration[i]),
        }
        why = "no_impressions" if n == 0 else "no_clicks" if p == 0 else "no_non_clicks"
        out.append(
            {
                "user": f"{int(users.user[row]):016x}",
                "impressions": n,
                "clicks": p,
                "predicted_clicks": float(users.predicted_clicks[row]),
                "log_loss_nats": float(users.log_loss_nats[row]),
                **metrics,
                "reasons": {name: why for name, value in metrics.items() if value is None},
            }
        )
    return out


def _or_none(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None


def _belongs(series: Series, query: UsersQuery) -> list[str]:
    return [*series[: 4 if series.objective else 3], query.sort, query.order]


def _write_cursor(series: Series, query: UsersQuery, key: float, user: int) -> str:
    parts = [*_belongs(series, query), key.hex(), f"{user:x}"]
    return base64.urlsafe_b64encode(json.dumps(parts).encode()).decode().rstrip("=")


def _read_cursor(cursor: str, series: Series, query: UsersQuery) -> tuple[float, int]:
    try:
        text = base64.urlsafe_b64decode(cursor.encode("ascii") + b"=" * (-len(cursor) % 4))
        *belongs, key, user = json.loads(text)
        last_key, last_user = float.fromhex(key), int(user, 16)
        if math.isnan(last_key) or not 0 <= last_user < 2**64:
            raise ValueError
    except (ValueError, TypeError, OverflowError, RecursionError, binascii.Error):
        raise bad_parameter(
            "cursor", cursor, "not a cursor; follow the link `next` of the page before, which has one"
        ) from None
    if belongs != _belongs(series, query):
        raise bad_parameter("cursor", cursor, "belongs to another series, sort or order; start again without it")
    return last_key, last_user
