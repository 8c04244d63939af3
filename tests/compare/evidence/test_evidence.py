"""The state of a comparison: any cut of the looks, any restart, the same bits; and verdicts that mean what they say."""

from __future__ import annotations

import functools
import itertools
import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streameval.compare.evidence import one_look, paired
from streameval.compare.evidence.evidence import DEFAULT_MARGINS, OVERALL, Capped, Evidence, Rule, harm
from streameval.compare.evidence.one_look import Path
from streameval.compare.evidence.paired import GAP, MID
from streameval.compare.evidence.ratio import Statistic
from streameval.compare.reading.reading import COMPARED
from streameval.sketches.blocks import BlockSums
from tests.compare.pairs import draw, pair_rows

MINUTE = 60_000
LOOKS, WINDOWS = 40, 4
ZERO = dict.fromkeys(COMPARED, 0.0)


def drawn_looks(noise: float = 0.5, seed: int = 0, n: int = 400) -> tuple[np.ndarray, np.ndarray, dict[str, Statistic]]:
    rng = np.random.default_rng(seed)
    rows = []
    for _ in range(LOOKS):
        block, y, p, q = draw(rng, n, noise=0.0)
        q = 1 / (1 + np.exp(-(np.log(q / (1 - q)) + noise * rng.normal(size=q.size))))
        rows.append(pair_rows(block, y, p, q))
    total = BlockSums(np.stack([r.blocks for r in rows]).cumsum(0), np.stack([r.scalars for r in rows]).cumsum(0))
    starts = [0, 10, 20, 30]
    before = BlockSums(
        np.stack([total.blocks[s - 1] if s else 0 * total.blocks[0] for s in starts]),
        np.stack([total.scalars[s - 1] if s else 0 * total.scalars[0] for s in starts]),
    )
    sums = paired.windows(total, before)
    sums = BlockSums(np.maximum(sums.blocks, 0) * 0 + sums.blocks, sums.scalars)
    for j, s in enumerate(starts):  # what has not begun is empty
        sums.blocks[:s, j] = 0
        sums.scalars[:s, j] = 0
    return np.arange(1, LOOKS + 1) * MINUTE, paired.clicks(sums), paired.statistics(sums)


all_looks = functools.cache(drawn_looks)  # takes kernels, and a while: not when tests are collected
RULE = Rule(alpha=0.05, margins=ZERO, windows=WINDOWS, min_duration=5 * MINUTE)


def advance(e: Evidence, part: slice, looks: tuple[np.ndarray, np.ndarray, dict[str, Statistic]] | None = None) -> Path:
    at, clicks, statistics = looks or all_looks()
    return e.advance(at[part], clicks[part], {k: s[part] for k, s in statistics.items()})


@given(st.lists(st.integers(1, LOOKS - 1), unique=True, max_size=8), st.booleans())
@settings(max_examples=40, deadline=None)
def test_any_cut_of_the_looks_and_any_restart_give_the_same_bits(cuts: list[int], restart: bool) -> None:
    whole = Evidence(RULE, 0)
    path = advance(whole, slice(None))
    e = Evidence(RULE, 0)
    parts = []
    edges = [0, *sorted(cuts), LOOKS]
    for a, b in itertools.pairwise(edges):
        parts.append(advance(e, slice(a, b)))
        if restart:
            e = Evidence.restore(RULE, json.loads(json.dumps(e.state())))
    assert np.array_equal(np.concatenate([p.log_e_worse for p in parts]), path.log_e_worse)
    assert np.array_equal(np.concatenate([p.log_e_not_worse for p in parts]), path.log_e_not_worse)
    assert np.array_equal(np.concatenate([p.verdict for p in parts]), path.verdict)
    assert json.dumps(e.state()) == json.dumps(whole.state())


def test_windows_that_have_not_begun_may_be_left_out() -> None:
    at, clicks, statistics = all_looks()
    e, f = Evidence(RULE, 0), Evidence(RULE, 0)
    a = e.advance(at[:10], clicks[:10], {k: s[:10] for k, s in statistics.items()})
    b = f.advance(at[:10], clicks[:10, :1], {k: s[:10, :1] for k, s in statistics.items()})
    assert np.array_equal(a.log_e_worse, b.log_e_worse)
    assert e.state() == f.state()


