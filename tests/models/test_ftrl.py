"""FTRL-Proximal against a ten-line twin of McMahan et al. 2013, Algorithm 1."""

from __future__ import annotations

import math

import numpy as np
import pytest

from streameval.events.batch import Features
from streameval.models.ftrl import Ftrl
from streameval.models.protocol import ModelError


class Twin:
    def __init__(self, alpha: float, beta: float, l1: float, l2: float) -> None:
        self.alpha, self.beta, self.l1, self.l2 = alpha, beta, l1, l2
        self.z: dict[int, float] = {}
        self.n: dict[int, float] = {}

    def w(self, i: int) -> float:
        z, n = self.z.get(i, 0.0), self.n.get(i, 0.0)
        if abs(z) <= self.l1:
            return 0.0
        return -(z - math.copysign(self.l1, z)) / ((self.beta + math.sqrt(n)) / self.alpha + self.l2)

    def p(self, x: dict[int, float]) -> float:
        return 1 / (1 + math.exp(-sum(v * self.w(i) for i, v in x.items())))

    def learn(self, x: dict[int, float], y: int) -> None:
        p, w = self.p(x), {i: self.w(i) for i in x}
        for i, v in x.items():
            g, n = (p - y) * v, self.n.get(i, 0.0)
            self.z[i] = self.z.get(i, 0.0) + g - (math.sqrt(n + g * g) - math.sqrt(n)) / self.alpha * w[i]
            self.n[i] = n + g * g


def rows(n: int, seed: int, bits: int) -> tuple[Features, list[dict[int, float]], np.ndarray]:
    rng = np.random.default_rng(seed)
    lengths = rng.integers(0, 9, n)
    index = rng.integers(0, 2**63, int(lengths.sum())).astype(np.uint64) * np.uint64(2)
    index = index[rng.integers(0, 40, index.size)]  # features come again
    value = rng.normal(0, 1, index.size)
    indptr = np.concatenate(([0], np.cumsum(lengths))).astype(np.int64)
    dicts: list[dict[int, float]] = []
    for i in range(n):
        x: dict[int, float] = {}
        for k in range(indptr[i], indptr[i + 1]):
            slot = int(index[k] >> np.uint64(64 - bits))
            x[slot] = x.get(slot, 0.0) + value[k]
        dicts.append(x)
    return Features(indptr, index, value), dicts, (rng.random(n) < 0.3).astype(np.int8)


@pytest.mark.parametrize("bits", [4, 22])
@pytest.mark.parametrize(("beta", "l1", "l2"), [(1.0, 0.0, 1.0), (1.0, 0.5, 0.0), (0.0, 0.0, 0.0), (0.0, 0.1, 0.0)])
@pytest.mark.parametrize("size", [1, 64])
def test_ftrl_equals_its_twin_to_1e_9(bits: int, beta: float, l1: float, l2: float, size: int) -> None:
    features, dicts, labels = rows(600, 1, bits)
    model, twin = Ftrl(0.1, beta, l1, l2, bits), Twin(0.1, beta, l1, l2)
    for start in range(0, 600, size):
        end = min(600, start + size)
        low, high = features.indptr[start], features.indptr[end]
        part = Features(features.indptr[start : end + 1] - low, features.index[low:high], features.value[low:high])
        expected = [twin.p(x) for x in dicts[start:end]]
        assert np.abs(model.predict(part, never) - expected).max() < 1e-9
        model.learn(part, labels[start:end], never)
        for x, y in zip(dicts[start:end], labels[start:end], strict=True):
            twin.learn(x, int(y))


