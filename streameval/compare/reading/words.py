"""A comparison in one line of words, the same for the page, the commands and the log."""

from __future__ import annotations

import math
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta

from streameval.compare.reading.further import further_metric, further_words
from streameval.compare.reading.reading import COMPARED, Comparison, Estimate, Finding, MetricReading, shows

NAMES = {"log_loss": "log loss", "auc": "AUC", "gauc": "GAUC", "calibration": "calibration"}
RATIOS = ("log_loss", "calibration")  # their differences are ratios less 1, and said in percent
WARNING_ONLY = "before/after cannot tell the deploy from drift: a warning only"
ONLY_SHADOW = "it only scores in shadow"
NO_LONGER = "which no longer supports it"
MUCH = 0.3  # of the whole difference, for a part to be named
MUCH_MORE = 2.0  # times its share of the impressions
_LONGEST_NAME = 80
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def headline(comparison: Comparison, now: int | None = None) -> str:
    """For example "v2 is worse than v1: decided 12:03 UTC on AUC -0.012 (99% per metric: -0.016 to -0.008), now -0.011 (-0.013
    to -0.009); mostly country=DE".

    The metric is the one that the verdict fell on. When what is known now does not show the verdict any more, it says so.
    Times of the day of `now` (ms of the wall clock, when somebody reads this) have no date; without it all have theirs.
    """
    c = comparison
    parts = [_evidence(c, now)]
    if c.verdict == "undecided":
        clicks = f" and {c.clicks:,} clicks{_whose(c)}" if _clicks_known(c) else ""
        parts.append(f"after {c.impressions:,} impressions{clicks}")
    line = claim(c) + (": " + ", ".join(part for part in parts if part) if any(parts) else "")
    return line + "".join(f"; {text}" for text in _beside(c)) + "".join(f" ({text})" for text in _reservations(c))


def claim(comparison: Comparison) -> str:
    """What the headline says without its evidence: "v2 is worse than v1"."""
    c = comparison
    candidate, baseline = plain(c.candidate.version), plain(c.baseline.version)
    if c.candidate.model != "default":
        candidate = f"{plain(c.candidate.model)} {candidate}"
    if _learning(c):
        return f"{candidate} is still learning, and not evaluated against {baseline} yet"
    if c.verdict == "undecided":
        return f"{candidate} against {baseline} is undecided"
    found = "is" if _still(c) else "was found"
    return f"{candidate} {found} {reason_words(c.verdict)} than {baseline}"


def remarks(comparison: Comparison) -> list[str]:
    """What the headline says beside claim and evidence: other metrics, where it is worse, what to be careful about."""
    return [*_beside(comparison), *_reservations(comparison)]


def _clicks_known(c: Comparison) -> bool:
    """Whether `clicks` says anything: before/after counts those of hours with a counterpart alone, as the page has it too."""
    return c.setup != "before_after" or c.clicks > 0


def _whose(c: Comparison) -> str:
    """Of split arms, those of the one that has fewer."""
    return " in the arm with fewer" if c.setup == "split" else ""


def _learning(c: Comparison) -> bool:
    return c.verdict == "undecided" and c.reason == "learning"


def _beside(c: Comparison) -> list[str]:
    where, parts = mostly(c), _worse_parts(c)
    found = (
        _by_themselves(c),
        f"mostly {where}" if where else "",
        f"worse for {parts}" if parts else "",
        _opposed(c),
    )
    return [text for text in found if text]


def _reservations(c: Comparison) -> list[str]:
    said = []
    if c.withheld:
        said.append(f"withheld: {reason_words(c.reason)}")
    elif c.verdict == "undecided" and c.reason and not _learning(c):
        said.append(reason_words(c.reason))
    if c.verdict == "undecided" and c.retracted:
        said.append("a verdict was retracted because labels behind it changed")
    if c.verdict == "worse" and c.setup == "before_after":
        said.append(WARNING_ONLY)
    if c.roles[1] is not None and c.roles[1].name == "shadow":
        said.append(ONLY_SHADOW)
    return said


