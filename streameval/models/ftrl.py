"""FTRL-Proximal logistic regression over hashed features: McMahan et al. 2013, Algorithm 1, to the letter.

Per coordinate only z and n are kept; the weight is derived when it is needed:

    w = 0                                            if |z| <= l1
    w = -(z - sign(z) l1) / ((beta + sqrt(n)) / alpha + l2)   otherwise

and one example (x, y) with p = sigmoid(w . x) updates every coordinate of x:

    g = (p - y) x,  sigma = (sqrt(n + g^2) - sqrt(n)) / alpha,  z += g - sigma w,  n += g^2.

There is no intercept, as in the paper: give the events a constant feature if you want one. Coordinates are the top
`bits` bits of a feature's stable hash; features of one example that fall on the same coordinate add up.
An example whose margin or update leaves the range of a double is a failure: it gets no score, and is not learned, or the
coordinates it shares with others would never give a number again.
Cost: 16 bytes a coordinate, touched pages only; about 0.2 us to predict and learn an example of 8 features.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import numba
import numpy as np
from numpy.typing import NDArray

from streameval.events.batch import Features
from streameval.models.protocol import Failed, ModelError

_LARGE = 1e100  # sum of squares of an example's values, up to which no update can overflow
_PIECE = 1 << 16  # coordinates that are copied together, 1 MB


@numba.njit(inline="always")
def _weight(z: float, root: float, rate: float, beta: float, l1: float, l2: float) -> float:
    """`root` is sqrt(n), `rate` 1 / alpha; without a branch, so that several are under way at once."""
    return -math.copysign(max(abs(z) - l1, 0.0), z) / ((beta + root) * rate + l2)


@numba.njit(inline="always")
def _sigmoid(m: float) -> float:
    return 1.0 / (1.0 + math.exp(-m)) if m >= 0 else math.exp(m) / (1.0 + math.exp(m))


class Coefficients(NamedTuple):
    """The coordinates' z and n (float64[2**bits, 2]), found by a hash's upper bits, and the parameters (alpha, beta, l1, l2)."""

    zn: NDArray[np.float64]
    shift: np.uint64
    parameters: tuple[float, float, float, float]


class Examples(NamedTuple):
    """Features of n examples: those of example i are at indptr[i] to indptr[i + 1] of the others."""

    indptr: NDArray[np.int64]
    hashes: NDArray[np.uint64]
    value: NDArray[np.float64]


class Coordinates(NamedTuple):
    """Room for one example's coordinates, each once: where, its value, its weight, and the root of its n."""

    coordinate: NDArray[np.uint64]
    x: NDArray[np.float64]
    w: NDArray[np.float64]
    root: NDArray[np.float64]


@numba.njit(cache=True, nogil=True, error_model="numpy")
def _predict(table: Coefficients, examples: Examples, out: NDArray[np.float64]) -> None:
    zn, shift, parameters = table
    indptr, hashes, value = examples
    alpha, beta, l1, l2 = parameters
    rate = 1.0 / alpha
    for row in range(indptr.size - 1):
        margin = 0.0
        for k in range(indptr[row], indptr[row + 1]):
            i = hashes[k] >> shift
            margin += value[k] * _weight(zn[i, 0], math.sqrt(zn[i, 1]), rate, beta, l1, l2)
        out[row] = _sigmoid(margin)  # NaN of a NaN


@numba.njit(cache=True, nogil=True, error_model="numpy")
def _fits(example: Coordinates, n: int, error: float, zn: NDArray[np.float64], rate: float) -> bool:
    """Whether all of an example's updates are finite."""
    coordinate, x, w, root = example
    for j in range(n):
        g = error * x[j]
        squared = zn[coordinate[j], 1] + g * g
        z = zn[coordinate[j], 0] + g - (math.sqrt(squared) - root[j]) * rate * w[j]
        if not (math.isfinite(squared) and math.isfinite(z)):
            return False
    return True