def test_a_restored_model_goes_on_as_if_nothing_had_happened() -> None:
    features, _, labels = rows(200, 2, 16)
    one, other = Ftrl(bits=16), Ftrl(bits=16)
    one.learn(features, labels, never)
    other.learn(features, labels[::-1].copy(), never)
    other.restore(made(one))
    assert np.array_equal(one.predict(features, never), other.predict(features, never))
    one.learn(features, labels, never)
    other.learn(features, labels, never)
    assert np.array_equal(one.predict(features, never), other.predict(features, never))
    with pytest.raises(ModelError, match="coordinate"):
        Ftrl(bits=4).restore(made(one))


def test_a_state_is_that_of_its_moment_whenever_it_is_picked() -> None:
    features, _, labels = rows(200, 2, 18)
    one, then = Ftrl(bits=18), Ftrl(bits=18)
    one.learn(features, labels, never)
    before = one.predict(features, never)
    state = one.state()
    one.learn(features, labels, never)
    then.restore({"used": state["used"]()})
    assert np.array_equal(then.predict(features, never), before)
    assert not np.array_equal(one.predict(features, never), before)


def never(row: int, reason: str, cause: str) -> bool:
    raise AssertionError(f"row {row}: {reason}: {cause}")


def made(model: Ftrl) -> dict[str, object]:
    return {name: call() for name, call in model.state().items()}


@pytest.mark.parametrize("bad", [{"alpha": 0.0}, {"l1": -1.0}, {"bits": 40}])
def test_parameters_out_of_range_are_refused_by_name(bad: dict[str, float]) -> None:
    with pytest.raises(ModelError, match=next(iter(bad))):
        Ftrl(**bad)


def of_values(rows: list[dict[int, float]], bits: int) -> Features:
    """`rows`: value by coordinate."""
    indptr = np.concatenate(([0], np.cumsum([len(x) for x in rows]))).astype(np.int64)
    index = np.array([i << (64 - bits) for x in rows for i in x], np.uint64)
    return Features(indptr, index, np.array([v for x in rows for v in x.values()], float))


class Heard:
    def __init__(self) -> None:
        self.rows: list[tuple[int, str]] = []

    def __call__(self, row: int, reason: str, cause: str) -> bool:
        self.rows.append((row, reason))
        return True


@pytest.mark.parametrize("huge", [1e160, 1e200, 1.7e308])
def test_values_beyond_what_a_double_can_learn_poison_nothing(huge: float) -> None:
    good = of_values([{0: 1.0, 1: 2.0}] * 20, 8)
    labels = np.tile(np.array([0, 1], np.int8), 10)
    model, twin = Ftrl(bits=8), Ftrl(bits=8)
    for one in (model, twin):
        one.learn(good, labels, never)
    heard = Heard()
    model.learn(
        of_values([{0: huge}, {0: 1.0}, {0: huge, 1: -huge}, {0: math.nan}], 8), np.array([1, 0, 1, 0], np.int8), heard
    )
    twin.learn(of_values([{0: 1.0}], 8), np.array([0], np.int8), never)
    assert heard.rows == [(0, "learn_overflow"), (2, "learn_overflow"), (3, "learn_overflow")]
    assert np.array_equal(model.predict(good, never), twin.predict(good, never))


def test_a_score_that_is_no_number_is_a_failure() -> None:
    model = Ftrl(alpha=5.0, l2=0.0, bits=8)
    model.learn(of_values([{0: 1.0}, {1: 1.0}] * 50, 8), np.array([0, 1] * 50, np.int8), never)
    heard = Heard()
    p = model.predict(of_values([{0: 1.0}, {0: 1.7e308, 1: 1.7e308}, {1: 1e300}, {0: math.nan}], 8), heard)
    assert heard.rows == [(1, "not_finite"), (3, "not_finite")]
    assert np.isnan(p).tolist() == [False, True, False, True]


def test_large_values_that_can_be_learned_are() -> None:
    heard = Heard()
    model = Ftrl(bits=8)
    model.learn(of_values([{0: 1e60}], 8), np.array([1], np.int8), heard)
    assert not heard.rows
    assert model.predict(of_values([{0: 1e60}], 8), never)[0] > 0.5
