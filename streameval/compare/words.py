"""A comparison in one line of words, the same for the page, the commands and the log."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta

from streameval.compare.reading import Comparison, Estimate, MetricReading, shows

NAMES = {"log_loss": "log loss", "auc": "AUC", "gauc": "GAUC", "calibration": "calibration"}
RATIOS = ("log_loss", "calibration")  # their differences are ratios less 1, and said in percent
WARNING_ONLY = "before/after cannot tell the deploy from drift: a warning only"
SERVES_NOBODY = "it scores in shadow and serves nobody"
NOT_ANY_MORE = "which no longer shows it"
MUCH = 0.3  # of the whole difference, for a part to be named
MUCH_MORE = 2.0  # times its share of the impressions
_LONGEST_NAME = 80
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def headline(comparison: Comparison) -> str:
    """For example "v2 is worse than v1: decided 12:03 UTC on AUC -0.012 (99% per metric: -0.016 to -0.008), now -0.011 (-0.013
    to -0.009); mostly country=DE".

    The metric is the one that the verdict fell on. When what is known now does not show the verdict any more, it says so.
    """
    c = comparison
    candidate, baseline = plain(c.candidate.version), plain(c.baseline.version)
    if c.candidate.model != "default":
        candidate = f"{plain(c.candidate.model)} {candidate}"
    learning = c.verdict == "undecided" and c.reason == "learning"
    if learning:
        said = f"{candidate} is learning, and not judged against {baseline} yet"
    elif c.verdict == "undecided":
        said = f"{candidate} against {baseline} is undecided"
    else:
        found = "is" if _still(c) else "was found"
        said = f"{candidate} {found} {reason_words(c.verdict)} than {baseline}"
    parts = [_evidence(c)]
    if c.verdict == "undecided":
        parts.append(f"after {c.impressions:,} impressions and {c.clicks:,} clicks")
    line = said + (": " + ", ".join(part for part in parts if part) if any(parts) else "")
    if by_itself := _by_themselves(c):
        line += f"; {by_itself}"
    if where := mostly(c):
        line += f"; mostly {where}"
    if c.withheld:
        line += f" (withheld: {reason_words(c.reason)})"
    elif c.verdict == "undecided" and c.reason and not learning:
        line += f" ({reason_words(c.reason)})"
    if c.verdict == "undecided" and c.retracted:
        line += " (a verdict was retracted: labels that it rested on have changed)"
    if c.verdict == "worse" and c.setup == "before_after":
        line += f" ({WARNING_ONLY})"
    if c.roles[1] is not None and c.roles[1].name == "shadow":
        line += f" ({SERVES_NOBODY})"
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


def difference(of: MetricReading | Estimate, alpha: float, metric: str) -> str:
    """For example "AUC -0.012 (99% per metric: -0.016 to -0.008)", with as many places as the bounds make sense of."""
    return f"{NAMES.get(metric, plain(metric))} {_numbers(of, metric, f'{100 * (1 - alpha):.6g}% per metric: ')}"


def _numbers(of: MetricReading | Estimate, metric: str, level: str = "") -> str:
    """A difference and its bounds."""
    percent = metric in RATIOS
    scale, unit = (100.0, "%") if percent else (1.0, "")
    lower, upper = (None if b is None or not math.isfinite(b) else b * scale for b in (of.lower, of.upper))
    value = (of.difference or 0.0) * scale
    wide = (upper - lower) / 2 if lower is not None and upper is not None else abs(value) / 4
    places = min(6, max(0, math.ceil(-math.log10(wide)))) if wide > 0 else 2 if percent else 4

    def number(x: float) -> str:
        return f"{x:+.{places}f}{unit}"

    if lower is not None and upper is not None:
        bounds = f"{number(lower)} to {number(upper)}"
    elif upper is not None:
        bounds = f"at most {number(upper)}"
    elif lower is not None:
        bounds = f"at least {number(lower)}"
    else:
        return number(value)
    return f"{number(value)} ({level}{bounds})"


def _still(c: Comparison) -> bool:
    """Whether what is known now shows the verdict; without a record of what it fell on, by the metric that tells it."""
    if c.decided_on is not None:
        return c.supported_now is not False
    reading = telling(c)
    if reading is None or (reading.lower is None and reading.upper is None):
        return True
    return shows(c.verdict, reading.metric, reading.lower, reading.upper, reading.margin, reading.tolerance)


def _evidence(c: Comparison) -> str:
    """The metric that tells it: of a verdict as it was when it fell, and as it is now."""
    on, reading = c.decided_on, telling(c)
    ended = "" if _still(c) or c.verdict == "undecided" else f", {NOT_ANY_MORE}"
    if on is None:
        text = "" if reading is None else difference(reading, c.alpha, reading.metric) + ended
        if c.verdict != "undecided" and c.since is not None:
            text = f"decided {clock_time(c.since, c.looked)}" + (f", now {text}" if text else "")
        return text
    when = "" if c.decided_at is None else f"{clock_time(c.decided_at, c.looked)} "
    by = "on " if on.alone else "on all metrics together, first "
    text = f"decided {when}{by}{difference(on.then, c.alpha, on.metric)}"
    if on.since is not None and on.since != c.start:
        text += f" of the traffic since {clock_time(on.since, c.looked)}"
    if c.decided_now is not None and c.decided_now.difference is not None and c.looked != c.decided_at:
        text += f", now {_numbers(c.decided_now, on.metric)}"
    return text + ended


def _by_themselves(c: Comparison) -> str:
    """Metrics that are worse at their own level, beside the one that tells the verdict."""
    named = c.decided_on.metric if c.decided_on is not None else None
    worse = [m for m in c.metrics if m.verdict == "worse" and m.supported_now is not False and m.metric != named]
    if named is None and c.verdict == "worse":
        worse = [m for m in worse if m is not telling(c)]
    if not worse:
        return ""
    listed = ", ".join(NAMES.get(m.metric, plain(m.metric)) for m in worse)
    return f"also worse: {listed}" if c.verdict == "worse" else f"worse by that metric alone: {listed}"


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
