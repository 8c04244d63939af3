"""The normal mixture: equal to confseq's, an e-value by quadrature, its boundary and its t correction right."""

from __future__ import annotations

import csv
import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from scipy.special import log_ndtr

from streameval.compare.evidence import eprocess
from streameval.compare.evidence.eprocess import (
    best_rho,
    e_bh,
    half_width,
    log_e,
    log_normal_cdf,
    normal_score,
    t_score,
    weighted_mean,
)

CONFSEQ = list(csv.DictReader((Path(__file__).parent / "confseq_0_0_11.csv").read_text().splitlines()))


def test_the_boundary_and_the_mixture_are_those_of_confseq_to_1e9() -> None:
    rows = np.array([[float(x) for x in row.values()] for row in CONFSEQ])
    for v, v_opt, alpha, bound, s, mixture in rows:
        rho = best_rho(v_opt, alpha)
        assert half_width(v, rho, alpha) == pytest.approx(bound, rel=1e-9)
        assert log_e(s, v, rho) == pytest.approx(mixture, rel=1e-9, abs=1e-9)


@pytest.mark.parametrize("ratio", [0.01, 0.1, 1.0, 10.0, 1000.0])
def test_its_mean_under_the_null_is_one(ratio: float) -> None:
    # by quadrature: a Monte Carlo mean of it has infinite variance
    rho = float(best_rho(1.0, 0.05))
    z = np.linspace(-40 * max(1.0, ratio**0.5), 40 * max(1.0, ratio**0.5), 400_001)
    density = np.exp(log_e(z * math.sqrt(ratio), ratio, rho) + stats.norm.logpdf(z))
    assert np.trapezoid(density, z) == pytest.approx(1.0, abs=1e-6)


def test_a_drift_below_the_null_makes_it_smaller() -> None:
    z = np.linspace(-40, 40, 100_001)
    for mean in (-0.1, -1.0, -5.0):
        e = np.trapezoid(np.exp(log_e(z + mean, 1.0, 0.3) + stats.norm.logpdf(z)), z)
        assert e < 1.0


@given(st.floats(-200, 40))
def test_log_normal_cdf_is_scipys(x: float) -> None:
    assert log_normal_cdf(x) == pytest.approx(float(log_ndtr(x)), rel=1e-12, abs=1e-300)


@given(st.floats(0.01, 10), st.floats(30, 400))
def test_t_becomes_normal_as_in_scipy(t: float, df: float) -> None:
    exact = float(stats.norm.isf(stats.t.sf(t, df)))
    assert normal_score(t, df) == pytest.approx(exact, rel=1.1e-3)
    if t > 2:
        assert normal_score(t, df) <= exact * (1 + 1e-9)  # careful
    assert t_score(normal_score(t, df), df) == pytest.approx(t, rel=1e-9)


@given(st.floats(1e-6, 1e6), st.floats(1e-3, 1e3), st.floats(1e-9, 0.4), st.one_of(st.none(), st.floats(20, 200)))
def test_the_half_width_is_where_the_evidence_reaches_the_level(
    v: float, scale: float, alpha: float, df: float | None
) -> None:
    rho = scale * v
    h = half_width(v, rho, alpha, df)
    if np.isfinite(h):
        assert log_e(h, v, rho, df) == pytest.approx(math.log(1 / alpha), rel=1e-8)


def test_rho_is_best_where_it_says() -> None:
    rho = float(best_rho(4.0, 0.01))
    here = half_width(4.0, rho, 0.01)
    # confseq's closed form is of the two-sided mixture at 2 alpha: nearly the best
    assert here <= min(half_width(4.0, rho * f, 0.01) for f in (0.2, 0.5, 2.0, 5.0))
    with pytest.raises(ValueError, match="alpha"):
        best_rho(1.0, 0.5)


def test_means_of_e_values() -> None:
    assert weighted_mean([math.log(8.0), 0.0], [0.25, 0.75]) == pytest.approx(math.log(2.75))
    assert weighted_mean([2000.0, -2000.0], [0.5, 0.5]) == pytest.approx(2000.0 - math.log(2.0))


def test_e_bh_rejects_the_largest() -> None:
    values = np.log([4 / 0.05 * 1.01, 1.0, 4 / (2 * 0.05) * 1.01, 2.0])
    assert e_bh(values, 0.05).tolist() == [True, False, True, False]
    assert not e_bh(np.zeros(3), 0.05).any()
    assert e_bh(np.empty(0), 0.05).shape == (0,)
    assert eprocess.e_bh(np.log([39.0, 39.0]), 0.05).tolist() == [True, True]  # each alone would not be