def _opposed(c: Comparison) -> str:
    """What the Simpson guard of a paired comparison has found; "" when it is silent."""
    opposed = [name_of(m.metric) for m in c.mixes if m.simpson and c.setup == "paired" and m.dimension == "propensity"]
    if not opposed:
        return ""
    return f"Simpson's paradox: under uniform exposure the difference of {' and '.join(opposed)} has the opposite sign"


def mostly(comparison: Comparison) -> str:
    """The parts of the traffic to look at first, for example "country=DE and pClick 0.5-1"; "" when it is everywhere.

    Of `worse` alone: proven parts (never single users) that carry much of the difference, and much more than they have
    of the impressions; one of a dimension, the two that carry most.
    """
    c = comparison
    if c.verdict != "worse" or not c.impressions:
        return ""
    large = [f for f in _proven(c) if f.share is not None and f.share >= MUCH]
    found = [f for f in large if (f.share or 0.0) >= MUCH_MORE * f.impressions / c.impressions]
    return _first_parts(sorted(found, key=lambda f: -(f.share or 0.0)))


def _worse_parts(c: Comparison) -> str:
    """The parts that are proven to be worse of a version that is not, as a whole; "" when there are none."""
    if c.verdict == "worse" or c.withheld or _learning(c):
        return ""
    found = [f for f in _proven(c) if f.difference is not None and f.difference > 0]
    return _first_parts(sorted(found, key=lambda f: -f.log_e))  # a share of a difference around 0 says nothing


def _proven(c: Comparison) -> list[Finding]:
    return [f for f in c.findings if f.significant and f.dimension != "user"]


def _first_parts(findings: Iterable[Finding]) -> str:
    """Of each dimension the first one, two at most."""
    first: dict[str, str] = {}
    for f in findings:
        name = f"pClick {plain(f.value)}" if f.dimension == "pclick" else f"{plain(f.dimension)}={plain(f.value)}"
        first.setdefault(f.dimension, name)
    return " and ".join(list(first.values())[:2])


def telling(comparison: Comparison) -> MetricReading | None:
    """The metric to name: of `worse` the one with the most evidence, of `not_worse` the one with the least.

    A further metric only where nothing else is known: as a rule it has no part in the verdict.
    """
    every = [m for m in comparison.metrics if m.difference is not None and math.isfinite(m.difference)]
    known = [m for m in every if m.metric in COMPARED] or every
    own = [m for m in known if m.verdict == comparison.verdict]
    if comparison.verdict == "not_worse":
        return min(own or known, key=lambda m: m.log_e_not_worse, default=None)
    return max(own or known, key=lambda m: m.log_e_worse, default=None)


def difference(of: MetricReading | Estimate, alpha: float, metric: str, places: int | None = None) -> str:
    """For example "AUC -0.012 (99% per metric: -0.016 to -0.008)", with as many places as the bounds make sense of."""
    return f"{name_of(metric)} {_numbers(of, metric, f'{100 * (1 - alpha):.6g}% per metric: ', places)}"


def name_of(metric: str) -> str:
    """A metric's name for people."""
    return NAMES.get(metric) or further_words(metric) or plain(metric)


def _numbers(of: MetricReading | Estimate, metric: str, level: str = "", places: int | None = None) -> str:
    """A difference and its bounds."""
    scale, unit = (100.0, "%") if _in_percent(metric) else (1.0, "")
    lower, upper = _bounds(of)
    digits = _places(of, metric) if places is None else places

    def number(x: float) -> str:
        text = f"{x * scale:+.{digits}f}"
        return (text if float(text) else text[1:]) + unit

    if lower is not None and upper is not None:
        bounds = f"{number(lower)} to {number(upper)}"
    elif upper is not None:
        bounds = f"at most {number(upper)}"
    elif lower is not None:
        bounds = f"at least {number(lower)}"
    else:
        return number(of.difference or 0.0)
    return f"{number(of.difference or 0.0)} ({level}{bounds})"


def _bounds(of: MetricReading | Estimate) -> tuple[float | None, float | None]:
    """No difference is beyond -1; a bound that is, or more than tenfold, says nothing."""
    lower, upper = (None if b is None or not -1 <= b <= 10 else b for b in (of.lower, of.upper))
    return lower, upper