def test_a_worse_version_is_called_worse_when_the_evidence_reaches_the_level() -> None:
    e = Evidence(RULE, 0)
    path = advance(e, slice(None))
    s = e.standing()
    assert s.verdict == "worse"
    ready = (all_looks()[0] >= RULE.min_duration) & (all_looks()[1][:, 0] >= RULE.min_clicks)
    first = np.flatnonzero(ready & (path.log_e_worse[:, OVERALL] >= np.log(20)))[0]
    assert s.worse_at == all_looks()[0][first]
    assert path.verdict[first, OVERALL] == 1
    assert (path.verdict[:first, OVERALL] != 1).all()
    assert s.peak_worse == path.log_e_worse[ready, OVERALL].max()
    assert e.standing("log_loss").verdict == "worse"


def test_no_verdict_before_the_floors() -> None:
    for rule in (
        Rule(alpha=0.05, margins=ZERO, windows=WINDOWS, min_duration=LOOKS * MINUTE + 1),
        Rule(alpha=0.05, margins=ZERO, windows=WINDOWS, min_duration=0, min_clicks=10**6),
        Rule(alpha=0.05, margins=ZERO, windows=WINDOWS, min_duration=0, min_blocks=65),
    ):
        e = Evidence(rule, 0)
        assert (advance(e, slice(None)).verdict == 0).all()
        assert e.standing().verdict == "undecided"
        assert e.standing().peak_worse == pytest.approx(0.0, abs=1e-12)


def test_an_equal_version_is_certified_and_may_still_break() -> None:
    e = Evidence(RULE, 0)
    path = advance(e, slice(None), drawn_looks(noise=0.01))
    assert e.standing().verdict == "not_worse"
    assert set(path.verdict[:, OVERALL]) == {0, 2}
    certified_at = e.standing().not_worse_at
    at, clicks, statistics = drawn_looks(noise=1.5, seed=1)
    e.advance(at + LOOKS * MINUTE, clicks, statistics)
    assert e.standing().verdict == "worse"
    assert e.standing().not_worse_at == certified_at  # on record


def test_bounds_hold_the_estimate_and_exclude_the_margin_only_with_a_verdict() -> None:
    e = Evidence(Rule(alpha=0.05, margins=ZERO, windows=1, min_duration=0), 0)
    at, clicks, statistics = all_looks()
    first = {k: s[:, :1] for k, s in statistics.items()}
    path = e.advance(at, clicks[:, :1], first)
    bounds = e.bounds({k: s[:, 0] for k, s in first.items()}, clicks[:, 0])
    points = harm({k: s[:, 0] for k, s in first.items()})
    assert set(bounds) == {"log_loss", "auc", "calibration"}
    for name, (lower, upper) in bounds.items():
        ok = np.isfinite(points[name])
        assert (lower[ok] <= points[name][ok]).all()
        assert (upper[ok] >= points[name][ok]).all()
    ready = clicks[:, 0] >= 200
    above = bounds["log_loss"][0] > 0
    assert (path.log_e_worse[above & ready, 0] >= np.log(1 / 0.05)).all()  # bounds are two-sided, hence wider


def test_before_anything_is_known_bounds_are_infinite() -> None:
    e = Evidence(RULE, 0)
    lower, upper = e.bounds({k: s[:1, 0] for k, s in all_looks()[2].items()}, all_looks()[1][:1, 0])["log_loss"]
    assert lower[0] == -np.inf
    assert upper[0] == np.inf


def test_missing_metrics_count_one() -> None:
    e = Evidence(RULE, 0)
    path = e.advance(all_looks()[0], all_looks()[1], {})
    assert np.abs(path.log_e_worse).max() < 1e-12
    assert (path.log_e_not_worse == 0).all()


def test_both_pieces_of_calibration_are_needed() -> None:
    def flat(theta: float, v: float) -> Statistic:
        one = np.ones((1, 1))
        return Statistic(theta * one, 1000 * one, v * one, v * one, 63 * one, 64 * one)

    def log_e(mid: float, gap: float) -> float:
        e = Evidence(Rule(windows=1, min_duration=0), 0)
        got = e.advance(np.array([MINUTE]), np.array([[1000]]), {MID: flat(mid, 1e-4), GAP: flat(gap, 1e-4)})
        return float(got.log_e_worse[0, 3])

    assert log_e(0.4, 0.4) > 20
    assert log_e(-0.4, -0.4) > 20
    assert log_e(0.4, 0.0) < 0
    assert log_e(0.4, -0.4) < 0  # the candidate mends it


