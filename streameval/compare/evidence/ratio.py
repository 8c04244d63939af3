"""The clustered ratio statistic: theta = sum a / sum w over impressions, its variance from blocks of users.

    dev_g = (A_g - theta W_g) / (W - W_g),   v_clu = (G - 1) / G * sum_g dev_g**2    (each block left out once)
    v_iid = (sum a**2 - 2 theta sum a w + theta**2 sum w**2) / W**2                  (as if impressions were independent)

(Efron and Tibshirani, An Introduction to the Bootstrap, 1993, ch. 11; Wolter, Introduction to Variance Estimation, 2007,
ch. 6.) dev_g is what theta changes by without block g. Over W instead of W - W_g it would be too small by the block's share,
as a block draws theta to itself: CR3 of Cameron and Miller (2015, Journal of Human Resources 50:317). A user's impressions
are not independent, so single impressions cannot give the variance, but blocks of users are independent. v_clu is noisy
when there are few blocks, so it is always used with a t distribution of `df` degrees of freedom; v_iid is only a floor.
`df` is the effective number of blocks less one, (sum W_g)**2 / sum W_g**2 - 1: with a few dominating users there are fewer
blocks than non-empty ones. Errors clustered by item come from blocks of items, and `two_way` combines both.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cache

import numba
import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Reals = NDArray[np.float64]
FEWEST_ITEMS = 30  # non-empty blocks of items
NO_REST = 1e-9  # share of the whole below which nothing can be estimated from what a block leaves
STATISTIC_FIELDS = 7  # number of packed fields of a `Statistic`
THETA, WEIGHT, V_CLU, V_IID, DF, USED_BLOCKS, V_FLOOR = range(STATISTIC_FIELDS)


@dataclass(frozen=True, slots=True, eq=False)
class Statistic:
    """An estimate with its error; every field float64[...] of one shape. Undefined: theta and variances NaN, df 0.

    `weight` W is the scale on which evidence adds up: S = theta * W is a sum with variance v * W**2.
    """

    theta: Reals
    weight: Reals
    v_clu: Reals
    v_iid: Reals
    df: Reals
    blocks: Reals  # non-empty
    # what is known beforehand: the variance is not below it
    v_floor: Reals = field(default_factory=lambda: np.zeros(()))

    def __post_init__(self) -> None:
        if np.shape(self.v_floor) != np.shape(self.theta):
            object.__setattr__(self, "v_floor", np.broadcast_to(self.v_floor, np.shape(self.theta)))

    def variance(self) -> Reals:
        """Returns the largest of the three (NaN if undefined): clustering must not hurt, negative correlation and luck
        must not help.
        """
        out: Reals = np.maximum(np.maximum(self.v_clu, self.v_iid), self.v_floor)
        return out

    def stderr(self) -> Reals:
        """Returns the square root of the variance."""
        out: Reals = np.sqrt(self.variance())
        return out

    def __getitem__(self, key: object) -> Statistic:
        """Returns the same part of every field."""
        return Statistic(*(getattr(self, f.name)[key] for f in fields(self)))

    def __neg__(self) -> Statistic:
        """Returns the statistic with the opposite sign."""
        return replace(self, theta=-self.theta)


@numba.njit(inline="always")
def rest_of(whole: float, block: float) -> float:
    """Returns the whole without a block; with it, if the block has nearly all."""
    left = whole - block
    return left if left > NO_REST * whole else whole


def leverage(parts: Reals) -> Reals:
    """Returns the whole over `rest_of`, of every block, [..., G] like its weights; 1 where there is nothing."""
    whole = parts.sum(axis=-1, keepdims=True)
    left = whole - parts
    out: Reals = np.where(left > NO_REST * whole, whole / np.where(left > 0.0, left, 1.0), 1.0)
    return out


# Kernels, not NumPy sums: additions happen in the same order whatever the leading shape, so looks give the same bits
# one by one or in bulk.
@numba.njit(cache=True)
def ratio_of(a: Reals, w: Reals, saa: float, saw: float, sww: float, out: Reals) -> None:
    """Fills out float64[FIELDS], the fields of a `Statistic`, from block sums float64[G] and sums over impressions."""
    total_a, total_w, squares, some = 0.0, 0.0, 0.0, 0
    for g in range(a.size):
        total_a += a[g]
        total_w += w[g]
        squares += w[g] * w[g]
        some += w[g] != 0.0
    out[:] = np.nan
    out[WEIGHT], out[DF], out[USED_BLOCKS], out[V_FLOOR] = total_w, 0.0, some, 0.0
    if total_w <= 0.0 or some < 2:
        return
    ratio = total_a / total_w
    spread = 0.0
    for g in range(a.size):
        spread += ((a[g] - ratio * w[g]) / rest_of(total_w, w[g])) ** 2
    out[THETA] = ratio
    out[V_CLU] = (some - 1.0) / some * spread
    out[V_IID] = max(saa - 2.0 * ratio * saw + ratio * ratio * sww, 0.0) / (total_w * total_w)
    out[DF] = total_w * total_w / squares - 1.0


@numba.njit(cache=True)
def two_means_of(a1: Reals, w1: Reals, a0: Reals, w0: Reals, saa1: float, saa0: float, out: Reals) -> None:
    """Does the same for `two_means`."""
    sum1, n1, sum0, n0, squares, some = 0.0, 0.0, 0.0, 0.0, 0.0, 0
    for g in range(a1.size):
        sum1 += a1[g]
        n1 += w1[g]
        sum0 += a0[g]
        n0 += w0[g]
        squares += w1[g] * w1[g]
        some += (w1[g] != 0.0) or (w0[g] != 0.0)
    out[:] = np.nan
    out[WEIGHT], out[DF], out[USED_BLOCKS], out[V_FLOOR] = n1, 0.0, some, 0.0
    if n1 <= 0.0 or n0 <= 0.0 or some < 2:
        return
    mean1, mean0 = sum1 / n1, sum0 / n0
    spread = 0.0
    for g in range(a1.size):
        rest1, rest0 = rest_of(n1, w1[g]), rest_of(n0, w0[g])
        spread += ((a1[g] - mean1 * w1[g]) / rest1 + (a0[g] - mean0 * w0[g]) / rest0) ** 2
    out[THETA] = mean1 + mean0
    out[V_CLU] = (some - 1.0) / some * spread
    out[V_IID] = max(saa1 / n1 - mean1 * mean1, 0.0) / n1 + max(saa0 / n0 - mean0 * mean0, 0.0) / n0
    out[DF] = max(n1 * n1 / squares - 1.0, 0.0)


def _ratio(a: Reals, w: Reals, saa: float, saw: float, sww: float, fields: Reals, out: Reals) -> None:
    ratio_of(a, w, saa, saw, sww, out)


def _two_means(a1: Reals, w1: Reals, a0: Reals, w0: Reals, saa1: float, saa0: float, fields: Reals, out: Reals) -> None:
    two_means_of(a1, w1, a0, w0, saa1, saa0, out)


@cache
def _each(function: Callable[..., None], kinds: str, shape: str) -> Callable[..., Reals]:
    """Returns the function for arrays of any leading shape. Built on first use: it takes too long for an import."""
    made: Callable[..., Reals] = numba.guvectorize([kinds], shape, nopython=True, cache=True)(function)
    return made


def ratio(
    a: Reals, w: Reals, saa: Reals | float = 0.0, saw: Reals | float = 0.0, sww: Reals | float = 0.0
) -> Statistic:
    """Returns sum a / sum w from block sums a, w: float64[..., G]; sums over impressions of a*a, a*w, w*w:
    float64[...], 0 if unknown.
    """
    each = _each(_ratio, "(f8[:],f8[:],f8,f8,f8,f8[:],f8[:])", "(g),(g),(),(),(),(k)->(k)")
    return unpacked(each(a, w, saa, saw, sww, np.empty(STATISTIC_FIELDS)))


def two_means(
    a1: Reals, w1: Reals, a0: Reals, w0: Reals, saa1: Reals | float = 0.0, saa0: Reals | float = 0.0
) -> Statistic:
    """Returns sum a1 / sum w1 + sum a0 / sum w0 from block sums float64[..., G], for terms of clicks (1) and of
    non-clicks (0).

    Each block has a single deviation with both terms, which includes their covariance (Obuchowski 1997, Biometrics
    53:567). Weight and df are those of the clicks, which contribute nearly all the variance.
    """
    each = _each(_two_means, "(f8[:],f8[:],f8[:],f8[:],f8,f8,f8[:],f8[:])", "(g),(g),(g),(g),(),(),(k)->(k)")
    return unpacked(each(a1, w1, a0, w0, saa1, saa0, np.empty(STATISTIC_FIELDS)))


def two_way(by_user: Statistic, by_item: Statistic) -> Statistic:
    """Combines estimates from the same sums in blocks of users and of items into one with two-way clustered errors;
    fields [...].

    v = max(v_user, v_item, v_user + v_item - v_iid), because what both contain is counted twice (Cameron, Gelbach and
    Miller 2011, Journal of Business and Economic Statistics 29:238); an unknown v_iid is 0, which is conservative by a
    factor of up to 2. `df` is the smaller one. `blocks` are those of users, which the floor counts: a catalogue may
    well have fewer items than blocks. Undefined where either is.
    """
    v_iid = np.maximum(by_user.v_iid, by_item.v_iid)
    both = by_user.v_clu + by_item.v_clu - v_iid
    return replace(
        by_user,
        v_clu=np.maximum(np.maximum(by_user.v_clu, by_item.v_clu), both),
        v_iid=v_iid,
        df=np.minimum(by_user.df, by_item.df),
        v_floor=np.maximum(by_user.v_floor, by_item.v_floor),
    )


def where_clustered(on: NDArray[np.bool_], by_user: Statistic, by_item: Statistic) -> Statistic:
    """Returns `two_way` where `on` (bool[...]) and there are enough items to estimate what they share, else
    `by_user`.
    """
    on = on & (by_item.blocks >= FEWEST_ITEMS) & np.isfinite(by_item.v_clu)
    if not on.any():
        return by_user
    both = two_way(by_user, by_item)
    if on.all():
        return both
    return Statistic(*(np.where(on, getattr(both, f.name), getattr(by_user, f.name)) for f in fields(Statistic)))


def unpacked(packed: Reals) -> Statistic:
    """Returns views of float64[..., FIELDS]."""
    return Statistic(*(packed[..., i] for i in range(STATISTIC_FIELDS)))


class Statistics(Mapping[str, Statistic]):
    """Statistics of one shape by name, packed together: `packed` float64[k, ..., FIELDS], as kernels read them."""

    def __init__(self, names: Sequence[str], packed: Reals) -> None:
        self.names, self.packed = tuple(names), packed

    @classmethod
    def of(cls, some: Mapping[str, Statistic]) -> Statistics:
        """Packs statistics. ValueError if they differ in shape."""
        if isinstance(some, Statistics):
            return some
        fields_of = [np.stack([getattr(one, f.name) for f in fields(one)], axis=-1) for one in some.values()]
        return cls(tuple(some), np.array(fields_of, np.float64))

    def without(self, *names: str) -> Statistics:
        """Returns the statistics without some."""
        keep = [i for i, name in enumerate(self.names) if name not in names]
        return self if len(keep) == len(self.names) else Statistics([self.names[i] for i in keep], self.packed[keep])

    def theta(self, name: str) -> Reals:
        """Returns only the estimate."""
        out: Reals = self.packed[self.names.index(name), ..., THETA]
        return out

    def __getitem__(self, name: str) -> Statistic:
        if name not in self.names:
            raise KeyError(name)
        return unpacked(self.packed[self.names.index(name)])

    def __contains__(self, name: object) -> bool:
        return name in self.names

    def __iter__(self) -> Iterator[str]:
        return iter(self.names)

    def __len__(self) -> int:
        return len(self.names)
