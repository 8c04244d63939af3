"""A model's traffic hour by hour, as rows of the ledger, with users, varying days, and versions of known quality."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numba
import numpy as np
from numpy.typing import NDArray

from streameval.compare.ledger.sums import SCALARS, WIDTH
from streameval.events.batch import Series
from streameval.sketches import blocks as cells
from streameval.sketches.blocks import BLOCKS, SCALE, SERIES_CELLS

OLD, NEW = Series("m", "v1", "logged"), Series("m", "v2", "logged")
ONLINE = Series("ftrl", "online", "online")
USERS, HOURLY = 3000, 2500
SIGNAL = 0.7**2 + 0.9**2
GRID = np.linspace(-14.0, 0.0, 1400)  # of log p
DAY_HOURS = 24
GUIDES = 4096
Key = tuple[Series, Series | None]


@dataclass(frozen=True)
class Quality:
    """The variance of a version's noise around the true logit, and the factor on its pClick."""

    noise: float = 1.0
    scale: float = 1.0


GOOD = Quality()
BAD = Quality(2.1)  # NE +2.5%, AUC -0.03


class Picks:
    """Draws numbers with given probabilities: the same as NumPy's `choice` (a search in the cumulative sum) in a fifth of its time."""

    def __init__(self, chance: NDArray[np.float64]) -> None:
        self._upto = chance.cumsum()
        self._upto /= self._upto[-1]
        # where to start searching: the number at every 4096th of the range
        self._first = self._upto.searchsorted(np.arange(GUIDES) / GUIDES, side="right")

    def at(self, drawn: NDArray[np.float64]) -> NDArray[np.int64]:
        """The numbers for uniform draws from [0, 1)."""
        return _pick(self._upto, self._first, drawn)


@numba.njit(cache=True)
def _pick(upto: NDArray[np.float64], first: NDArray[np.int64], drawn: NDArray[np.float64]) -> NDArray[np.int64]:
    out = np.empty(drawn.size, np.int64)
    for i in range(drawn.size):
        at = first[int(drawn[i] * first.size)]
        while upto[at] <= drawn[i]:
            at += 1
        out[i] = at
    return out


