"""A simulated world of users with a known truth; it generates a week of block sums in about two seconds.

logit P(click) = b(t) + shock(t) + user + item + session. A version sees user + item through noise, half of which is constant
for a user, and predicts the exactly calibrated P(click | what it sees, time of day); the shocks are unknown to versions. A worse
version has more noise of its own; a scaled one multiplies its pClick. 60,000 users with log-normal activity have sessions of
about 5 impressions, about 300 a minute on average, with a diurnal swing of 60% in traffic and of 25% in odds; odds also have
a daily shock (5%) and an hourly one (3%, autoregressive), and items spread more at weekends. The label is "clicked within
the attribution window"; `arrived` < 1 uses labels before that, when only this share of their clicks has arrived.
"""

from __future__ import annotations

from dataclasses import dataclass

import numba
import numpy as np
from numpy.typing import NDArray

from streameval.sketches import blocks as cells
from streameval.sketches.blocks import SCALE, BlockSums

DAY = 1440  # minutes
USERS = 60_000
SESSIONS = 60.0  # a minute
MEAN_LENGTH, MAX_LENGTH = 5, 20
SD_USER, SD_ITEM, SD_SESSION = 0.7, 0.9, 0.2
NOISE_SHARED, NOISE_OWN = 0.9, 0.1
BASE, SWING_ODDS, SWING_TRAFFIC = -4.0, 0.25, 0.6
SD_DAY, SD_HOUR, RHO_HOUR = 0.05, 0.03, 0.7
WEEKEND = 1.04
_LOWEST, _BINS = -9.5, 2048  # of the grid of log p of the reference curves
_INPUT_LOW, _INPUT_HIGH, _INPUTS = -14.0, 6.0, 4001


@dataclass(frozen=True)
class Version:
    """A model: the variance of its own noise, and the factor on its pClick."""

    noise: float = NOISE_OWN
    scale: float = 1.0

    def shrink(self) -> float:
        """The coefficient of the best linear prediction of user + item from what the model sees."""
        signal = SD_USER**2 + SD_ITEM**2
        return signal / (signal + NOISE_SHARED + self.noise)

    def table(self) -> NDArray[np.float64]:
        """pClick by b(t) + shrunk input, on a grid: the mean of the sigmoid over what the model does not see."""
        signal = SD_USER**2 + SD_ITEM**2
        noise = NOISE_SHARED + self.noise
        spread = np.sqrt(signal * noise / (signal + noise) + SD_SESSION**2)
        nodes, weights = np.polynomial.hermite_e.hermegauss(41)
        logits = np.linspace(_INPUT_LOW, _INPUT_HIGH, _INPUTS)[:, None] + spread * nodes
        p = (weights / weights.sum() / (1.0 + np.exp(-logits))).sum(axis=1)
        return np.clip(p * self.scale, 1e-7, 1.0 - 1e-7)


BASELINE = Version()
SCENARIOS = {
    "equal": Version(),
    "AUC -0.005": Version(0.219),
    "log loss +1%": Version(0.438),
    "AUC -0.02": Version(0.638),
    "pClick x1.05": Version(scale=1.05),
    "pClick x1.2": Version(scale=1.2),
}


@dataclass(frozen=True)
class Minutes:
    """A day, by minute: pair rows, GAUC rows (by session), served rows of [old on all, new on all, old on arm A, new on arm B]."""

    pair: BlockSums  # [1440, 64, 8], [1440, 8]
    gauc: BlockSums  # [1440, 64, 2], [1440, 4]
    served: BlockSums  # [4, 1440, 64, 8], [4, 1440, 3]


