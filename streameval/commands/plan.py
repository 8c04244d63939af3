"""The command that estimates before a deploy how much traffic a verdict will need."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from streameval.commands.client import MonitorError
from streameval.commands.deploy import AS_JSON, TOKEN_FILE, URL_IF_ANY, monitor_at

if TYPE_CHECKING:
    from streameval.compare.planning import DeployEstimate


@dataclass(frozen=True, slots=True)
class Observed:
    """What a running comparison knows of one metric: the variance of an impression, users' correlation included."""

    variance: float
    ctr: float
    comparison: str


@click.command()
@click.option("--auc", type=float, help="Difference to detect, for example -0.005.")
@click.option("--log-loss", type=float, help="Relative difference to detect, for example 0.01.")
@click.option("--gauc", type=float, help="Difference to detect, for example -0.005.")
@click.option(
    "--alpha",
    type=click.FloatRange(0, 1, min_open=True, max_open=True),
    default=0.01,
    show_default=True,
    help="Probability of a false alarm per deploy.",
)
@click.option(
    "--setup",
    type=click.Choice(["paired", "split"]),
    default="paired",
    show_default=True,
    help="paired: both versions score the same impressions; split: disjoint users.",
)
@click.option(
    "--ctr",
    type=click.FloatRange(0, 1, min_open=True, max_open=True),
    default=0.02,
    show_default=True,
    help="Clicks over impressions.",
)
@click.option(
    "--design-effect",
    type=click.FloatRange(min=1),
    default=1.5,
    show_default=True,
    help="Variance inflation from correlated impressions of one user.",
)
@URL_IF_ANY
@TOKEN_FILE
@click.option("--model", help="With --url: the model whose comparisons provide the variance.")
@AS_JSON
def plan(
    auc: float | None,
    log_loss: float | None,
    gauc: float | None,
    alpha: float,
    setup: str,
    ctr: float,
    design_effect: float,
    url: str | None,
    token_file: Path | None,
    model: str | None,
    as_json: bool,
) -> None:
    """Estimate how many impressions it takes to detect a difference. With --url, from what a running monitor has observed."""
    effects = {"auc": auc, "log_loss": log_loss, "gauc": gauc}
    wanted = {metric: effect for metric, effect in effects.items() if effect is not None}
    if not wanted:
        raise click.UsageError("choose a difference to detect: --auc, --log-loss or --gauc")
    for metric, effect in wanted.items():
        if not effect or not math.isfinite(effect):
            option = metric.replace("_", "-")
            raise click.UsageError(
                f"--{option} {effect:g}: must be a number other than 0, for example --{option} -0.005"
            )
    for metric in ("auc", "gauc"):
        if abs(wanted.get(metric, 0.0)) >= 1.0:
            raise click.UsageError(
                f"--{metric} {wanted[metric]:g}: must be between -1 and 1; for example --{metric} -0.005"
            )
    comparisons = [] if url is None else monitor_at(url, token_file).comparisons(model, None)
    plans = []
    for metric, effect in wanted.items():
        seen = observed(comparisons, metric, setup)
        try:
            found = _planned(metric, effect, alpha, setup, ctr, design_effect, seen)
        except ValueError as error:
            raise click.UsageError(str(error)) from None
        if as_json:
            known: dict[str, Any] = {"ctr": ctr, "design_effect": design_effect}
            if seen is not None:
                known = {"ctr": seen.ctr, "comparison": seen.comparison}
            asked = {"metric": metric, "difference": effect, "setup": setup, "alpha": alpha}
            plans.append({**asked, **known, **asdict(found)})
            continue
        if seen is None:
            source = f"CTR {ctr:g}, design effect {design_effect:g}" + (
                "; the monitor has not observed it yet" if url else ""
            )
        else:
            source = f"as observed in comparison {seen.comparison}"
        click.echo(
            f"{metric} {effect:+g} ({setup}, alpha {alpha:g}, {source}): 50% power within {found.n50:,} "
            f"impressions ({found.clicks50:,} clicks), 90% power within {found.n90:,}"
            + (f". {found.note}" if found.note else "")
        )
        click.echo(_limits(found, alpha, None if seen else design_effect))
    if as_json:
        click.echo(json.dumps({"plans": plans}, indent=1, default=float))


def _limits(found: DeployEstimate, alpha: float, design_effect: float | None) -> str:
    """The bounds that no test can beat, and the effect of returning users."""
    least = found.bounds
    users = (
        "the observed variance includes the effect of returning users"
        if design_effect is None
        else f"returning users make each of these {design_effect:g} times as large as for independent impressions"
    )
    return (
        f"  lower bounds: {least.sequential:,.0f} on average for any sequential test, 2 ln(1/{alpha:g}) v / theta^2; "
        f"a fixed-sample test with a single look would need {least.fixed50:,.0f} and {least.fixed90:,.0f}, "
        f"(z_alpha + z_beta)^2 v / theta^2; {users}"
    )


def _planned(
    metric: str, effect: float, alpha: float, setup: str, ctr: float, design_effect: float, seen: Observed | None
) -> DeployEstimate:
    from streameval.compare import planning  # not at the start: it takes a second, and every command would pay it

    if seen is None:
        return planning.plan(metric, effect, alpha, setup, ctr, design_effect)
    return planning.plan(metric, effect, alpha, setup, seen.ctr, 1.0, seen.variance)


def observed(comparisons: list[dict[str, Any]], metric: str, setup: str) -> Observed | None:
    """The newest comparison of a setup that knows the metric's standard error. Raises MonitorError."""
    try:
        for c in comparisons:
            for reading in c["metrics"]:
                usable = c["setup"] == setup and reading["metric"] == metric and c["clicks"] > 0
                if usable and reading["stderr"] is not None and reading["stderr"] > 0:
                    variance = reading["stderr"] ** 2 * c["impressions"]
                    return Observed(variance, c["clicks"] / c["impressions"], str(c["id"]))
    except (KeyError, TypeError, ZeroDivisionError):
        what = "the answer has no usable comparisons; is the monitor a different version?"
        raise MonitorError(what, passing=True) from None
    return None