def _in_percent(metric: str) -> bool:
    further = further_metric(metric)
    return metric in RATIOS or (further is not None and further.relative)


def _places(of: MetricReading | Estimate, metric: str) -> int:
    """As many as the bounds make sense of, and enough that a bound which shows a direction is not 0."""
    lower, upper = _bounds(of)
    wide = (upper - lower) / 2 if lower is not None and upper is not None else abs(of.difference or 0.0) / 4
    percent = _in_percent(metric)
    if lower is not None and upper is not None and lower * upper > 0:
        wide = min(wide, 2 * abs(lower), 2 * abs(upper))  # rounds to something from half a unit of the last place on
    wide *= 100.0 if percent else 1.0
    return min(6, max(0, math.ceil(-math.log10(wide)))) if wide > 0 else 2 if percent else 4


def _still(c: Comparison) -> bool:
    """Whether what is known now shows the verdict; where that is not on record, by the metric that decided it."""
    if c.decided_on is not None or c.supported_now is not None:
        return c.supported_now is not False
    reading = telling(c)
    if reading is None or (reading.lower is None and reading.upper is None):
        return True
    return shows(c.verdict, reading.metric, reading.lower, reading.upper, reading.margin, reading.tolerance)


def _evidence(c: Comparison, today: int | None) -> str:
    """The metric that decided it: of a verdict as it was when it fell, and as it is now."""
    on, reading = c.decided_on, telling(c)
    ended = "" if _still(c) or c.verdict == "undecided" else f", {NO_LONGER}"
    if on is None:
        text = "" if reading is None else difference(reading, c.alpha, reading.metric) + ended
        if c.verdict != "undecided" and c.since is not None:
            text = f"decided {clock_time(c.since, today)}" + (f", now {text}" if text else "")
        return text
    when = "" if c.decided_at is None else f"{clock_time(c.decided_at, today)} "
    by = "on " if on.alone else "on all metrics together, first "
    if on.capped:
        by = "on most users, each capped at compare.user_cap impressions a day; over all impressions "
    now = c.decided_now if c.looked != c.decided_at else None
    if now is not None and now.difference is None:
        now = None
    places = max(_places(one, on.metric) for one in (on.then, now) if one is not None)  # one beside the other
    text = f"decided {when}{by}{difference(on.then, c.alpha, on.metric, places)}"
    if on.since is not None and on.since != c.start:
        text += f" of the traffic since {clock_time(on.since, today)}"
    if now is not None:
        text += f", now {_numbers(now, on.metric, places=places)}"
    return text + ended


def _by_themselves(c: Comparison) -> str:
    """Metrics that are worse at their own level, beside the one that tells the verdict."""
    named = c.decided_on.metric if c.decided_on is not None else None
    worse = [m for m in c.metrics if m.verdict == "worse" and m.supported_now is not False and m.metric != named]
    if named is None and c.verdict == "worse":
        worse = [m for m in worse if m is not telling(c)]
    if not worse:
        return ""
    listed = ", ".join(name_of(m.metric) for m in worse)
    return f"also worse: {listed}" if c.verdict == "worse" else f"worse on that metric alone: {listed}"


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
    code, *rest = (reason or "no reason given").split(" ", 1)
    return " ".join([code.replace("no_non_clicks", "only clicks").replace("_", " "), *rest])


def late_clicks_words(version: str, clicks: int, late: int) -> str:
    """Why nothing is decided about a version many of whose clicks come late."""
    share = f"{min(late / max(clicks, 1), 1.0):.0%} of {clicks} clicks of {plain(version)}"
    return f"{share} came after the label of their impression was due (join.attribution_window)"


def late_impressions_words(version: str, impressions: int, late: int) -> str:
    """The same of impressions."""
    return f"{late / impressions:.0%} of {impressions} impressions of {plain(version)} came later than join.allowed_lateness"


def plain(name: str) -> str:
    """A foreign name made safe for a line: printable, and not too long."""
    clean = "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in name)
    return clean if len(clean) <= _LONGEST_NAME else clean[: _LONGEST_NAME - 3] + "..."
