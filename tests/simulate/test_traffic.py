"""The world and its events: seeded, known truth, independent of how they are consumed."""

from __future__ import annotations

from dataclasses import fields, replace

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

from streameval.simulate.scenario import Scenario, Version, bench_scenario, demo_scenario
from streameval.simulate.traffic import Block, Traffic


def joined(scenario: Scenario) -> dict[str, np.ndarray]:
    """Every per-impression column of all blocks."""
    blocks = list(Traffic(scenario).blocks())
    rows = [f.name for f in fields(Block) if not f.name.startswith("click_")]
    return {name: np.concatenate([getattr(block, name) for block in blocks]) for name in rows}


def same(one: Block, other: Block) -> bool:
    return all(np.array_equal(getattr(one, f.name), getattr(other, f.name)) for f in fields(Block))


def test_the_same_seed_makes_the_same_blocks_and_another_seed_others() -> None:
    scenario = Scenario(duration_s=30, late_share=0.1, unmatched=0.1)
    once, again = list(Traffic(scenario).blocks()), list(Traffic(scenario).blocks())
    other = list(Traffic(replace(scenario, seed=2)).blocks())
    assert len(once) == len(again) == 3
    assert all(same(a, b) for a, b in zip(once, again, strict=True))
    assert not any(same(a, b) for a, b in zip(once, other, strict=True))


def test_blocks_do_not_depend_on_how_long_the_scenario_goes_on_or_on_two_readers_taking_turns() -> None:
    short, long = Traffic(Scenario(duration_s=30)), Traffic(Scenario(duration_s=90))
    alone = list(Traffic(Scenario(duration_s=90)).blocks())
    for expected, a, b in zip(alone, short.blocks(), long.blocks(), strict=False):
        assert same(a, expected)
        assert same(b, expected)


def test_times_are_in_order_inside_the_block_and_clicks_come_after_their_impression() -> None:
    scenario = Scenario(duration_s=25, rate=500)
    for number, block in enumerate(Traffic(scenario).blocks()):
        begin = scenario.start_ms + number * 10_000
        assert (np.diff(block.ts) >= 0).all()
        assert block.ts[0] >= begin
        assert block.ts[-1] < min(begin + 10_000, scenario.start_ms + 25_000)
        assert (block.click_ts > block.ts[block.click_of]).all()
        assert block.clicked[block.click_of].all()
        assert block.click_of.size == block.clicked.sum()


@pytest.mark.parametrize("ctr", [0.01, 0.06, 0.2])
def test_the_click_rate_is_near_its_target_and_the_truth_is_calibrated(ctr: float) -> None:
    seen = [joined(Scenario(seed=seed, duration_s=200, rate=300, ctr=ctr)) for seed in range(6)]
    rates = [s["clicked"].mean() for s in seen]
    assert np.mean(rates) == pytest.approx(ctr, rel=0.3)
    for s in seen:
        error = 5 * np.sqrt((s["p_star"] * (1 - s["p_star"])).sum()) / s["p_star"].size
        assert s["clicked"].mean() == pytest.approx(s["p_star"].mean(), abs=error)


def test_the_rate_follows_the_day_around_its_mean() -> None:
    sizes = []
    for hour in range(0, 24, 2):
        scenario = Scenario(start_ms=1_760_054_400_000 + hour * 3_600_000, duration_s=30, rate=300)
        sizes.append(joined(scenario)["ts"].size / 30)
    assert np.mean(sizes) == pytest.approx(300, rel=0.05)
    assert max(sizes) / min(sizes) > 1.4