class Days:
    """Hours in order. Days vary in odds (5%) and in the spread of items (`mix`, relative), unknown to the versions; on two days of
    the week items spread more by `weekend`.
    """

    def __init__(self, seed: int, mix: float = 0.03, base: float = -3.0, weekend: float = 0.0) -> None:
        self._rng = rng = np.random.default_rng(seed)
        activity = np.exp(rng.standard_normal(USERS))
        self._picks = Picks(activity / activity.sum())
        self._user = 0.7 * rng.standard_normal(USERS)
        self._block = rng.integers(0, BLOCKS, USERS)
        self._mix, self._base, self._day, self._odds, self._spread = mix, base, -1, 0.0, 1.0
        self._weekend = weekend
        self._curves: dict[tuple[Quality, float], NDArray[np.float64]] = {}

    def hour(
        self,
        hour: int,
        served: Series,
        quality: Quality,
        *,
        swing: float = 1.0,
        knows: bool = False,
        online: bool | Quality = False,
    ) -> dict[Key, NDArray[np.int64]]:
        """Rows of an hour. `swing` multiplies all odds; `knows`: so do the versions. `online`: the quality of a model that learns."""
        rng = self._rng
        if hour // 24 != self._day:
            self._day = hour // 24
            self._odds, self._spread = 0.05 * rng.standard_normal(), float(np.exp(self._mix * rng.standard_normal()))
            self._spread *= 1.0 + self._weekend * (self._day % 7 >= 5)
        user, truth, clicked = self._draw(int(rng.poisson(HOURLY)), hour, self._odds + np.log(swing), self._spread)
        told = np.log(swing) if knows else 0.0
        p = self._pclick(truth, quality, hour, told)
        rows: dict[Key, NDArray[np.int64]] = {(served, None): self._row(user, clicked, quality, p, told)}
        if online:
            other = online if isinstance(online, Quality) else Quality(1.2)
            q = self._pclick(truth, other, hour, told)
            rows[served, ONLINE] = self._pair(user, clicked, quality, p, other, q, told)
        return rows

    def _draw(self, n: int, hour: int, odds: float, spread: float) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
        rng = self._rng
        user = self._picks.at(rng.random(n))
        truth = spread * (self._user[user] + 0.9 * rng.standard_normal(n))
        logit = self._base + 0.25 * np.sin(hour * np.pi / 12) + odds + truth
        return user, truth, rng.random(n) < 1 / (1 + np.exp(-logit))

    def _pclick(self, truth: NDArray[Any], quality: Quality, hour: int, told: float) -> NDArray[np.float64]:
        """The approximately calibrated pClick given what a version sees, with new noise for each impression."""
        seen = truth + np.sqrt(quality.noise) * self._rng.standard_normal(truth.size)
        shrink = SIGNAL / (SIGNAL + quality.noise)
        left = SIGNAL * (1 - shrink)
        logit = self._base + 0.25 * np.sin(hour * np.pi / 12) + told + shrink * seen + left / 2
        return np.clip(quality.scale / (1 + np.exp(-logit)), 1e-6, 1 - 1e-6)

    def _curve(self, quality: Quality, told: float) -> NDArray[np.float64]:
        """[F0, S1 less the AUC] over GRID, from a sample of hours."""
        if (quality, told) not in self._curves:
            parts = []
            for hour in range(24):
                _, truth, clicked = self._draw(4000, hour, told, 1.0)
                parts.append((np.log(self._pclick(truth, quality, hour, told)), clicked))
            s, clicked = np.concatenate([a for a, _ in parts]), np.concatenate([b for _, b in parts])
            below = np.searchsorted(np.sort(s[~clicked]), GRID) / (~clicked).sum()
            above = 1 - np.searchsorted(np.sort(s[clicked]), GRID) / clicked.sum()
            auc = float(np.interp(s[clicked], GRID, below).mean())
            self._curves[quality, told] = np.stack([below, above - auc])
        return self._curves[quality, told]

    def _placed(self, quality: Quality, p: NDArray[Any], clicked: NDArray[Any], told: float) -> NDArray[np.float64]:
        curves = self._curve(quality, told)
        at = np.clip((np.log(p) - GRID[0]) / (GRID[1] - GRID[0]), 0, GRID.size - 1)
        low = np.minimum(at.astype(np.int64), GRID.size - 2)  # the grid is even: a tenth of the time of np.interp
        side = 1 - clicked.astype(np.int64)
        return curves[side, low] + (at - low) * (curves[side, low + 1] - curves[side, low])

    def _row(
        self, user: NDArray[Any], clicked: NDArray[Any], quality: Quality, p: NDArray[Any], told: float
    ) -> NDArray[np.int64]:
        out, table = _empty()
        block, placed = self._block[user], self._placed(quality, p, clicked, told)
        _put(table, block, cells.N, np.full(p.size, 1 / SCALE))
        _put(table, block, cells.Y, clicked / SCALE)
        _put(table, block, cells.P, p)
        _put(table, block, cells.L, _loss(p, clicked))
        _put(table, block, cells.PHI1, placed * clicked)
        _put(table, block, cells.PHI0, placed * ~clicked)
        return out

    def _pair(
        self,
        user: NDArray[Any],
        clicked: NDArray[Any],
        quality: Quality,
        p: NDArray[Any],
        other: Quality,
        q: NDArray[Any],
        told: float,
    ) -> NDArray[np.int64]:
        out, table = _empty()
        block = self._block[user]
        placed = self._placed(other, q, clicked, told) - self._placed(quality, p, clicked, told)
        _put(table, block, cells.PAIR_N, np.full(p.size, 1 / SCALE))
        _put(table, block, cells.PAIR_Y, clicked / SCALE)
        _put(table, block, cells.D, _loss(q, clicked) - _loss(p, clicked))
        _put(table, block, cells.PAIR_L, _loss(p, clicked))
        _put(table, block, cells.PAIR_P, p)
        _put(table, block, cells.PAIR_P_OTHER, q)
        _put(table, block, cells.PAIR_PHI1, placed * clicked)
        _put(table, block, cells.PAIR_PHI0, placed * ~clicked)
        return out


def _empty() -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    out = np.zeros(WIDTH, np.int64)
    return out, out[:SCALARS].reshape(BLOCKS, SERIES_CELLS)


def _put(table: NDArray[Any], block: NDArray[Any], cell: int, values: NDArray[Any]) -> None:
    table[:, cell] = np.rint(np.bincount(block, values, BLOCKS) * SCALE)


def _loss(p: NDArray[Any], clicked: NDArray[Any]) -> NDArray[np.float64]:
    return -np.where(clicked, np.log(p), np.log1p(-p))
