"""What versions would have earned with their own policies, against sums over single impressions; and the check of the log."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

import numpy as np
import pytest

from streameval.events.batch import Catalog
from streameval.settings.tree import Settings
from streameval.sources.formats.decode import Decoder
from tests.exposure.worlds import T0, log, make_settings, results

LEAST, MOST = 1e-4, 100.0


@cache
def replayed() -> tuple[list[dict[str, Any]], dict[str, dict[str, Any]]]:
    events = log(40_000)
    return events, results(events, make_settings())


def told(events: list[dict[str, Any]], version: str) -> list[dict[str, Any]]:
    return [e for e in events if "policies" in e and "propensity" in e and version in e["policies"]]


def columns(events: list[dict[str, Any]], version: str) -> tuple[np.ndarray, ...]:
    """(weight, click, value) of the impressions that say anything of the version's policy."""
    values: dict[str, float] = {}
    for e in events:
        if e.get("type") == "click":
            values[e["impression_id"]] = max(e["value"], values.get(e["impression_id"], 0.0))
    some = told(events, version)
    weight = np.array([e["policies"][version] / max(e["propensity"], LEAST) for e in some])
    clicked = np.array([float(e["impression_id"] in values) for e in some])
    return weight, clicked, np.array([values.get(e["impression_id"], 0.0) for e in some])


@pytest.mark.slow
@pytest.mark.parametrize("version", ["v2", "never"])
def test_policies_are_the_formulas_also_of_a_version_that_never_predicted(version: str) -> None:
    events, found = replayed()
    mine = found[version]
    weight, _, value = columns(events, version)
    assert mine["policy_impressions"] == weight.size
    assert mine["policy_mean_weight"] == pytest.approx(weight.mean(), rel=1e-9)
    assert mine["policy_ess"] == pytest.approx(weight.sum() ** 2 / (weight**2).sum(), rel=1e-9)
    small = np.array([e["propensity"] < LEAST for e in told(events, version)])
    assert mine["policy_clipped"] == pytest.approx(((weight > MOST) | small).mean(), rel=1e-12)
    assert mine["impressions"] == (40_000 if version == "v2" else 0)
    if version == "never":
        assert mine["auc"] is None
        assert mine["reasons"]["log_loss"] == "no_impressions"
    assert value.sum() > 0


def consistent(n: int, seed: int, wrong: float = 1.0) -> list[dict[str, Any]]:
    """Slots of three items, logged by one policy whose propensities are as `wrong` as said; two others are told of."""
    rng = np.random.default_rng(seed)
    out = []
    for i in range(n):
        scores = rng.normal(size=3)
        logging, other = np.exp(scores) / np.exp(scores).sum(), np.exp(-scores) / np.exp(-scores).sum()
        item = int(rng.choice(3, p=logging))
        user, click = f"u{rng.integers(600)}", rng.random() < [0.1, 0.3, 0.6][item]
        event = {
            "impression_id": f"i{i}", "ts": T0 + 25 * i, "user_id": user, "pclick": 0.2, "model_version": "v1",
            "propensity": float(min(1.0, logging[item] * wrong)), "clicked": int(click),
            "policies": {"v1": float(logging[item]), "other": float(other[item]), "third": float(item == 2)},
        }  # fmt: skip
        out.append(event)
    return out


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_policy_is_estimated_within_its_error_from_what_another_one_showed(seed: int) -> None:
    found = results(consistent(20_000, seed), make_settings())
    for version, truth in (("v1", 1 / 3), ("other", 1 / 3), ("third", 0.6)):
        mine = found[version]
        assert abs(mine["policy_mean_weight"] - 1) <= 4 * max(mine["policy_mean_weight_stderr"], 1e-12)
        for name in ("policy_ips", "policy_snips"):
            assert abs(mine[name] - truth) < 4 * mine[f"{name}_stderr"]
            assert mine[f"{name}_stderr"] < 0.05