def test_the_bad_deploy_of_the_demo_takes_all_traffic_at_30_s_and_is_worse_and_overconfident() -> None:
    scenario = replace(demo_scenario(Scenario().start_ms, 180.0), rate=600.0)
    s = joined(scenario)
    after = s["ts"] >= scenario.start_ms + 30_000
    edge = np.abs(s["ts"] - scenario.start_ms - 30_000) > 1
    assert np.array_equal(s["version"][edge] == 1, after[edge])
    v1, v2 = (roc_auc_score(s["clicked"], s["pclick"][:, v]) for v in (0, 1))
    assert v1 > v2 + 0.05
    served_v2 = s["version"] == 1
    predicted, clicked = s["pclick"][served_v2, 1].mean(), s["clicked"][served_v2].mean()
    assert predicted > 1.3 * clicked
    assert s["pclick"][:, 0].mean() == pytest.approx(s["clicked"].mean(), rel=0.15)


def test_random_labels_leave_nothing_to_predict() -> None:
    s = joined(Scenario(duration_s=200, rate=400, ctr=0.2, random_labels=True))
    clicks = int(s["clicked"].sum())
    error = np.sqrt(1 / (12 * clicks) + 1 / (12 * (s["clicked"].size - clicks)))
    assert roc_auc_score(s["clicked"], s["pclick"][:, 0]) == pytest.approx(0.5, abs=4 * error)


def test_a_version_makes_the_same_error_for_the_same_user_and_item() -> None:
    s = joined(Scenario(duration_s=200, users=20, items=10, versions=(Version("v1", noise=1.0),)))
    logit = np.log(s["p_star"] / (1 - s["p_star"]))
    error = np.log(s["pclick"][:, 0] / (1 - s["pclick"][:, 0])) - logit
    pair = s["user"] * 10 + s["item"]
    shown = [error[pair == one] for one in np.unique(pair)]
    assert max(np.ptp(e) for e in shown if e.size > 1) < 1e-9
    assert np.std([e[0] for e in shown]) == pytest.approx(1.0, rel=0.3)


def test_a_few_users_are_very_active() -> None:
    s = joined(Scenario(duration_s=300))
    counts = np.sort(np.bincount(s["user"], minlength=2000))[::-1]
    assert counts[:200].sum() > 0.3 * counts.sum()


def test_no_click_arrives_in_the_dead_seconds() -> None:
    scenario = Scenario(duration_s=60, dead_clicks=(20.0, 30.0))
    at = np.concatenate([b.click_ts for b in Traffic(scenario).blocks()]) - scenario.start_ms
    assert not ((at >= 20_000) & (at < 30_000)).any()
    assert (at < 20_000).any()
    assert (at >= 30_000).any()


def test_the_benchmark_has_as_many_impressions_as_asked_and_eight_features() -> None:
    from streameval.simulate.encode import events

    traffic = Traffic(bench_scenario(20_000))
    shown = [e for e in events(traffic) if e.kind == "impression"]
    assert len(shown) == pytest.approx(20_000, rel=0.35)  # the hour's volume, +-30 %, on top of chance
    assert {len(e.fields["features"]) for e in shown} == {8}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("rate", 0), ("rate", float("nan")), ("duration_s", -1), ("duration_s", float("inf")), ("users", 0),
        ("request_size", 2.5), ("ctr", 1), ("late_share", -0.1), ("malformed", 1.5), ("shuffle_s", -1.0),
        ("seed", -1), ("seed", 1 << 60), ("start_ms", -5), ("dead_clicks", (30.0, 20.0)), ("versions", ()),
    ],
)  # fmt: skip
def test_a_bad_value_is_refused_by_its_name_and_value(name: str, value: object) -> None:
    with pytest.raises(ValueError) as refused:
        replace(Scenario(), **{name: value})
    assert str(refused.value).startswith(f"{name} = {value}: ")


def test_a_bad_version_is_refused_by_its_name_and_two_cannot_share_one() -> None:
    with pytest.raises(ValueError, match=r"version v9: share = 2: must be between 0 and 1"):
        Version("v9", share=2)
    with pytest.raises(ValueError, match=r"version v9: noise = -1: must not be negative"):
        Version("v9", noise=-1)
    with pytest.raises(ValueError, match=r"the names must differ"):
        Scenario(versions=(Version("v1"), Version("v1")))
