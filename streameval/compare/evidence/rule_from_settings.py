"""The rule of comparisons according to the settings."""

from __future__ import annotations

from streameval.compare.evidence.evidence import DEFAULT_WEIGHTS, Rule
from streameval.compare.reading.further import cut_of
from streameval.compare.reading.reading import COMPARED
from streameval.settings.compare import Compare

FURTHER_WEIGHT = 0.2  # weight of a deciding further metric, before all weights are rescaled to add up to 1
_CERTIFIED = ("log_loss", "auc")


def rule_of(s: Compare) -> Rule:
    """Returns the rule for some settings, with the default e-processes.

    Metrics that decide must be certified; of those that every comparison has, log loss and AUC suffice.
    """
    more = tuple(s.more)
    margins, tolerances = s.margins.model_dump(), s.tolerances.model_dump()
    metrics = {m: m if cut_of(m) is None else m.rpartition("_")[0] for m in (*COMPARED, *more)}
    core = tuple(m for m in COMPARED if m in s.decide)
    further = tuple(m for m in more if m in s.decide)
    weights = dict(DEFAULT_WEIGHTS)
    if core != COMPARED or further:
        weights = {m: w if m in core else 0.0 for m, w in DEFAULT_WEIGHTS.items()} | dict.fromkeys(
            further, FURTHER_WEIGHT
        )
        total = sum(weights.values())
        weights = {m: w / total for m, w in weights.items()}
    return Rule(
        alpha=s.alpha,
        margins={m: margins[key] for m, key in metrics.items()},
        tolerances={m: tolerances[key] for m, key in metrics.items()},
        weights=weights,
        certified=(tuple(m for m in _CERTIFIED if m in core) or core) + further,
        more=more,
        decide=core + further,
        min_duration=s.min_duration,
        min_clicks=s.min_clicks,
        min_blocks=s.min_blocks,
        strict=s.strict,
        user_cap=s.user_cap,
        horizon=s.horizon,
    )
