"""The columns of parts that impressions belong to."""

from __future__ import annotations

import numpy as np

from streameval.compare.ledger.sums import values_of

RADIX, WIDTH = 7, 11


def test_columns_are_those_of_every_value_and_of_the_bucket_of_the_logged_score() -> None:
    rng = np.random.default_rng(1)
    n, edges = 1_300, np.array([0.1, 0.25, 0.5])
    values = rng.integers(0, RADIX, (n, 2))
    row = np.flatnonzero(rng.random(n) < 0.9).astype(np.int32)  # the others have no logged score
    p = rng.choice([0.0, 0.1, 0.2, 0.25, 0.4, 0.5, 1.0], row.size)
    out = np.full((n, 3), -1, np.int32)
    values_of(values[:, 0] + RADIX * values[:, 1], row, p, edges, RADIX, WIDTH, out)
    bucket = np.full(n, -1)
    bucket[row] = 2 * WIDTH + np.searchsorted(edges, p, side="right")
    assert out.tolist() == np.column_stack([values[:, 0], WIDTH + values[:, 1], bucket]).tolist()
