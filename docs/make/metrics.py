"""The reference of metrics, from the table that everything which shows them is made of."""

from __future__ import annotations

from docs.make.markdown import code, table, whole
from streameval.metrics.registry import METRICS
from streameval.server.prometheus.families import PREFIX

_INTRODUCTION = """\
[metrics.md](../metrics.md) says how exact they are, how their errors are made, and how versions are compared.

For labelled impressions with clicks c, pClick p, n impressions, P clicks, N = n - P, g = P / n. Every metric but those without
a `_stderr` has its standard error beside it.
"""
_BETTER = {"one": "1", "zero": "0"}


def page() -> str:
    """The Markdown of every metric, in the order of the report."""
    rows = [
        (
            code(m.name) + (f", {code(f'{m.name}_stderr')}" if m.influence is not None else ""),
            m.explanation,
            m.formula,
            m.unit,
            _BETTER.get(m.better, m.better),
            code(PREFIX + m.gauge.name) if m.gauge is not None else "",
        )
        for m in METRICS
    ]
    head = ("name", "what it is", "formula", "unit", "better", "in `/metrics`")
    return whole("Metrics: every one", _INTRODUCTION, [table(head, rows)])