def test_estimates_are_the_formulas() -> None:
    events = consistent(5_000, 4)
    rng = np.random.default_rng(1)
    for e in [e for e in events if e.pop("clicked")]:
        click = {
            "type": "click",
            "impression_id": e["impression_id"],
            "ts": e["ts"] + 9,
            "value": float(rng.gamma(2, 20)),
        }
        events.append({**click, "user_id": e["user_id"]})
    events.sort(key=lambda e: e["ts"])
    found = results(events, make_settings(exposure={"max_weight": 2}))["other"]
    weight, click, value = columns(events, "other")
    for suffix, w in (("", weight), ("_clipped", np.minimum(weight, 2))):
        assert found[f"policy_ips{suffix}"] == pytest.approx((w * click).mean(), rel=1e-9)
        assert found[f"policy_snips{suffix}"] == pytest.approx((w * click).sum() / w.sum(), rel=1e-9)
        assert found[f"policy_value_snips{suffix}"] == pytest.approx((w * value).sum() / w.sum(), rel=1e-9)
    assert value.max() > 50


def test_errors_of_values_do_not_depend_on_their_unit() -> None:
    events = consistent(5_000, 5)
    events = [{**e, "clicked": 0} for e in events if not e["clicked"]] + [
        {key: e[key] for key in e if key != "clicked"} for e in events if e["clicked"]
    ]
    clicks = [e for e in events if "clicked" not in e]

    def errors(unit: float) -> tuple[float, float]:
        said = [
            {
                "type": "click",
                "impression_id": e["impression_id"],
                "ts": e["ts"] + 9,
                "user_id": e["user_id"],
                "value": unit,
            }
            for e in clicks
        ]
        found = results(sorted([*events, *said], key=lambda e: e["ts"]), make_settings())["other"]
        return found["policy_value_snips"] / unit, found["policy_value_snips_stderr"] / unit

    seconds = errors(1.0)
    assert errors(1e-4) == pytest.approx(seconds, rel=1e-3)
    assert errors(1e6) == pytest.approx(seconds, rel=1e-9)


def test_propensities_that_are_wrong_give_no_estimate_and_say_so() -> None:
    found = results(consistent(20_000, 1, wrong=1.1), make_settings())
    for version in ("v1", "other"):
        assert found[version]["policy_snips"] is None
        assert found[version]["policy_value_snips_clipped"] is None
        assert found[version]["reasons"]["policy_snips"] == "propensities_inconsistent"
        assert found[version]["policy_mean_weight"] == pytest.approx(1 / 1.1, abs=0.05)


def test_few_impressions_accuse_nobody() -> None:
    found = results(consistent(60, 1, wrong=1.3), make_settings())
    assert found["v1"]["policy_snips"] is not None


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("propensity", 0),
        ("propensity", 1.0001),
        ("propensity", -0.1),
        ("policies", {"v2": 1.5}),
        ("policies", {"v2": -0.1}),
    ],
)
def test_what_is_no_probability_is_a_dead_letter(field: str, value: object) -> None:
    event = {"impression_id": "a", "ts": T0, "user_id": "u", "pclick": 0.5, "propensity": 0.5, field: value}
    decoder = Decoder(Catalog(), clock=lambda: T0, max_future=0)
    batch, letters = decoder.messages(
        [json.dumps(event).encode()], [0], topic=("t",), partition=0, offsets=[0], format="json", shared=True
    )
    assert not len(batch)
    assert [(letter.reason, letter.field) for letter in letters] == [("out_of_range", field)]


@pytest.mark.parametrize(
    ("exposure", "words"),
    [
        ({"propensity": "naive_bayes"}, "needs a slice whose impressions"),
        ({"propensity": "naive_bayes", "randomised": "random"}, "needs a slice whose impressions"),
        ({"propensity": "naive_bayes", "randomised": "policy:random"}, "not in slices.dimensions"),
        ({"propensity": "guessed"}, "propensity"),
        ({"min_propensity": 1e-5}, "min_propensity"),
        ({"min_propensity": 0}, "min_propensity"),
        ({"max_weight": 0.5}, "max_weight"),
        ({"randomised": "policy:random"}, "randomised"),
    ],
)
def test_settings_that_cannot_be_are_errors_that_name_them(exposure: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        Settings.model_validate({"exposure": exposure})
