"""A comparison in one line of words, the same for the page, the commands and the log."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta

from streameval.compare.reading import Comparison, MetricReading

NAMES = {"log_loss": "log loss", "auc": "AUC", "gauc": "GAUC", "calibration": "calibration"}
RATIOS = ("log_loss", "calibration")  # their differences are ratios less 1, and said in percent
WARNING_ONLY = "before/after cannot tell the deploy from drift: a warning only"
MUCH = 0.3  # of the whole difference, for a part to be named
MUCH_MORE = 2.0  # times its share of the impressions
_LONGEST_NAME = 80
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def headline(comparison: Comparison) -> str:
    """For example "v2 is worse than v1: AUC -0.012, 99% interval -0.016 to -0.008, since 12:03 UTC; mostly country=DE"."""
    c = comparison
    candidate, baseline = plain(c.candidate.version), plain(c.baseline.version)
    if c.candidate.model != "default":
        candidate = f"{plain(c.candidate.model)} {candidate}"
    said = {
        "worse": f"{candidate} is worse than {baseline}",
        "not_worse": f"{candidate} is not worse than {baseline}",
        "undecided": f"{candidate} against {baseline} is undecided",
    }[c.verdict]
    parts = [difference(reading, c.alpha)] if (reading := telling(c)) is not None else []
    if c.verdict == "undecided":
        parts.append(f"after {c.impressions:,} impressions and {c.clicks:,} clicks")
    elif c.since is not None:
        parts.append("since " + clock_time(c.since, c.looked))
    line = said + (": " + ", ".join(parts) if parts else "")
    if where := mostly(c):
        line += f"; mostly {where}"
    if c.withheld:
        line += f" (withheld: {reason_words(c.reason)})"
    elif c.verdict == "undecided" and c.reason:
        line += f" ({reason_words(c.reason)})"
    if c.verdict == "worse" and c.setup == "before_after":
        line += f" ({WARNING_ONLY})"
    return line


def mostly(comparison: Comparison) -> str:
    """The parts of the traffic to look at first, for example "country=DE and pClick 0.5-1"; "" when it is everywhere.

    Of `worse` alone: proven parts (never single users) that carry much of the difference, and much more than they have
    of the impressions; one of a dimension, the two that carry most.
    """
    c = comparison
    if c.verdict != "worse" or not c.impressions:
        return ""
    found = [
        f
        for f in c.findings
        if f.significant and f.dimension != "user" and f.share is not None and f.share >= MUCH
        and f.share >= MUCH_MORE * f.impressions / c.impressions
    ]  # fmt: skip
    first: dict[str, str] = {}
    for f in sorted(found, key=lambda f: -(f.share or 0.0)):
        name = f"pClick {plain(f.value)}" if f.dimension == "pclick" else f"{plain(f.dimension)}={plain(f.value)}"
        first.setdefault(f.dimension, name)
    return " and ".join(list(first.values())[:2])


def telling(comparison: Comparison) -> MetricReading | None:
    """The metric to name: of `worse` the one with the most evidence, of `not_worse` the one with the least."""
    known = [m for m in comparison.metrics if m.difference is not None and math.isfinite(m.difference)]
    own = [m for m in known if m.verdict == comparison.verdict]
    if comparison.verdict == "not_worse":
        return min(own or known, key=lambda m: m.log_e_not_worse, default=None)
    return max(own or known, key=lambda m: m.log_e_worse, default=None)


def difference(reading: MetricReading, alpha: float) -> str:
    """For example "AUC -0.012, 99% interval -0.016 to -0.008", with as many places as the interval makes sense of."""
    percent = reading.metric in RATIOS
    scale, unit = (100.0, "%") if percent else (1.0, "")
    lower, upper = (None if b is None or not math.isfinite(b) else b * scale for b in (reading.lower, reading.upper))
    value = (reading.difference or 0.0) * scale
    wide = (upper - lower) / 2 if lower is not None and upper is not None else abs(value) / 4
    places = min(6, max(0, math.ceil(-math.log10(wide)))) if wide > 0 else 2 if percent else 4
    level = f"{100 * (1 - alpha):.6g}%"

    def number(x: float) -> str:
        return f"{x:+.{places}f}{unit}"

    text = f"{NAMES.get(reading.metric, plain(reading.metric))} {number(value)}"
    if lower is not None and upper is not None:
        return f"{text}, {level} interval {number(lower)} to {number(upper)}"
    if upper is not None:
        return f"{text}, with {level} at most {number(upper)}"
    if lower is not None:
        return f"{text}, with {level} at least {number(lower)}"
    return text


def clock_time(ms: int, now: int | None) -> str:
    """ "12:03 UTC", with its date when that is not the day of `now`; "an unknown time" for a time without a date."""
    try:
        when = _EPOCH + timedelta(milliseconds=ms)
        today = None if now is None else (_EPOCH + timedelta(milliseconds=now)).date()
    except OverflowError:
        return "an unknown time"
    return when.strftime("%H:%M UTC" if when.date() == today else "%Y-%m-%d %H:%M UTC")


def reason_words(reason: str | None) -> str:
    """A reason as words: "too_few_clicks" becomes "too few clicks"."""
    return (reason or "no reason given").replace("_", " ")


def plain(name: str) -> str:
    """A name of somebody else's as it may stand in a line: printable, and not too long."""
    clean = "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in name)
    return clean if len(clean) <= _LONGEST_NAME else clean[: _LONGEST_NAME - 3] + "..."
