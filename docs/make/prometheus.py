"""The reference of metric families, from the table that /metrics is made of."""

from __future__ import annotations

from collections.abc import Callable

from docs.make.markdown import code, table, whole
from streameval.server.prometheus.families import FAMILIES, Family

_INTRODUCTION = """\
[prometheus.md](../prometheus.md) says how to read them, with recipes, rules and alerts. What is undefined is absent.
"""

# the first that fits has a family; what comes next to none of the others is of the flow
_SECTIONS: tuple[tuple[str, Callable[[Family], bool]], ...] = (
    ("Slices", lambda f: f.name.startswith("slice_")),
    ("Deploys and comparisons", lambda f: f.name.startswith(("comparison_", "deploy_"))),
    ("pClick buckets", lambda f: f.name.startswith("bucket_")),
    ("Windows", lambda f: "window" in f.labels or f.name.startswith("newest_label")),
    (
        "Sums over the whole run",
        lambda f: f.kind == "counter" and f.labels == ("model_name", "model_version", "source"),
    ),
    ("Checkpoints", lambda f: f.name.startswith(("checkpoint", "restarts"))),
    ("History", lambda f: f.name.startswith("history_")),
    (
        "streameval itself",
        lambda f: f.name.startswith(("snapshot_", "start_", "build_", "series", "collect_", "certificate_")),
    ),
    ("Flow", lambda f: True),
)
_ORDER = (
    "Sums over the whole run", "pClick buckets", "Windows", "Deploys and comparisons", "Slices", "Flow", "Checkpoints",
    "History", "streameval itself",
)  # fmt: skip


def page() -> str:
    """The Markdown of every family, by section."""
    sections: dict[str, list[Family]] = {name: [] for name in _ORDER}
    for family in FAMILIES:
        sections[next(name for name, fits in _SECTIONS if fits(family))].append(family)
    text = []
    for name, families in sections.items():
        rows = [(code(f.exposed), f.kind, ", ".join(map(code, f.labels)), f.meaning) for f in families]
        text += [f"## {name}\n\n", table(("family", "type", "labels", "meaning"), rows)]
    return whole("Prometheus: every family", _INTRODUCTION, text)