class World:
    """One replication: its users are fixed; days are drawn in order."""

    def __init__(self, seed: int, shocks: int | None = None) -> None:
        """`shocks`: a separate seed for the shocks of days and hours, if runs must share them."""
        self._rng = rng = np.random.default_rng(seed)
        self._shock_rng = rng if shocks is None else np.random.default_rng(shocks)
        activity = np.exp(rng.standard_normal(USERS))
        self._cumulative = np.cumsum(activity / activity.sum())
        self._users = rng.standard_normal((4, USERS)) * np.array([[SD_USER], [1.0], [1.0], [1.0]])
        self._block = rng.integers(0, cells.BLOCKS, USERS)
        self._arm_draw = rng.random(USERS)
        self._hour_shock = 0.0
        self._histograms = np.zeros((24, 2, 2, _BINS), np.int64)  # hour of the day, version, label
        self._curves = np.zeros((2, 2, _BINS + 1))  # version, (F0, S1)
        self._constants = np.zeros(2)

    def day(
        self,
        day: int,
        candidate: Version,
        *,
        refresh: bool = True,
        arrived: float = 1.0,
        share: NDArray[np.float64] | float = 0.5,
        begin: int = 0,
        rows: tuple[int, ...] = (0, 1, 2, 3),
    ) -> tuple[Minutes, tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.bool_]]]:
        """Sums of one day from minute `begin` on, and (old pClick, new pClick, label) of its impressions.

        `share`: of users in arm B, by minute. Reference curves are from the labels of the last 24 hours, updated every hour
        unless `refresh` is off. `rows`: the served rows to compute; the others stay empty.
        """
        rng = self._rng
        minute = np.arange(DAY)
        rate = SESSIONS * (1 + SWING_TRAFFIC * np.sin(2 * np.pi * (minute - 480) / DAY))
        counts = rng.poisson(rate)
        counts[:begin] = 0
        lengths = np.minimum(rng.geometric(1.0 / MEAN_LENGTH, counts.sum()), MAX_LENGTH)
        users = np.minimum(np.searchsorted(self._cumulative, rng.random(counts.sum())), USERS - 1)
        hourly = np.empty(24)
        for hour in range(24):
            self._hour_shock = (
                RHO_HOUR * self._hour_shock + SD_HOUR * np.sqrt(1 - RHO_HOUR**2) * self._shock_rng.standard_normal()
            )
            hourly[hour] = self._hour_shock
        base = BASE + SWING_ODDS * np.sin(2 * np.pi * (minute - 1080) / DAY)
        shocks = np.repeat(hourly, 60) + SD_DAY * self._shock_rng.standard_normal()
        n = int(lengths.sum())
        pair = BlockSums(np.zeros((DAY, 64, 8), np.int64), np.zeros((DAY, cells.PAIR_SCALARS), np.int64))
        gauc = BlockSums(np.zeros((DAY, 64, 2), np.int64), np.zeros((DAY, cells.GAUC_SCALARS), np.int64))
        served = BlockSums(np.zeros((4, DAY, 64, 8), np.int64), np.zeros((4, DAY, 3), np.int64))
        scores = np.empty((2, n))
        labels = np.empty(n, np.bool_)
        _day(
            int(rng.integers(2**31)),
            np.repeat(minute, counts),
            lengths,
            users,
            self._block,
            self._users,
            self._arm_draw,
            np.broadcast_to(np.asarray(share, np.float64), DAY).copy(),
            base,
            shocks,
            SD_ITEM * (WEEKEND if day % 7 in {5, 6} else 1.0),
            np.stack([BASELINE.table(), candidate.table()]),
            np.array([BASELINE.shrink(), candidate.shrink()]),
            np.sqrt(np.array([BASELINE.noise, candidate.noise])),
            arrived,
            refresh,
            np.isin(np.arange(4), rows),
            self._histograms,
            self._curves,
            self._constants,
            pair.blocks, pair.scalars, gauc.blocks, gauc.scalars, served.blocks, served.scalars, scores, labels,
        )  # fmt: skip
        return Minutes(pair, gauc, served), (scores[0], scores[1], labels)

    def freeze(self) -> None:
        """Computes the reference curves from the last 24 hours."""
        _freeze(self._histograms, self._curves, self._constants)


@numba.njit(inline="always")
def _fixed(x):  # type: ignore[no-untyped-def]
    return np.int64(np.rint(x * SCALE))


@numba.njit(inline="always")
def _at(curve, position):  # type: ignore[no-untyped-def]
    i = min(max(int(position), 0), curve.size - 2)
    f = min(max(position - i, 0.0), 1.0)
    return curve[i] * (1.0 - f) + curve[i + 1] * f


@numba.njit(cache=True)
def _freeze(histograms, curves, constants):  # type: ignore[no-untyped-def]
    for m in range(2):
        negative, positive = histograms[:, m, 0].sum(axis=0), histograms[:, m, 1].sum(axis=0)
        n0, n1 = negative.sum(), positive.sum()
        if n0 == 0 or n1 == 0:
            continue
        curves[m, 0, 0], curves[m, 1, 0], constants[m] = 0.0, 1.0, 0.0
        for b in range(_BINS):
            curves[m, 0, b + 1] = curves[m, 0, b] + negative[b] / n0
            curves[m, 1, b + 1] = curves[m, 1, b] - positive[b] / n1
            constants[m] += positive[b] / n1 * 0.5 * (curves[m, 0, b] + curves[m, 0, b + 1])  # ties by halves


