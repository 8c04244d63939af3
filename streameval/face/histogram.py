"""`ScoreHistogram`: scores and labels in a few kilobytes that merge, subtract, travel as bytes, and know their own error."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike

from streameval.metrics.registry import METRICS, evaluate
from streameval.metrics.tables import Bucket, fixed_buckets, quantile_buckets, score_counts
from streameval.metrics.view import Undefined, View
from streameval.settings.tree import Buckets
from streameval.sketches import codec
from streameval.sketches.accumulate import sketched
from streameval.sketches.layout import OVERALL_BITS, Layout, read_buckets, read_histogram
from streameval.sketches.sparse import SparseVector

_MAGIC, _VERSION = b"SEVH", 2  # 1 had no checksum of head and edges, and is read
_HEAD = struct.Struct("<4sBBH")  # magic, version, bits, inner edges
_CRC = struct.Struct("<I")  # of the head and the edges, behind them; the rest has its own
_MOST_BITS = 16
_LARGEST = 1 << 62  # of a sum: that of two of them is still found to be larger


class Certified(NamedTuple):
    """A number, and half the width of the interval around it that is certain to contain the exact value."""

    value: float
    error: float

    @property
    def lower(self) -> float:
        """A lower bound of the exact value."""
        return self.value - self.error

    @property
    def upper(self) -> float:
        """An upper bound of the exact value."""
        return self.value + self.error


class ScoreHistogram:
    """Counts of scores by label, in bins that are log-spaced towards 0 and towards 1, with exact sums beside them.

    Adding histograms means adding integers: any split, order and merge of the same scores gives the same histogram, to
    the bit, and subtracting undoes it. So log loss, calibration and the other means are exact, whatever was merged; the
    AUC and quantiles have the resolution of the bins, and report their error.
    """

    def __init__(self, bits: int = OVERALL_BITS, edges: Sequence[float] | None = None) -> None:
        """2**`bits` bins an octave (0 to 16): a bin is 2**-bits wide, relative to the score. `edges`: inner edges of the buckets.

        Raises ValueError.
        """
        if not 0 <= bits <= _MOST_BITS:
            raise ValueError(f"bits = {bits}: must be from 0 to {_MOST_BITS}")
        self._layout = Layout(bits, (Buckets() if edges is None else Buckets(edges=tuple(edges))).edges)
        self._vector = SparseVector.empty()

    def add(self, scores: ArrayLike, labels: ArrayLike) -> Self:
        """Counts n scores in [0, 1] with their labels, 0 or 1; returns itself. Raises ValueError for any other."""
        return self._count(scores, labels, +1)

    def remove(self, scores: ArrayLike, labels: ArrayLike) -> Self:
        """Subtracts scores that were added before; after others metrics raise ValueError."""
        return self._count(scores, labels, -1)

    def __add__(self, other: Self) -> Self:
        return self._with(_bounded(self._vector + self._like(other)))

    def __radd__(self, other: object) -> Self:
        return self if other == 0 else NotImplemented  # what `sum` begins with

    def __sub__(self, other: Self) -> Self:
        return self._with(_bounded(self._vector - self._like(other)))

    def __neg__(self) -> Self:
        return self._with(-self._vector)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ScoreHistogram):
            return NotImplemented
        return self._layout == other._layout and self._vector == other._vector

    def __repr__(self) -> str:
        auc = None if self._lacks() else self.auc()
        said = "" if auc is None else f", AUC {auc.value:.6f} ± {auc.error:.1g}"
        return f"ScoreHistogram({self.impressions:,} scores, {self.clicks:,} clicks{said})"

    @property
    def impressions(self) -> int:
        """Number of scores."""
        return self._view().moments.impressions

    @property
    def clicks(self) -> int:
        """Number of scores with label 1."""
        return self._view().moments.clicks

    def auc(self) -> Certified | None:
        """The AUC (ties count half), within half a bin's ties; None without both labels."""
        values, _ = evaluate(self._whole())
        value, error = values["auc"], values["auc_error"]
        return None if value is None or error is None else Certified(value, error)

    def log_loss(self) -> float | None:
        """Mean log loss, nats, of scores clipped to [1e-7, 1 - 1e-7]; None when empty."""
        return self.metric("log_loss")

    def calibration(self) -> float | None:
        """Predicted clicks over clicks; None without clicks."""
        return self.metric("calibration")

    def metric(self, name: str) -> float | None:
        """Any metric of docs/metrics.md by its name; None: undefined, as per-user metrics are here. Raises KeyError."""
        values, _ = evaluate(self._whole())
        if name not in values:
            raise KeyError(f"{name!r} is not a metric; there are {', '.join(metric.name for metric in METRICS)}")
        return values[name]

    def quantile(self, share: float) -> Certified | None:
        """The score below which a share of the scores lies; None when empty. Raises ValueError for a share outside [0, 1]."""
        if not 0 <= share <= 1:
            raise ValueError(f"share = {share}: must be in [0, 1]")
        negatives, positives = read_histogram(self._dense(), self._layout)
        counts = score_counts(negatives, positives, self._layout)
        if not counts.lower.size:
            return None
        upto = np.cumsum(counts.negatives + counts.positives)
        at = min(int(np.searchsorted(upto, max(share * upto[-1], 1))), upto.size - 1)
        lower, upper = float(counts.lower[at]), float(counts.upper[at])
        return Certified((lower + upper) / 2, (upper - lower) / 2)

    def buckets(self, quantiles: int | None = None) -> tuple[Bucket, ...]:
        """Impressions, clicks, mean score, CTR and log loss by bucket: of the edges, or of nearly equal counts."""
        if quantiles is None:
            return fixed_buckets(read_buckets(self._dense(), self._layout), self._layout.edges)
        return quantile_buckets(score_counts(*read_histogram(self._dense(), self._layout), self._layout), quantiles)

    def to_bytes(self) -> bytes:
        """The histogram, with a checksum; `from_bytes` reads it on any machine."""
        edges = np.array(self._layout.edges, "<f8").tobytes()
        head = _HEAD.pack(_MAGIC, _VERSION, self._layout.bits, len(self._layout.edges)) + edges
        return head + _CRC.pack(zlib.crc32(head)) + codec.encode(self._vector)

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """Reads what `to_bytes` returned. Raises CodecError, a ValueError, for truncated, foreign or incompatible data."""
        if len(data) < _HEAD.size:
            raise codec.CodecError(f"{len(data)} bytes: shorter than a histogram's head of {_HEAD.size}")
        magic, version, bits, count = _HEAD.unpack_from(data)
        if magic != _MAGIC or version not in (1, _VERSION):
            raise codec.CodecError(f"starts with {magic!r} {version}: no histogram of format {_VERSION}")
        end = _HEAD.size + 8 * count
        begin = end if version == 1 else end + _CRC.size
        if len(data) < begin:
            raise codec.CodecError(f"{len(data)} bytes: cut short")
        if begin > end and _CRC.unpack_from(data, end)[0] != zlib.crc32(data[:end]):
            raise codec.CodecError("the checksum of the head does not match: the bytes are damaged")
        out = cls(bits, np.frombuffer(data[_HEAD.size : end], "<f8").tolist())
        out._vector = codec.decode(data[begin:])
        if out._vector.cells.size and not 0 <= out._vector.cells[-1] < out._layout.size:
            raise codec.CodecError("it has cells that no histogram can have")
        return out

    def _count(self, scores: ArrayLike, labels: ArrayLike, sign: int) -> Self:
        p, label = np.asarray(scores, np.float64).ravel(), np.asarray(labels).ravel()
        if p.size != label.size:
            raise ValueError(f"{p.size} scores and {label.size} labels: the numbers must be equal")
        if not bool(((p >= 0) & (p <= 1)).all()):
            raise ValueError("scores must be in [0, 1]")
        if not bool(((label == 0) | (label == 1)).all()):
            raise ValueError("labels must be 0 or 1")
        if p.size:
            counted = sketched(self._layout, np.zeros(p.size, np.int32), p, label, sign)
            self._vector = _bounded(self._vector + counted)
        return self

    def _with(self, vector: SparseVector) -> Self:
        out = type(self)(self._layout.bits, self._layout.edges)
        out._vector = vector
        return out

    def _like(self, other: Self) -> SparseVector:
        if self._layout != other._layout:
            raise ValueError("histograms with different bits or edges cannot be added")
        return other._vector

    def _dense(self) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
        out = np.zeros(self._layout.size, np.int64)
        self._vector.add_to(out)
        return out

    def _lacks(self) -> bool:
        """Whether more scores of a bin and label were removed than added."""
        return any(bool((counts < 0).any()) for counts in read_histogram(self._dense(), self._layout))

    def _whole(self) -> View:
        if self._lacks():
            raise ValueError(
                "more scores, or other ones, were removed than had been added: this is no histogram of scores"
            )
        return self._view()

    def _view(self) -> View:
        return View.of(self._dense(), self._layout, Undefined("no_users"))


def _bounded(vector: SparseVector) -> SparseVector:
    """Raises OverflowError if a sum may have grown beyond 64 bits."""
    if vector.values.size and not -_LARGEST <= int(vector.values.min()) <= int(vector.values.max()) <= _LARGEST:
        raise OverflowError("sums of more scores than 64 bits can hold: keep histograms of parts")
    return vector
