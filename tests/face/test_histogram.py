"""`ScoreHistogram` keeps what it promises: the laws of sketches, and an exact AUC inside its certified interval."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn import metrics as sk

from streameval import ScoreHistogram
from streameval.sketches.codec import CodecError
from streameval.sketches.laws import check_sketch

Scores = list[tuple[float, int]]
SCORES = st.lists(st.tuples(st.floats(0, 1) | st.sampled_from([0.0, 1e-9, 0.5, 1.0]), st.integers(0, 1)), max_size=40)


def counted(scores: Scores, bits: int = 4) -> ScoreHistogram:
    return ScoreHistogram(bits).add([p for p, _ in scores], [y for _, y in scores])


@settings(max_examples=60, deadline=None)
@given(SCORES, SCORES, SCORES)
def test_the_laws_of_sketches(a: Scores, b: Scores, c: Scores) -> None:
    check_sketch(
        ScoreHistogram(4), counted(a), counted(b), counted(c), ScoreHistogram.to_bytes, ScoreHistogram.from_bytes
    )
    assert counted(a) + counted(b) == counted(a + b)
    assert counted(a + b) - counted(b) == counted(a)
    assert counted(a + b).remove([p for p, _ in b], [y for _, y in b]) == counted(a)


@pytest.mark.parametrize("bits", [0, 3, 7, 10])
@pytest.mark.parametrize("seed", range(3))
def test_the_exact_auc_is_within_the_certified_error(bits: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    p = 1 / (1 + np.exp(-rng.normal(-3, 2, 3000)))
    y = rng.random(p.size) < p
    found = ScoreHistogram(bits).add(p, y).auc()
    assert found is not None
    assert found.error > 0
    assert found.lower - 1e-13 <= sk.roc_auc_score(y, p) <= found.upper + 1e-13


def test_what_is_not_of_bins_is_exact() -> None:
    rng = np.random.default_rng(0)
    p = rng.random(5000) ** 2
    y = rng.random(p.size) < p
    found = ScoreHistogram(0).add(p[:2000], y[:2000]) + ScoreHistogram(0).add(p[2000:], y[2000:])
    assert (found.impressions, found.clicks) == (p.size, y.sum())
    assert found.log_loss() == pytest.approx(sk.log_loss(y, np.clip(p, 1e-7, 1 - 1e-7)), rel=1e-12)
    assert found.calibration() == pytest.approx(p.sum() / y.sum(), rel=1e-12)
    assert found.metric("mse") == pytest.approx(np.mean((p - y) ** 2), rel=1e-12)
    assert found.metric("gauc") is None
    for bucket in found.buckets():
        on = (p >= bucket.lower) & (p < bucket.upper)
        assert (bucket.impressions, bucket.clicks) == (on.sum(), y[on].sum())
    assert sum(bucket.impressions for bucket in found.buckets(quantiles=5)) == p.size


@pytest.mark.parametrize("share", [0.0, 0.01, 0.5, 0.9, 1.0])
def test_a_quantile_is_within_its_bin(share: float) -> None:
    p = np.random.default_rng(1).random(999) ** 3
    found = ScoreHistogram().add(p, np.zeros(p.size)).quantile(share)
    assert found is not None
    assert found.lower <= np.quantile(p, share, method="inverted_cdf") <= found.upper
    assert found.error <= 2**-10


def test_an_empty_histogram_knows_nothing() -> None:
    empty = ScoreHistogram()
    assert empty.auc() is empty.log_loss() is empty.calibration() is empty.quantile(0.5) is None
    assert repr(empty) == "ScoreHistogram(0 scores, 0 clicks)"
    assert ScoreHistogram().add([], []) == empty
    assert ScoreHistogram().add([0.5], [1]).auc() is None


def test_wrong_input_is_refused_and_changes_nothing() -> None:
    histogram = ScoreHistogram().add([0.5], [1])
    for scores, labels, words in (
        ([0.5, 1.5], [0, 1], r"in \[0, 1\]"),
        ([float("nan")], [0], r"in \[0, 1\]"),
        ([0.5], [2], "0 or 1"),
        ([0.5], [0, 1], "must be equal"),
    ):
        with pytest.raises(ValueError, match=words):
            histogram.add(scores, labels)
    assert histogram == ScoreHistogram().add([0.5], [1])
    with pytest.raises(ValueError, match="different bits or edges"):
        histogram + ScoreHistogram(3)
    with pytest.raises(ValueError, match="bits"):
        ScoreHistogram(40)
    with pytest.raises(ValueError, match="edges"):
        ScoreHistogram(edges=[0.5, 0.1])
    with pytest.raises(KeyError, match="not a metric"):
        histogram.metric("acu")


def test_damaged_bytes_are_refused() -> None:
    data = ScoreHistogram(5, [0.1, 0.2]).add([0.3, 0.1], [1, 0]).to_bytes()
    assert ScoreHistogram.from_bytes(data).to_bytes() == data
    for torn in (b"", data[:7], data[:20], data[:-1], b"XXXX" + data[4:], data[:4] + b"\x09" + data[5:]):
        with pytest.raises(CodecError):
            ScoreHistogram.from_bytes(torn)


def test_no_byte_can_change_unnoticed() -> None:
    data = ScoreHistogram(5, [0.1, 0.2]).add([0.3, 0.1], [1, 0]).to_bytes()
    for i in range(len(data)):
        with pytest.raises(CodecError):
            ScoreHistogram.from_bytes(data[:i] + bytes([data[i] ^ 1]) + data[i + 1 :])


def test_bytes_of_the_first_format_are_read() -> None:
    histogram = ScoreHistogram(5, [0.1, 0.2]).add([0.3, 0.1], [1, 0])
    data = histogram.to_bytes()
    head = 8 + 8 * 2
    assert ScoreHistogram.from_bytes(data[:4] + b"\x01" + data[5:head] + data[head + 4 :]) == histogram


def test_sums_beyond_64_bits_are_an_error_and_no_other_number() -> None:
    """Doubled 30 times a log loss was negative."""
    histogram = ScoreHistogram(4).add([0.1, 0.9, 0.4], [0, 1, 0])
    loss, auc = histogram.log_loss(), histogram.auc()
    with pytest.raises(OverflowError, match="64 bits"):
        for _ in range(70):
            assert (histogram.log_loss(), histogram.auc()) == (pytest.approx(loss, rel=1e-12), auc)
            histogram += histogram
    with pytest.raises(OverflowError, match="64 bits"):
        (-histogram) - histogram - histogram


def test_more_removed_than_added_is_no_histogram_of_scores() -> None:
    for wrong in (
        ScoreHistogram(4).remove([0.3], [1]),
        ScoreHistogram(4).add([0.3, 0.2], [1, 0]).remove([0.3, 0.2], [0, 1]),
    ):
        for read in (wrong.auc, wrong.log_loss, wrong.calibration):
            with pytest.raises(ValueError, match="were removed than had been added"):
                read()
        assert "AUC" not in repr(wrong)


def test_sum_adds_histograms() -> None:
    parts = [ScoreHistogram(4).add([p], [label]) for p, label in ((0.1, 0), (0.7, 1), (0.2, 0))]
    assert sum(parts) == ScoreHistogram(4).add([0.1, 0.7, 0.2], [0, 1, 0])
    with pytest.raises(TypeError):
        1 + parts[0]
