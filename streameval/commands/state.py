"""`status` and `versions`: a running monitor at a glance, in a terminal or as JSON."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any

import click

from streameval.commands.client import MonitorClient, MonitorError, natural
from streameval.commands.columns import columns, duration, printable
from streameval.commands.deploy import AS_JSON, TOKEN_FILE, URL, monitor_at
from streameval.commands.gate import WORSE

HEALTHY, UNSURE = 0, 4  # exit statuses, and the gate's WORSE; 1: the monitor is unreachable, or another error
STALE = 10.0  # seconds, or five times what a snapshot has taken so far: then the numbers are old
HELD = 60.0  # seconds by which final labels are behind those shown, before that is said
_MOST_NAMED = 5  # live versions that are worse, in the first lines; the table below has all
_ROLES = ("live", "shadow", "learning", "retired")
_METRICS = ("auc", "gauc", "log_loss", "calibration")


@dataclass(frozen=True, slots=True)
class State:
    """What `status` shows. Times in seconds; `lag`: messages waiting in Kafka, None if unknown."""

    url: str
    version: str
    exit_status: int
    ready: bool
    failing: list[str]
    stale: bool
    awaited: str  # what counting waits for, if it is stale
    snapshot_age: float
    uptime: float
    lag: int | None
    label_delay: float | None  # age of the newest final label, of the slowest partition
    reliable: bool
    reason: str | None
    pending: int
    invalid: int
    degraded: list[str]
    preparing: str | None  # what is compiled or loaded before the first event is read; None once it is done
    live: list[dict[str, Any]]
    serving: list[str]  # versions that serve, of which it is not known yet whether they are live
    held_since: str | None  # the labels from then on are shown, but not final: verdicts wait for a silent input


@click.command(short_help="Show live versions, verdicts, lag and label delay.")
@URL
@TOKEN_FILE
@AS_JSON
def status(url: str, token_file: Path | None, as_json: bool) -> None:
    """Show a running monitor: live versions, verdicts, lag, label delay. Exit status: 0 healthy, 3 a live version is worse, 4 stale, not ready or not reliable, 1 unreachable."""
    found = state_of(monitor_at(url, token_file), url)
    click.echo(json.dumps(asdict(found), indent=1) if as_json else as_text(found))
    sys.exit(found.exit_status)


@click.command(short_help="List all versions, with their numbers and verdicts.")
@click.option("--model", help="Only the versions of this model.")
@click.option("--window", default="all", show_default=True, help="Window of the numbers, as in the settings.")
@URL
@TOKEN_FILE
@AS_JSON
def versions(model: str | None, window: str, url: str, token_file: Path | None, as_json: bool) -> None:
    """List the versions that a running monitor has seen, those that serve first, with their numbers and verdicts."""
    rows = rows_of(monitor_at(url, token_file), model, window)
    click.echo(json.dumps({"versions": rows}, indent=1) if as_json else table(rows, window))


def state_of(monitor: MonitorClient, url: str) -> State:
    """Raises MonitorError."""
    answer = monitor.status()
    try:
        age = answer["now"] - _seconds(answer["as_of"])
        interval = answer["uptime_seconds"] / max(1, answer["snapshot"])
        stale = age > max(STALE, 5 * interval)
        failing = [name for name, passed in answer["ready"].items() if not passed]
        live = [_with_verdict(monitor, s) for s in _in_order(answer["series"]) if s["role"] == "live"]
        lags = [place["value"] for p in answer["partitions"] for place in p["lag"]]
        found = State(
            url=url,
            version=str(answer["version"]),
            exit_status=HEALTHY,
            ready=not failing,
            failing=failing,
            stale=stale,
            awaited=monitor.awaited() if stale else "",
            snapshot_age=round(max(0.0, age), 1),
            uptime=round(answer["uptime_seconds"], 1),
            lag=sum(lags) if lags else None,
            label_delay=_label_delay(answer["partitions"], answer["now"]),
            reliable=answer["join"]["reliable"],
            reason=answer["join"]["reason"],
            pending=answer["events"].get("pending", 0),  # none before the first snapshot
            invalid=sum(answer["events"].get("invalid", {}).values()),
            degraded=answer["degraded"],
            preparing=answer.get("preparing"),
            live=live,
            serving=[f"{s['model']} {s['version']}" for s in _in_order(answer["series"]) if s["role"] is None],
            held_since=_held_since(answer["partitions"]),
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise _of_another_version(error) from None
    if any(one["verdict"] == "worse" for one in live):
        code = WORSE
    else:
        code = HEALTHY if found.ready and found.reliable and not found.stale else UNSURE
    return replace(found, exit_status=code)


def rows_of(monitor: MonitorClient, model: str | None, window: str) -> list[dict[str, Any]]:
    """A row per version, with the numbers of a window. Raises MonitorError."""
    series = monitor.status()["series"]
    names = sorted({str(s.get("model")) for s in series})
    if model is not None and model not in names:
        known = ", ".join(map(printable, names)) or "none"
        raise MonitorError(f"{printable(model)}: no such model; models seen: {known}", passing=False)
    try:
        numbers = {(r["model"], r["version"], r["source"]): r for r in monitor.results(window)}
        rows = []
        for s in _in_order(series):
            if model in (None, s["model"]):
                r = numbers.get((s["model"], s["version"], s["source"]), {})
                counted = {name: r.get(name) for name in ("impressions", "clicks", *_METRICS)}
                judged = s if s["role"] == "retired" else _with_verdict(monitor, s)
                rows.append({**judged, "window": window, **counted})
    except (KeyError, TypeError, AttributeError) as error:
        raise _of_another_version(error) from None
    return rows


def _with_verdict(monitor: MonitorClient, series: dict[str, Any]) -> dict[str, Any]:
    answer = monitor.verdict(series["model"], series["version"])
    kept = ("verdict", "decided_at", "supported_now", "baseline", "words")
    return {**series, **{name: answer.get(name) for name in kept}}


def _in_order(series: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Model by model, those that serve first, then versions in their natural order."""
    places = {role: place for place, role in enumerate(_ROLES)}
    return sorted(
        series, key=lambda s: (str(s["model"]), places.get(s["role"], len(_ROLES)), natural(str(s["version"])))
    )


