"""Impressions with two versions' scores, and the pair rows that they make."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from streameval.sketches.blocks import SCALE, BlockSums


def fixed(x: NDArray[np.float64]) -> NDArray[np.int64]:
    return np.rint(x * SCALE).astype(np.int64)


def draw(rng: np.random.Generator, n: int, noise: float = 0.3) -> tuple[NDArray[np.float64], ...]:
    """block, label, two pClicks."""
    logit = rng.normal(-2.5, 1.0, n)
    y = (rng.random(n) < 1 / (1 + np.exp(-logit))).astype(np.float64)
    p = 1 / (1 + np.exp(-(logit + noise * rng.normal(size=(2, n)))))
    return rng.integers(0, 64, n), y, p[0], p[1]


def pair_rows(
    block: NDArray[np.int64], y: NDArray[np.float64], p: NDArray[np.float64], q: NDArray[np.float64]
) -> BlockSums:
    """(server p, other q), with simple reference curves: F0(s) = s, S1(s) = 1 - s, both AUC_ref 1/2."""
    loss, other = (-np.log(np.where(y == 1, s, 1 - s)) for s in (p, q))
    d = other - loss
    phi1, phi0 = np.where(y == 1, q - p, 0.0), np.where(y == 1, 0.0, (1 - q) - (1 - p))
    columns = [np.ones_like(y), y, d, loss, p, q, phi1, phi0]
    blocks = np.zeros((64, 8), np.int64)
    for c, x in enumerate(columns):
        np.add.at(blocks[:, c], block, x.astype(np.int64) if c < 2 else fixed(x))
    server = np.where(y == 1, p, 0.0), np.where(y == 1, 0.0, 0.5 - p)
    larger = np.maximum(p, q)
    promised = larger * (1 - larger) * (np.log(p / (1 - p)) - np.log(q / (1 - q))) ** 2
    terms = (d * d, phi1 * phi1, phi0 * phi0, d, d * d, np.zeros(1), *server, promised)
    scalars = np.array([fixed(x).sum() for x in terms], np.int64)
    return BlockSums(blocks, scalars)


def ledger_row(some: BlockSums) -> NDArray[np.int64]:
    """As the ledger keeps it."""
    return np.concatenate((some.blocks.ravel(), some.scalars))


def plus(a: BlockSums, b: BlockSums, sign: int = 1) -> BlockSums:
    return BlockSums(a.blocks + sign * b.blocks, a.scalars + sign * b.scalars)