@numba.njit(cache=True, nogil=True, error_model="numpy")
def _learn(
    table: Coefficients,
    examples: Examples,
    label: NDArray[np.int8],
    example: Coordinates,
    passed_over: NDArray[np.bool_],
) -> None:
    """McMahan et al. 2013 (KDD), algorithm 1, example by example; one whose update would not be finite is passed over."""
    zn, shift, parameters = table
    indptr, hashes, value = examples
    coordinate, x, w, root = example
    alpha, beta, l1, l2 = parameters
    rate = 1.0 / alpha
    for row in range(indptr.size - 1):
        # the example's coordinates, each once
        n = 0
        margin = 0.0
        for k in range(indptr[row], indptr[row + 1]):
            i = hashes[k] >> shift
            j = 0
            while j < n and coordinate[j] != i:
                j += 1
            if j == n:
                coordinate[n] = i
                x[n] = value[k]
                root[n] = math.sqrt(zn[i, 1])
                w[n] = _weight(zn[i, 0], root[n], rate, beta, l1, l2)
                n += 1
            else:
                x[j] += value[k]
            margin += value[k] * w[j]
        error = _sigmoid(margin) - label[row]
        size = 0.0
        for j in range(n):
            size += x[j] * x[j]
        if not (size < _LARGE and math.isfinite(margin)) and not _fits(example, n, error, zn, rate):
            passed_over[row] = True
            continue
        for j in range(n):
            i = coordinate[j]
            g = error * x[j]
            squared = zn[i, 1] + g * g
            sigma = (math.sqrt(squared) - root[j]) * rate
            zn[i, 0] += g - sigma * w[j]
            zn[i, 1] = squared


def _pick(pieces: Sequence[tuple[int, NDArray[np.float64]]]) -> dict[str, NDArray[np.generic]]:
    """The coordinates in use, out of copies of pieces of the table (start, rows)."""
    used = [np.flatnonzero(piece[:, 1]) for _, piece in pieces]
    coordinate = [at + u for (at, _), u in zip(pieces, used, strict=True)]
    zn = [piece[u] for (_, piece), u in zip(pieces, used, strict=True)]
    return {
        "coordinate": np.concatenate([np.empty(0, np.int64), *coordinate]),
        "zn": np.concatenate([np.empty((0, 2)), *zn]),
    }


class Ftrl:
    """`kind = "ftrl"`. alpha > 0: learning rate; beta, l1, l2 >= 0; 2**bits coordinates, 4 <= bits <= 28."""

    def __init__(
        self, alpha: float = 0.05, beta: float = 1.0, l1: float = 0.0, l2: float = 1.0, bits: int = 22
    ) -> None:
        if alpha <= 0 or min(beta, l1, l2) < 0 or not 4 <= bits <= 28:
            raise ModelError(
                f"ftrl: alpha = {alpha}, beta = {beta}, l1 = {l1}, l2 = {l2}, bits = {bits}: "
                "alpha must be positive, beta, l1 and l2 at least 0, bits between 4 and 28"
            )
        # with beta = l2 = 0 a coordinate never seen would be 0 / 0 where it must be 0
        parameters = (float(alpha), float(beta), float(l1), max(float(l2), 1e-300))
        self._zn = np.zeros((1 << bits, 2))
        self._table = Coefficients(self._zn, np.uint64(64 - bits), parameters)

    def predict(self, features: Features, failed: Failed) -> NDArray[np.float64]:
        """P(click) of n impressions; see `OnlineModel.predict`."""
        out = np.empty(features.rows)
        _predict(self._table, Examples(features.indptr, features.index, features.value), out)
        for row in np.flatnonzero(np.isnan(out)).tolist():
            if not failed(row, "not_finite", "the linear score of its features is not finite: they are too large"):
                break
        return out

    def learn(self, features: Features, labels: NDArray[np.int8], failed: Failed) -> None:
        """One update an example, in order: a batch learns exactly what its examples one by one would."""
        passed_over = np.zeros(labels.size, np.bool_)
        longest = int(np.diff(features.indptr).max(initial=0))
        room = Coordinates(np.empty(longest, np.uint64), np.empty(longest), np.empty(longest), np.empty(longest))
        _learn(self._table, Examples(features.indptr, features.index, features.value), labels, room, passed_over)
        for row in np.flatnonzero(passed_over).tolist():
            if not failed(row, "learn_overflow", "its features are too large to be learned in double precision"):
                break

    def state(self) -> Mapping[str, Any]:
        """The coordinates in use, and their z and n: copied in pieces now, picked out of them when called for."""
        starts = range(0, len(self._zn), _PIECE)
        return {"used": partial(_pick, [(at, self._zn[at : at + _PIECE].copy()) for at in starts if self._in_use(at)])}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Raises ModelError if the state does not fit this number of coordinates."""
        used = np.asarray(state["used"]["coordinate"], np.int64)
        if used.size and int(used.max()) >= len(self._zn):
            raise ModelError(f"ftrl: the state has a coordinate {int(used.max())}; bits allows {len(self._zn)}")
        self._zn[:] = 0.0
        self._zn[used] = np.asarray(state["used"]["zn"], np.float64)

    def _in_use(self, start: int) -> bool:
        return bool(self._zn[start : start + _PIECE].any())

    @property
    def nbytes(self) -> int:
        """Bytes of z and n (as allocated; the system gives memory only to pages in use)."""
        return int(self._zn.nbytes)
