"""AUC: the probability that a random click outscores a random non-click, ties counted 1/2 (Fawcett 2006)."""

from __future__ import annotations

import numba
import numpy as np
from numpy.typing import NDArray

from streameval.sketches.concordance import pairs_within


@numba.njit(cache=True, nogil=True)
def _binned(negatives: NDArray[np.int64], positives: NDArray[np.int64]) -> tuple[float, float, float, float]:
    """(concordant, tied, P, N) as float64, which no number of events overflows."""
    concordant = 0.0
    tied = 0.0
    below = 0.0
    p = 0.0
    for b in range(negatives.size):
        if negatives[b] == 0 and positives[b] == 0:
            continue
        neg = float(negatives[b])
        pos = float(positives[b])
        concordant += pos * below
        tied += pos * neg
        below += neg
        p += pos
    return concordant, tied, p, below


def binned_auc(negatives: NDArray[np.int64], positives: NDArray[np.int64]) -> tuple[float, float] | None:
    """(auc, error) of a score histogram (int64 counts per bin, lowest scores first); None when a class is missing.

    Inside a bin every pair counts 1/2, so the exact AUC of the scores is certainly within [auc - error, auc + error],
    error = sum_b pos_b neg_b / (2 P N).
    """
    concordant, tied, p, n = _binned(negatives, positives)
    if p == 0 or n == 0:
        return None
    return (concordant + tied / 2) / (p * n), tied / (2 * p * n)


def ranked_auc(sorted_scores: NDArray[np.uint64]) -> float | None:
    """The exact AUC of sorted `grid.score_bits`, uint64[n]; None when a class is missing.

    Up to 2**31 scores: the doubled pair count then stays below 2**62.
    """
    pairs, clicks = pairs_within(sorted_scores)
    return auc_of_pairs(pairs, clicks, sorted_scores.size)


def auc_of_pairs(pairs: int, clicks: int, scores: int) -> float | None:
    """The AUC of so many scores, from twice their concordant pairs; None when a class is missing."""
    others = scores - clicks
    if clicks == 0 or others == 0:
        return None
    return float(pairs) / (2.0 * float(clicks) * float(others))


@numba.njit(cache=True, nogil=True)
def _partial(
    negatives: NDArray[np.int64], positives: NDArray[np.int64], low: float, high: float
) -> tuple[float, float, float, float]:
    """(area, how much less and how much more it may be, all that there are) in pairs of a click and a non-click.

    From the highest score down.
    """
    n, p = float(negatives.sum()), float(positives.sum())
    first, last = low * n, high * n
    area = less = more = 0.0
    fp = tp = 0.0
    for b in range(negatives.size - 1, -1, -1):
        if negatives[b] == 0 and positives[b] == 0:
            continue
        neg, pos = float(negatives[b]), float(positives[b])
        left, right = max(first - fp, 0.0), min(last - fp, neg)
        if right > left:
            width, share = right - left, (left + right) / (2 * neg)  # of the bin's clicks, on the chord in mid-range
            area += width * (tp + pos * share)
            less += width * pos * share
            more += width * pos * (1 - share)
        fp += neg
        tp += pos
        if fp >= last:
            break
    return area, less, more, n * p


def partial_area(
    negatives: NDArray[np.int64], positives: NDArray[np.int64], low: float, high: float
) -> tuple[float, float] | None:
    """(area, error) under the ROC curve of a histogram where the false positive rate is in [low, high]; None without both labels.

    A bin is a straight line, as ties are, also where the range cuts it. The curve of the scores themselves goes from
    one corner of a bin to the other without ever falling, so over a width w of it, with T clicks above and p in it, the
    exact area is in [T w, (T + p) w]: `error` is the larger of what all bins together may be off, below and above.
    Areas of adjoining ranges add up, those of [0, 1] to `binned_auc`. With a bin for every score the area is exact,
    whatever `error`.
    """
    area, less, more, pairs = _partial(negatives, positives, low, high)
    return (area / pairs, max(less, more) / pairs) if pairs else None


def standardised(area: float, low: float, high: float) -> float:
    """(1 + (area - least) / (most - least)) / 2: 0.5 is chance and 1 perfect, whatever the range (McClish 1989, eq. 3).

    `least` is the area under the diagonal, (high^2 - low^2) / 2, and `most` that of the whole strip, high - low.
    """
    least = (high * high - low * low) / 2
    return 0.5 + standardised_width(area - least, low, high)


def standardised_width(width: float, low: float, high: float) -> float:
    """An error, or standard error, of an area on the scale of `standardised`."""
    return width / ((high - low) * ((1 - low) + (1 - high)))


@numba.njit(cache=True, nogil=True)
def _height(negatives: NDArray[np.int64], positives: NDArray[np.int64], rate: float) -> float:
    """Clicks at or above the false positive rate `rate`, on the chords."""
    at = rate * float(negatives.sum())
    fp = tp = 0.0
    for b in range(negatives.size - 1, -1, -1):
        neg, pos = float(negatives[b]), float(positives[b])
        if neg > 0 and fp + neg >= at:
            return tp + pos * (at - fp) / neg
        fp += neg
        tp += pos
    return tp


@numba.njit(cache=True, nogil=True)
def _variance(
    negatives: NDArray[np.int64], positives: NDArray[np.int64], low: float, high: float
) -> tuple[float, float]:
    """Of the mean placement of clicks, and of that of non-clicks; see `partial_variance`."""
    n, p = float(negatives.sum()), float(positives.sum())
    at_low, at_high = _height(negatives, positives, low) / p, _height(negatives, positives, high) / p
    clicks = clicks2 = others = others2 = 0.0
    fp = tp = 0.0
    for b in range(negatives.size - 1, -1, -1):
        if negatives[b] == 0 and positives[b] == 0:
            continue
        neg, pos = float(negatives[b]), float(positives[b])
        if neg == 0:
            click, other = min(max(high - fp / n, 0.0), high - low), 0.0
        else:
            begin, end = fp / n, (fp + neg) / n
            before, after = max(min(end, low) - begin, 0.0), max(end - max(begin, high), 0.0)
            left, right = min(max(begin, low), high), min(max(end, low), high)
            middle = (left + right) / 2
            click = (before * (high - low) + (right - left) * (high - middle)) / (end - begin)
            rate = (tp + pos * (middle - begin) / (end - begin)) / p
            other = (before * at_low + (right - left) * rate + after * at_high) / (end - begin)
        clicks += pos * click
        clicks2 += pos * click * click
        others += neg * other
        others2 += neg * other * other
        fp += neg
        tp += pos
    of_clicks, of_others = max(clicks2 / p - (clicks / p) ** 2, 0.0), max(others2 / n - (others / n) ** 2, 0.0)
    return of_clicks / p, of_others / n


def partial_variance(
    negatives: NDArray[np.int64],
    positives: NDArray[np.int64],
    low: float,
    high: float,
    spread: tuple[float, float] = (1.0, 1.0),
) -> float:
    """Variance of `partial_area` between single impressions; both labels must be there.

    A click with the false positive rate u is worth clip(high - u, 0, high - low), a non-click the true positive rate at
    clip(u, low, high): 0 or constant outside the range but for its ends, which move with the non-clicks (the partial
    placement values of He and Escobar 2008, Statistics in Medicine 27:5291; those of DeLong et al. 1988 over [0, 1]). `spread`: the sum
    of squared weights over that of weights, of non-clicks and of clicks.
    """
    of_clicks, of_others = _variance(negatives, positives, low, high)
    return float(spread[1] * of_clicks + spread[0] * of_others)
