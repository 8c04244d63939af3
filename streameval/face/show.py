"""The overall results as text: as `replay` prints them, and as an evaluation is displayed."""

from __future__ import annotations

from streameval.results.snapshot import Snapshot

_HEAD = ("model", "version", "window", "impressions", "clicks", "auc", "gauc", "log_loss", "rig", "calibration")


def overall_rows(snapshot: Snapshot) -> list[tuple[str, ...]]:
    """A head, then a row per version and window; "-": undefined. What cannot be trusted says why, behind its last number."""
    rows: list[tuple[str, ...]] = [_HEAD]
    for r in snapshot.results.overall:
        numbers = ["-" if (v := r.metrics[name]) is None else f"{v:.4f}" for name in _HEAD[5:]]
        mark = "" if r.reliable else f"  ! {r.reliable_reason}"
        counts = (f"{r.totals.impressions:,}", f"{r.totals.clicks:,}")
        version = f"{r.series.version} [{r.series.objective}]" if r.series.objective else r.series.version
        rows.append((r.series.model, version, r.window, *counts, *numbers[:-1], numbers[-1] + mark))
    return rows


_MANY_LATE, _FEW = 0.1, 50  # share of the impressions, and how many of them, before the order of events is doubted


def order_warning(snapshot: Snapshot) -> str | None:
    """What to tell whoever reads files in which many impressions are not in order of time; None: they are."""
    late, impressions = snapshot.events.get("late_impressions", 0), snapshot.events.get("impressions", 0)
    if late < _FEW or late < _MANY_LATE * impressions:
        return None
    return (
        f"{late:,} of {impressions:,} impressions came later than join.allowed_lateness, so deploys and verdicts are not those "
        "of events in order of time: merge the files of several versions or servers by time, or raise join.allowed_lateness"
    )


def overall(snapshot: Snapshot) -> str:
    """The rows in columns, and under them what became of the events."""
    rows = overall_rows(snapshot)
    widths = [max(len(row[i]) for row in rows) for i in range(len(_HEAD) - 1)]
    lines = ["  ".join([*(c.ljust(w) for c, w in zip(row, widths, strict=False)), row[-1]]) for row in rows]
    events = ", ".join(f"{k} {v:,}" for k, v in snapshot.events.items() if isinstance(v, int) and v)
    invalid = snapshot.events.get("invalid") or {}
    bad = "dead letters: " + ", ".join(f"{k} {v:,}" for k, v in invalid.items()) if invalid else ""
    return "\n".join([*lines, "", "; ".join(filter(None, (events, bad))) or "no events"])
