"""`streameval plan`: what it asks of the statistics, and of a running monitor."""

from __future__ import annotations

import json
import re
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner

from streameval.commands.client import MonitorError
from streameval.commands.plan import observed, plan
from streameval.compare import planning
from streameval.compare.reading.as_json import comparison_json
from streameval.results.publish import Publisher
from streameval.results.snapshot import empty_snapshot
from streameval.server import create_app, serve
from streameval.settings.server import Server
from tests.comparisons import comparison


@pytest.fixture
def asked(monkeypatch) -> list[tuple[Any, ...]]:
    """What planning was asked."""
    calls: list[tuple[Any, ...]] = []

    def planned(*arguments: Any) -> SimpleNamespace:
        calls.append(arguments)
        least = planning.Bounds(sequential=60_000.4, fixed50=27_000, fixed90=86_000)
        return SimpleNamespace(n50=75_000, n90=210_000, clicks50=1_500, variance=0.25, note="Rough.", bounds=least)

    monkeypatch.setattr(planning, "plan", planned)
    return calls


def run(*arguments: str) -> tuple[int, str]:
    done = CliRunner().invoke(plan, list(arguments))
    return done.exit_code, done.output


def test_it_says_how_many_impressions_a_difference_needs(asked) -> None:
    code, output = run("--auc", "-0.005", "--log-loss", "0.01", "--alpha", "0.05", "--setup", "split")
    assert code == 0
    assert asked == [("auc", -0.005, 0.05, "split", 0.02, 1.5), ("log_loss", 0.01, 0.05, "split", 0.02, 1.5)]
    assert output.splitlines()[0] == (
        "auc -0.005 (split, alpha 0.05, CTR 0.02, design effect 1.5): 50% power within 75,000 impressions "
        "(1,500 clicks), 90% power within 210,000. Rough."
    )
    assert output.splitlines()[1] == (
        "  lower bounds: 60,000 on average for any sequential test, 2 ln(1/0.05) v / theta^2; a fixed-sample test with a "
        "single look would need 27,000 and 86,000, (z_alpha + z_beta)^2 v / theta^2; returning users make each of these 1.5 "
        "times as large as for independent impressions"
    )


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        ("--auc", "0"),
        ("--auc", "nan"),
        ("--auc", "-5"),
        ("--gauc", "1"),
        ("--auc", "-0.1", "--alpha", "1"),
        ("--auc", "0.5", "--ctr", "0"),
    ],
)
def test_what_cannot_be_planned_is_wrong_usage(asked, arguments) -> None:
    assert run(*arguments)[0] == 2
    assert asked == []


def test_a_running_monitor_lends_its_variance(asked) -> None:
    snapshot = empty_snapshot(0.0)
    object.__setattr__(snapshot, "comparisons", (comparison(),))
    handle = serve(create_app(Publisher(snapshot), Server(), version="1", environ={}), "127.0.0.1", 0)
    try:
        code, output = run("--auc", "-0.005", "--gauc", "-0.01", "--url", handle.url)
    finally:
        handle.stop()
    assert code == 0
    metric, _, _, _, ctr, design_effect, variance = asked[0]
    assert (metric, ctr, design_effect) == ("auc", 802 / 41_234, 1.0)
    assert variance == pytest.approx(0.001**2 * 41_234)
    assert "as observed in comparison 2-paired" in output
    assert "the observed variance includes the effect of returning users" in output
    assert len(asked[1]) == 6  # nothing is known of gauc there
    assert "the monitor has not observed it yet" in output


def test_only_a_comparison_of_the_same_setup_counts() -> None:
    told = [comparison_json(comparison(setup="split")), comparison_json(comparison(number=1))]
    found = observed(told, "auc", "paired")
    assert found is not None
    assert found.comparison == "1-paired"
    assert observed(told, "gauc", "paired") is None
    with pytest.raises(MonitorError):
        observed([{"metrics": 3}], "auc", "paired")


def test_it_plans() -> None:
    code, output = run("--auc", "-0.005", "--alpha", "0.05", "--ctr", "0.03")
    assert code == 0
    found = re.search(r"within ([\d,]+) impressions \(([\d,]+) clicks\), 90% power within ([\d,]+)", output)
    assert found is not None
    n50, clicks, n90 = (int(number.replace(",", "")) for number in found.groups())
    assert 50_000 < n50 < 400_000
    assert clicks == pytest.approx(0.03 * n50, rel=0.01)
    assert n90 > 2 * n50
    fewer = run("--auc", "-0.02", "--alpha", "0.05", "--ctr", "0.03")[1]
    assert int(re.search(r"within ([\d,]+)", fewer)[1].replace(",", "")) < n50 / 8
    assert run("--gauc", "-0.01", "--setup", "split")[0] == 2
    assert "within the margin" in run("--auc", "-0.0005")[1]


def test_json_has_the_numbers_of_the_text() -> None:
    code, text = run("--auc", "-0.005", "--log-loss", "0.01", "--json")
    auc, log_loss = json.loads(text)["plans"]
    assert (code, auc["metric"], log_loss["metric"]) == (0, "auc", "log_loss")
    told = run("--auc", "-0.005")[1]
    assert f"90% power within {auc['n90']:,}" in told
    assert f"{auc['bounds']['fixed90']:,.0f}" in told


@pytest.mark.parametrize("alpha", ["1e-17", "1e-300"])
def test_an_alpha_next_to_nothing_has_a_plan(alpha: str) -> None:
    code, output = run("--auc", "-0.005", "--alpha", alpha)
    assert code == 0, output


@pytest.mark.parametrize("option", ["--auc", "--log-loss"])
@pytest.mark.parametrize("effect", ["0", "nan", "inf"])
def test_a_difference_that_is_no_number_is_named(option: str, effect: str) -> None:
    code, output = run(option, effect)
    assert (code, f"{option} {effect}: must be a number other than 0" in output) == (2, True), output