def known(theta: float, v: float, clicks: int, df: float = 63.0, v_floor: float = 0.0) -> Statistic:
    """One look at one window."""
    one = np.ones((1, 1))
    return Statistic(theta * one, clicks * one, v * one, v * one, df * one, 64 * one, np.array(v_floor))


def equal_looks(counts: list[int], odd: float = 0.0) -> tuple[np.ndarray, np.ndarray, dict[str, Statistic]]:
    """Looks at the same scores under two names, but for one impression (not clicked) whose pClick has odds e**odd times."""
    rng = np.random.default_rng(3)
    block, y, p, _ = draw(rng, max(counts), noise=0.0)
    q = p.copy()
    i = int(np.flatnonzero(y == 0)[0])
    q[i] = 1 / (1 + np.exp(-(np.log(p[i] / (1 - p[i])) + odd)))
    rows = [pair_rows(block[:n], y[:n], p[:n], q[:n]) for n in counts]
    sums = BlockSums(np.stack([r.blocks for r in rows])[:, None], np.stack([r.scalars for r in rows])[:, None])
    return np.arange(1, len(counts) + 1) * 60 * MINUTE, paired.clicks(sums), paired.statistics(sums)


@pytest.mark.parametrize("alpha", [0.05, 0.01, 0.001])
@pytest.mark.parametrize("min_clicks", [10, 200, 1000])
@pytest.mark.parametrize("df", [63.0, 1.5])
def test_equal_scores_are_certified_at_the_first_look_after_the_floors(
    alpha: float, min_clicks: int, df: float
) -> None:
    rule = Rule(alpha=alpha, min_clicks=min_clicks, min_duration=60 * MINUTE)
    e = Evidence(rule, 0)
    one, clicks = np.ones((3, 1)), np.array([[5 * min_clicks], [min_clicks - 1], [min_clicks]])
    same = Statistic(0 * one, clicks.astype(float), 0 * one, 0 * one, df * one, 64 * one)
    path = e.advance(np.array([59, 60, 61]) * MINUTE, clicks, dict.fromkeys(("log_loss", "auc", "gauc"), same))
    for name in (None, "log_loss", "auc", "gauc"):
        assert e.standing(name).verdict == "not_worse"
        assert e.standing(name).not_worse_at == 61 * MINUTE
    assert np.isfinite(path.log_e_not_worse).all()
    lower, upper = e.bounds({"auc": same[2, 0]}, min_clicks)["auc"]
    assert -0.005 < lower < 0 < upper < 0.005


def test_an_identical_redeploy_is_certified_and_never_called_worse() -> None:
    at, clicks, statistics = equal_looks([3_000, 6_000, 100_000])
    assert clicks[0, 0] >= 200
    assert all(not statistics[name].variance().any() for name in ("log_loss", "auc"))
    e = Evidence(Rule(alpha=0.01), 0)
    path = e.advance(at, clicks, statistics)
    assert e.standing().not_worse_at == at[0]
    assert (path.log_e_worse <= 0.1).all()


@pytest.mark.parametrize("odd", [-8.0, -1.0, 1e-6, 1.0, 8.0])
def test_one_odd_impression_is_no_certainty(odd: float) -> None:
    at, clicks, statistics = equal_looks([3_000, 6_000, 100_000], odd)
    assert statistics["log_loss"].variance().all()
    e = Evidence(Rule(alpha=0.01, margins=ZERO), 0)
    path = e.advance(at, clicks, statistics)
    assert (np.abs(path.log_e_worse) < 5).all()
    assert np.isfinite(path.log_e_not_worse).all()
    assert e.standing().worse_at is None


@pytest.mark.parametrize("theta", [-1e-9, 1e-9])
def test_dust_is_no_evidence_either_way(theta: float) -> None:
    e = Evidence(Rule(alpha=0.05, margins=ZERO), 0)
    clicks = np.array([[200], [20_000], [2_000_000]])
    one = np.ones((3, 1))
    looks = Statistic(theta * one, clicks.astype(float), 1e-40 * one, 0 * one, 63 * one, 64 * one)
    path = e.advance(np.array([1, 2, 3]) * 60 * MINUTE, clicks, {"log_loss": looks, "auc": looks})
    assert (np.abs(path.log_e_worse[:, [0, 1, OVERALL]]) < 0.3).all()
    assert np.isfinite(path.log_e_not_worse).all()
    assert e.standing().verdict == "not_worse"


