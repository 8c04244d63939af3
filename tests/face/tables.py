"""Tables of impressions for the tests of the face."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

START = 1_700_000_000_000


def impressions(n: int = 20_000, seed: int = 0, *, ties: bool = False, hours: float = 3.0) -> pa.Table:
    """n labelled impressions in order of time: two versions, two slice dimensions, requests, a second score."""
    rng = np.random.default_rng(seed)
    users = rng.normal(0, 0.5, 700)
    user = rng.integers(0, 700, n)
    logit = rng.normal(-2, 1, n)
    p = 1 / (1 + np.exp(-logit))
    clicked = rng.random(n) < 1 / (1 + np.exp(-logit - users[user]))
    other = 1 / (1 + np.exp(-(logit + rng.normal(0, 1, n))))
    if ties:
        p, other = p.round(1), other.round(1)
    ts = np.sort(rng.integers(0, int(hours * 3_600_000), n)) + START
    return pa.table(
        {
            "impression_id": [f"imp-{i}" for i in range(n)],
            "ts": ts,
            "user_id": [f"user-{i}" for i in user],
            "request_id": [f"r-{i // 5}" if i % 7 else None for i in range(n)],
            "item_id": [f"item-{i}" for i in rng.integers(0, 300, n)],
            "model_version": [("v1", "v2")[i] for i in rng.integers(0, 2, n)],
            "pclick": p,
            "other": other,
            "clicked": clicked.astype(np.int8),
            "slices.country": [("de", "us", None, "fr")[i] for i in rng.integers(0, 4, n)],
            "slices.age": rng.integers(0, 80, n),
        }
    )


def as_clicks(table: pa.Table, seed: int = 0) -> tuple[pa.Table, pa.Table]:
    """(impressions without labels, clicks), both in the order in which they come: some behind, twice or without impression."""
    rng = np.random.default_rng(seed)
    clicked = (
        table.filter(table["clicked"])
        if pa.types.is_boolean(table["clicked"].type)
        else table.filter(pa.compute.equal(table["clicked"], 1))
    )
    ids, ts = clicked["impression_id"].to_pylist(), clicked["ts"].to_numpy()
    when = ts + rng.exponential(120_000, ts.size).astype(np.int64) + 1
    rows = [
        *zip(ids, when.tolist(), strict=True),
        *zip(ids[::20], (when[::20] + 5).tolist(), strict=True),
        ("never", START),
    ]
    rows.sort(key=lambda row: row[1])
    clicks = pa.table({"impression_id": [i for i, _ in rows], "ts": [t for _, t in rows]})
    return table.drop_columns(["clicked"]), clicks
