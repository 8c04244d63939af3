"""Every metric, once: name, function, unit, direction, formula. Adding a metric is one function and one row here.

The report, the API, the page and docs/metrics.md take their names from this table.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from streameval.metrics import calibration, losses, ranking
from streameval.metrics.view import Undefined, View


@dataclass(frozen=True, slots=True)
class Metric:
    """`better` is "higher", "lower", "one" (closest to 1), "zero" (closest to 0) or "" (neither)."""

    name: str
    function: Callable[[View], float | int | Undefined]
    unit: str
    better: str
    formula: str
    source: str


METRICS: tuple[Metric, ...] = (
    Metric("ctr", calibration.ctr, "ratio", "", "P / n", ""),
    Metric("mean_pclick", calibration.mean_pclick, "ratio", "", "sum p / n", ""),
    Metric("auc", ranking.auc, "ratio", "higher", "P(p+ > p-) + P(p+ = p-) / 2", "Fawcett 2006"),
    Metric("auc_error", ranking.auc_error, "ratio", "lower", "sum_b pos_b neg_b / (2 P N)", ""),
    Metric("gauc", ranking.gauc, "ratio", "higher", "sum_u w_u AUC_u / sum_u w_u", "Zhou et al. 2018"),
    Metric("gauc_users", ranking.gauc_users, "users", "", "users with both labels", ""),
    Metric(
        "gauc_impressions", ranking.gauc_impressions, "impressions", "", "impressions of users with both labels", ""
    ),
    Metric("gauc_request", ranking.gauc_request, "ratio", "higher", "sum_r w_r AUC_r / sum_r w_r", "session AUC"),
    Metric("log_loss", losses.log_loss, "nats", "lower", "-sum [c ln p + (1-c) ln(1-p)] / n", ""),
    Metric("rig", losses.rig, "ratio", "higher", "1 - log_loss / H(g)", "Yi et al. 2013; He et al. 2014"),
    Metric("mse", losses.mse, "ratio", "lower", "sum (p-c)^2 / n", "Yi et al. 2013"),
    Metric("nmse", losses.nmse, "ratio", "lower", "mse / (g (1-g))", "Yi et al. 2013"),
    Metric("mae", losses.mae, "ratio", "lower", "sum |p-c| / n", "Yi et al. 2013"),
    Metric("prediction_error", calibration.prediction_error, "ratio", "zero", "mean p / g - 1", "Yi et al. 2013"),
    Metric("calibration", calibration.calibration, "ratio", "one", "mean p / g", "He et al. 2014"),
    Metric("ece", calibration.ece, "ratio", "lower", "sum_b n_b/n |mean p_b - g_b|", "Naeini et al. 2015"),
)


def evaluate(view: View) -> tuple[dict[str, float | int | None], dict[str, str]]:
    """(values, reasons): every metric by name, None where undefined, and why."""
    values: dict[str, float | int | None] = {}
    reasons: dict[str, str] = {}
    for metric in METRICS:
        value = metric.function(view)
        if isinstance(value, Undefined):
            values[metric.name] = None
            reasons[metric.name] = value.reason
        else:
            values[metric.name] = value
    return values, reasons