@numba.njit(cache=True)
def _day(  # type: ignore[no-untyped-def]
    seed, session_minute, lengths, users, block_of, latent, arm, share, base, shocks, sd_item, tables, shrink, sd_own, arrived,
    refresh, wanted, histograms, curves, constants, pair, pair_k, gauc, gauc_k, served, served_k, scores, labels,
):  # fmt: skip
    np.random.seed(seed)
    half = np.sqrt(0.5)
    shared = np.sqrt(NOISE_SHARED) * half
    i, hour = 0, -1
    p, loss, phi = np.empty(2), np.empty(2), np.empty(2)
    conc, odds = np.empty(2), np.empty(2)
    for s in range(lengths.size):
        u, t = users[s], session_minute[s]
        g = block_of[u]
        session = SD_SESSION * np.random.normal()
        if t // 60 != hour:
            hour = t // 60
            if refresh:
                _freeze(histograms, curves, constants)
            histograms[hour] = 0
        first = i
        in_b = arm[u] < share[t]
        clicks = 0
        for _ in range(lengths[s]):
            truth = latent[0, u] + sd_item * np.random.normal()
            y = np.random.random() < 1.0 / (1.0 + np.exp(-(base[t] + shocks[t] + truth + session)))
            if y and arrived < 1.0:
                y = np.random.random() < arrived
            seen = truth + shared * (latent[1, u] + np.random.normal())
            labels[i] = y
            clicks += y
            for m in range(2):
                own = sd_own[m] * half * (latent[2 + m, u] + np.random.normal())
                q = _at(
                    tables[m],
                    (base[t] + shrink[m] * (seen + own) - _INPUT_LOW) * (_INPUTS - 1) / (_INPUT_HIGH - _INPUT_LOW),
                )
                scores[m, i] = p[m] = q
                log_p, log_not = np.log(q), np.log1p(-q)
                odds[m] = log_p - log_not
                loss[m] = -log_p if y else -log_not
                position = (log_p - _LOWEST) * _BINS / -_LOWEST
                histograms[hour, m, int(y), min(max(int(position), 0), _BINS - 1)] += 1
                phi[m] = _at(curves[m, 0], position) if y else _at(curves[m, 1], position) - constants[m]
                for row in (m, 2 + m):
                    if wanted[row] and (row < 2 or in_b == (m == 1)):
                        served[row, t, g, 0] += 1
                        served[row, t, g, 1] += y
                        served[row, t, g, 2] += _fixed(q)
                        served[row, t, g, 3] += _fixed(loss[m])
                        served[row, t, g, 6 if y else 7] += _fixed(phi[m])
                        served_k[row, t, 0] += _fixed(loss[m] * loss[m])
                        served_k[row, t, 1 if y else 2] += _fixed(phi[m] * phi[m])
            d, f = loss[1] - loss[0], phi[1] - phi[0]
            pair[t, g, 0] += 1
            pair[t, g, 1] += y
            pair[t, g, 2] += _fixed(d)
            pair[t, g, 3] += _fixed(loss[0])
            pair[t, g, 4] += _fixed(p[0])
            pair[t, g, 5] += _fixed(p[1])
            pair[t, g, 6 if y else 7] += _fixed(f)
            pair_k[t, 0] += _fixed(d * d)
            pair_k[t, 1 if y else 2] += _fixed(f * f)
            if abs(odds[1] - odds[0]) > 2.0:
                logit = odds[0] + np.sign(odds[1] - odds[0]) * 2.0
                q = 1.0 / (1.0 + np.exp(-logit))
                d = (-np.log(q) if y else -np.log1p(-q)) - loss[0]
                pair_k[t, 5] += 1
            pair_k[t, 3] += _fixed(d)
            pair_k[t, 4] += _fixed(d * d)
            i += 1
        if 0 < clicks < i - first:
            conc[:] = 0.0
            for a in range(first, i):
                if labels[a]:
                    for b in range(first, i):
                        if not labels[b]:
                            for m in range(2):
                                conc[m] += (
                                    1.0
                                    if scores[m, a] > scores[m, b]
                                    else (0.5 if scores[m, a] == scores[m, b] else 0.0)
                                )
            w = i - first
            gain = w * (conc[1] - conc[0]) / (clicks * (w - clicks))
            gauc[t, g, 0] += w
            gauc[t, g, 1] += _fixed(gain)
            gauc_k[t, 0] += _fixed(gain * gain)
            gauc_k[t, 1] += _fixed(w * gain)
            gauc_k[t, 2] += w * w
            gauc_k[t, 3] += 1


def warm(world: World, candidate: Version, minutes: int = 120) -> None:
    """Computes the first reference curves from labels before the comparison begins: two hours have about 800 clicks."""
    world.day(-1, candidate, begin=DAY - minutes)
    world.freeze()