def test_a_variance_known_beforehand_counts() -> None:
    def log_e(v_floor: float) -> float:
        e = Evidence(Rule(windows=1, min_duration=0), 0)
        got = e.advance(np.array([MINUTE]), np.array([[1000]]), {"log_loss": known(0.0, 1e-8, 1000, v_floor=v_floor)})
        return float(got.log_e_not_worse[0, 0])

    assert log_e(0.0) > 10
    assert log_e(1e-4) < 1


def looked(theta: float, se: float, clicks: int = 3000) -> Statistic:
    """One look of one window, with its errors as everywhere at 3,000 clicks."""
    return known(theta, se * se * 3000 / clicks, clicks)


def overall(**thetas: float) -> tuple[Evidence, Path]:
    """Two looks, of 500 and 3,000 clicks, at harms given in standard errors of the second."""
    e = Evidence(Rule(alpha=0.05, margins=ZERO, min_duration=0), 0)
    for clicks in (500, 3000):
        some = {name: looked(z * 0.003, 0.003, clicks) for name, z in thetas.items()}
        path = e.advance(np.array([clicks]), np.array([[clicks]]), some, correlation=np.full((1, 1), 0.9))
    return e, path


def test_the_overall_verdict_is_of_log_loss_and_auc_together() -> None:
    one, both = overall(log_loss=3.0, auc=0.0)[1], overall(log_loss=3.0, auc=3.0)[1]
    assert both.log_e_worse[0, 0] == one.log_e_worse[0, 0]  # a metric's own verdict is its own
    assert both.log_e_worse[0, OVERALL] > one.log_e_worse[0, OVERALL] + 0.5
    assert both.log_e_worse[0, OVERALL] > both.log_e_worse[0, 0] - 0.2  # no price for sharing the level
    less = overall(log_loss=3.0, auc=-3.0)[1]
    assert less.log_e_worse[0, OVERALL] < one.log_e_worse[0, OVERALL]
    # the hedge: the same ranking, worse calibrated
    assert overall(log_loss=5.0, auc=0.0)[0].standing().verdict == "worse"


def test_the_overall_evidence_is_reported_on_the_scale_of_the_level() -> None:
    level, less = np.log(20), Rule(alpha=0.05).log_level()
    assert 2.5 < less < level
    assert Rule(alpha=0.05, windows=3).log_level() == pytest.approx(level)  # what the table is not of
    values = np.linspace(-3, 8, 200)
    told = np.array([one_look.rescaled(x, level, less) for x in values])
    assert (np.diff(told) > 0).all()
    assert one_look.rescaled(0.0, level, less) == 0.0
    assert one_look.rescaled(less, level, less) == pytest.approx(level)
    assert one_look.rescaled(less + 1, level, less) == pytest.approx(level + 1)
    assert (told[values > 0] <= values[values > 0] + level - less + 1e-9).all()


def test_a_second_process_of_capped_users_is_averaged_with_the_first() -> None:
    def log_es(plain: float, capped: float | None) -> tuple[float, float, float]:
        e = Evidence(Rule(alpha=0.05, margins=ZERO, min_duration=0, windows=1), 0)
        clicks = np.array([[3000]])
        some = {"log_loss": looked(plain, 0.003), "auc": looked(plain, 0.003)}
        less = {"log_loss": looked(capped or 0.0, 0.003), "auc": looked(capped or 0.0, 0.003)}
        path = e.advance(np.array([1]), clicks, some, capped=None if capped is None else Capped(clicks, less))
        return float(path.log_e_worse[0, 0]), float(path.log_e_worse[0, OVERALL]), float(path.log_e_not_worse[0, 0])

    alone = log_es(0.012, None)
    assert log_es(0.012, 0.012) == pytest.approx(alone)
    for i in range(2):
        both, calm = log_es(0.012, 0.0), log_es(0.0, None)
        assert alone[i] - np.log(2) * 1.2 < both[i] < alone[i]
        assert log_es(0.0, 0.012)[i] == pytest.approx(both[i])  # what heavy users drown is found by the other one
        assert calm[i] < both[i]
    assert log_es(0.0, 0.012)[2] == log_es(0.0, None)[2]  # the certificate is of all impressions