def _label_delay(partitions: list[dict[str, Any]], now: float) -> float | None:
    """By the clock, as the page has it: labels of a stream that has ended get older, too. None while a partition has none."""
    final = [p["label_complete"] for p in partitions]
    if not final or None in final:
        return None
    return round(max(0.0, now - min(map(_seconds, final))), 1)


def _held_since(partitions: list[dict[str, Any]]) -> str | None:
    """Since when labels wait for an input that is silent, though the partition's other one went on long ago."""
    since = [
        str(p["waiting_since"])
        for p in partitions
        if p["waiting_since"]
        and p["label_complete"]
        and _seconds(p["label_complete"]) - _seconds(p["waiting_since"]) > HELD
    ]
    return min(since, default=None)


def _seconds(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


def _of_another_version(error: Exception) -> MonitorError:
    return MonitorError(
        f"the answer cannot be used ({type(error).__name__}: {error}); is the monitor a different version?",
        passing=False,
    )


def _without_live(found: State) -> str:
    """Why there is nothing to list."""
    if "assigned" in found.failing and not found.preparing:
        return "nothing is counted now: no partition is assigned to this monitor, so it has no versions to show" + (
            "; no broker answers" if "broker" in found.failing else ""
        )
    if found.serving:
        return f"not known yet which versions are live; these serve: {', '.join(map(printable, found.serving))}"
    return "no version is live yet"


def as_text(found: State) -> str:
    """The text for a person."""
    if found.stale:
        why = f": the monitor is {printable(found.awaited)}" if found.awaited else ""
        how = f"STALE: the last snapshot is {found.snapshot_age:.0f} s old{why}"
    elif found.preparing:
        how = f"STARTING: {printable(found.preparing)}"
    elif not found.ready:
        how = "NOT READY: " + ", ".join(found.failing)
    else:
        how = "ready"
    labels = "labels reliable" if found.reliable else f"LABELS NOT RELIABLE: {found.reason or 'the join is unhealthy'}"
    if "assigned" in found.failing:
        labels = "no labels now"
    held = f"labels since {found.held_since} are not final: an input of a partition is silent; deploys and verdicts wait for it"
    lines = [f"{found.url}  streameval {printable(found.version)}  {how}", ""]
    rows = []
    for one in found.live:
        share = one.get("traffic_share")
        serves = "live" if share is None else f"live {share:.0%}"
        rows.append((printable(one["model"]), printable(one["version"]), serves, printable(one["words"])))
    if worse := [
        f"{printable(one['model'])} {printable(one['version'])}" for one in found.live if one["verdict"] == "worse"
    ]:
        named = ", ".join(worse[:_MOST_NAMED]) + (
            f" and {len(worse) - _MOST_NAMED} more" if len(worse) > _MOST_NAMED else ""
        )
        lines += [f"WORSE: {len(worse)} of {len(found.live)} live versions: {named}", ""]
    lines += columns([("model", "version", "role", "verdict"), *rows]) if rows else [_without_live(found)]
    delay = "-" if found.label_delay is None else duration(found.label_delay)
    lag = "-" if found.lag is None else f"{found.lag:,}"
    lines += [
        "",
        f"consumer lag {lag}, label delay {delay}, snapshot {found.snapshot_age:.0f} s old, up {found.uptime:,.0f} s",
        f"{labels}; {found.pending:,} impressions wait for their labels, {found.invalid:,} invalid events",
        *([held] if found.held_since else []),
        *(f"degraded: {printable(one)}" for one in found.degraded),
    ]
    return "\n".join(lines)


def table(rows: list[dict[str, Any]], window: str) -> str:
    """The rows in columns."""
    if not rows:
        return "no version has been seen yet"
    shown: list[tuple[str, ...]] = [
        ("model", "version", "role", "share", "impressions", "clicks", *_METRICS, f"verdict ({window})")
    ]
    for r in rows:
        share = "-" if r["traffic_share"] is None else f"{r['traffic_share']:.0%}"
        counts = ["-" if r[n] is None else f"{r[n]:,}" for n in ("impressions", "clicks")]
        numbers = ["-" if r[n] is None else f"{r[n]:.4f}" for n in _METRICS]
        verdict = str(r.get("verdict") or "-").replace("_", " ")
        if r.get("supported_now") is False:
            verdict += ", no longer supported"
        names = (printable(r["model"]), printable(r["version"]), r["role"] or "-")
        shown.append((*names, share, *counts, *numbers, verdict))
    return "\n".join(columns(shown))
