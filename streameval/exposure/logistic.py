"""Propensities by logistic regression on who and what: P(shown) = sigmoid(b_item + c_user) (Schnabel et al. 2016, 5.1).

Fitted to impressions and to the candidates beside them that were not shown, without a penalty: then the propensities of
every item and of every user add up to the number of times that it was shown, which is what makes the weights balance.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

_Ids = NDArray[np.int32] | NDArray[np.int64]
_Reals = NDArray[np.float64]
_Flags = NDArray[np.bool_]

_NEWTON, _HALVINGS, _CONJUGATE = 50, 30, 500  # most steps of each kind
_RIDGE = 1e-9  # of the diagonal of the information matrix
_EXTREME = 1e300  # log-odds of what was always shown
_CLOSE = 1e-9  # of sums over items and users, to what was observed


@dataclass(frozen=True, slots=True)
class Biases:
    """`item` float64[items], `user` float64[users]: log-odds, beyond any finite data for what was never or always shown; NaN
    for what no row is about. `off`: the largest difference between a predicted and an observed sum.
    """

    item: _Reals
    user: _Reals
    off: float

    def propensity(self, item: _Ids, user: _Ids) -> _Reals:
        """Of pairs, float64[n] in [0, 1]; NaN where the item or user is not known."""
        return _sigmoid(self.item[item] + self.user[user])


def fit(item: _Ids, user: _Ids, shown: _Flags, items: int, users: int) -> Biases:
    """Fits rows (item, user, shown): numbers from 0 to `items` - 1 and `users` - 1.

    Newton's method; its equations are solved by conjugate gradients, as they have an entry for every row and no more. What was
    always or never shown has no finite bias: those rows are exact as they are and are taken out first, in turn, as others
    may have no rows of the other kind without them.
    """
    item_bias, user_bias, open_rows = _taken_out(item, user, shown, items, users)
    i, u, y = item[open_rows], user[open_rows], shown[open_rows].astype(np.float64)
    theta = np.zeros(items + users)
    off = 0.0
    if y.size:
        observed = _sums(i, u, y, items)
        likelihood = _likelihood(theta, i, u, y, items)
        for _ in range(_NEWTON):
            p = _sigmoid(theta[i] + theta[items + u])
            gradient = _padded(observed - _sums(i, u, p, items), items + users)
            off = float(np.abs(gradient).max())
            if off < _CLOSE:
                break
            step = _solve(p * (1 - p), i, u, gradient, items)
            for _ in range(_HALVINGS):  # a full step, unless it goes down
                better = _likelihood(theta + step, i, u, y, items)
                if better >= likelihood - 1e-12 * abs(likelihood):
                    break
                step = step / 2
            theta, likelihood = theta + step, better
    for bias, number, found in ((item_bias, item, theta[:items]), (user_bias, user, theta[items:])):
        finite = np.isnan(bias) & (np.bincount(number, minlength=bias.size) > 0)
        bias[finite] = found[finite]  # 0 where all rows are explained by the other side
    return Biases(item_bias, user_bias, off)


def _taken_out(item: _Ids, user: _Ids, shown: _Flags, items: int, users: int) -> tuple[_Reals, _Reals, _Flags]:
    """(biases of items, of users, rows that are left): the biases of what was always or never shown, NaN for others.

    What is taken out first outweighs what is always or never shown only without it.
    """
    biases = np.full(items, np.nan), np.full(users, np.nan)
    left = np.ones(shown.size, np.bool_)
    extreme = _EXTREME
    while True:
        before = int(left.sum())
        for number, bias in ((item, biases[0]), (user, biases[1])):
            rows = np.bincount(number[left], minlength=bias.size)
            yes = np.bincount(number[left & shown], minlength=bias.size)
            never, always = (rows > 0) & (yes == 0), (rows > 0) & (yes == rows)
            bias[never], bias[always] = -extreme, extreme
            left &= ~(never | always)[number]
            extreme /= 2
        if int(left.sum()) == before or extreme < 1e9:
            return *biases, left


def _sums(item: _Ids, user: _Ids, x: _Reals, items: int) -> _Reals:
    """Sums of x by item, then by user."""
    return np.concatenate((np.bincount(item, x, items), np.bincount(user, x)))


def _padded(x: _Reals, size: int) -> _Reals:
    return np.concatenate((x, np.zeros(size - x.size)))


def _likelihood(theta: _Reals, item: _Ids, user: _Ids, y: _Reals, items: int) -> float:
    eta = theta[item] + theta[items + user]
    return float((y * eta - np.logaddexp(0.0, eta)).sum())


def _solve(weight: _Reals, item: _Ids, user: _Ids, gradient: _Reals, items: int) -> _Reals:
    """x of H x = gradient, H the information matrix of rows of that weight; conjugate gradients, scaled by its diagonal.

    Moving a constant from all users to all items changes nothing, so H is singular: its diagonal gets a little more, which
    leaves Newton's fixed point where it is.
    """
    diagonal = _padded(_sums(item, user, weight, items), gradient.size)
    ridge = _RIDGE * diagonal
    scale = np.where(diagonal > 0, 1 / np.maximum(diagonal, 1e-300), 0.0)
    x = np.zeros_like(gradient)
    rest = gradient.copy()
    along = scale * rest
    size = _inner(rest, along)
    goal = 1e-20 * size
    for _ in range(_CONJUGATE):
        if size <= goal:
            break
        product = _padded(_sums(item, user, weight * (along[item] + along[items + user]), items), gradient.size)
        product += ridge * along
        curvature = _inner(along, product)
        x += size / curvature * along
        rest -= size / curvature * product
        scaled = scale * rest
        size, before = _inner(rest, scaled), size
        along = scaled + size / before * along
    return x


def _inner(a: _Reals, b: _Reals) -> float:
    """Their inner product, the same however many threads a library has."""
    return float((a * b).sum())


def _sigmoid(x: _Reals) -> _Reals:
    with np.errstate(over="ignore"):
        return np.asarray(1 / (1 + np.exp(-x)), np.float64)