def test_a_capped_process_that_has_not_enough_counts_one_and_is_kept_over_a_restart() -> None:
    at, clicks, statistics = all_looks()
    e, f = Evidence(RULE, 0), Evidence(RULE, 0)
    few = {name: Statistic(s.theta, s.weight, s.v_clu, s.v_iid, s.df, 0 * s.blocks) for name, s in statistics.items()}
    path = e.advance(at, clicks, statistics, capped=Capped(clicks, few))
    alone = f.advance(at, clicks, statistics)
    calm = np.logaddexp(alone.log_e_worse[:, 0], 0.0) - np.log(2)
    assert np.abs(path.log_e_worse[:, 0] - calm).max() < 1e-9
    parts, g = [], Evidence(RULE, 0)
    for k in range(LOOKS):
        part = slice(k, k + 1)
        some = {name: s[part] for name, s in statistics.items()}
        parts.append(g.advance(at[part], clicks[part], some, capped=Capped(clicks[part], some)).log_e_worse)
        g = Evidence.restore(RULE, json.loads(json.dumps(g.state())))
    whole = Evidence(RULE, 0).advance(at, clicks, statistics, capped=Capped(clicks, statistics)).log_e_worse
    assert np.array_equal(np.concatenate(parts), whole)


@pytest.mark.parametrize("capped", [False, True])
@pytest.mark.parametrize("metric", ["log_loss", "auc"])
def test_no_interval_beyond_the_margin_stands_beside_an_undecided_metric(metric: str, capped: bool) -> None:
    margins = dict.fromkeys(COMPARED, 0.001)
    seen = {"worse": 0, "not_worse": 0}
    for z in np.linspace(-6, 8, 141):
        e = Evidence(Rule(alpha=0.01, margins=margins, min_duration=0), 0)
        clicks = np.array([[3000]])
        plain, calm = {metric: looked(z * 0.002, 0.002)}, {metric: looked(0.0, 0.002)}
        e.advance(np.array([1]), clicks, plain, capped=Capped(clicks, calm) if capped else None)
        lower, upper = e.bounds({metric: plain[metric][0, 0]}, 3000)[metric]
        verdict = e.standing(metric).verdict
        assert lower <= 0.001 or verdict == "worse"
        assert upper >= 0.005 or verdict == "not_worse"
        seen["worse"] += lower > 0.001
        seen["not_worse"] += upper < 0.005
    assert min(seen.values()) > 10


def test_what_was_found_from_labels_that_were_corrected_is_taken_back() -> None:
    e = Evidence(Rule(alpha=0.05, margins=ZERO, min_duration=0), 0)

    def look(at: int, z: float) -> None:
        e.advance(np.array([at]), np.array([[3000]]), {"log_loss": looked(z * 0.003, 0.003)})

    look(1, 0.0)
    look(2, 6.0)
    assert e.standing().verdict == e.standing("log_loss").verdict == "worse"
    assert e.retract(at=3, since=3) == ()
    assert e.standing().verdict == "worse"
    assert e.retract(at=3, since=2) == ("log_loss", "overall")
    standing = e.standing()
    assert (standing.verdict, standing.worse_at, standing.retracted_at) == ("undecided", None, 3)
    assert standing.peak_worse == 0.0
    assert e.standing("auc").retracted_at is None
    e = Evidence.restore(e.rule, json.loads(json.dumps(e.state())))
    assert e.standing().retracted_at == 3
    look(4, 0.0)
    assert e.standing().verdict == "undecided"
    look(5, 6.0)
    assert (e.standing().worse_at, e.standing().retracted_at) == (5, 3)  # found again, from what is there now


def test_rules_and_looks_that_make_no_sense_are_refused() -> None:
    for wrong in (
        {"alpha": 0.6},
        {"margins": {"auc": 0.0}},
        {"weights": dict.fromkeys(COMPARED, 0.5)},
        {"certified": ()},
        {"windows": 0},
        {"tolerances": dict.fromkeys(COMPARED, 0.0)},
        {"first_weight": 0.0},
    ):
        with pytest.raises(ValueError, match=r"\w"):
            Rule(**wrong)  # type: ignore[arg-type]
    e = Evidence(RULE, 0)
    with pytest.raises(ValueError, match="clicks"):
        e.advance(all_looks()[0], all_looks()[1][:, 0], {})
    with pytest.raises(ValueError, match="auc"):
        e.advance(all_looks()[0], all_looks()[1], {"auc": all_looks()[2]["auc"][:, 0]})
    with pytest.raises(ValueError, match="windows"):
        Evidence.restore(Rule(windows=3), e.state())
    assert Rule().window_weights().sum() == pytest.approx(1.0)
    assert Rule(windows=1).window_weights().tolist() == [1.0]
    assert set(DEFAULT_MARGINS) == set(COMPARED)
