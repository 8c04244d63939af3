"""Which versions lag: of those, many more clicks come after their labels were due, or many more impressions come late, than
of the other versions of their model that served in the same hours.

A client, a host or a log shipper that lags is most often one that came with a version. Among all events those of a canary
are few (see `late_labels`), but its labels are due without its clicks, and look like those of a model that predicts too
much; and comparisons do not have its late impressions before nothing can correct them any more, which are often those that
were not clicked at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import sqrt

from streameval.counting.join_panes import MIN_CLICKS
from streameval.counting.late_by_version import NONE_SHOWN, ByHour, Share, total
from streameval.events.batch import Series
from streameval.events.durations import HOUR

# of a version's events, more than usual, that come late. Clicks: as the default margin of calibration, which a smaller share
# cannot reach by itself; impressions: see `late_labels`
_UNUSUAL_CLICKS, _UNUSUAL = 0.1, 0.2
_FEWEST = 10  # late events of a version: with fewer it is not known to lag
_FEW = 3  # late events of an hour: with fewer it is not known to be one in which a version lags that does on the whole
_SURE = 3.0  # standard deviations of their number


def lagging_by_impressions(impressions: Mapping[Series, ByHour], now: int) -> dict[Series, Share]:
    """Those that lag at event time `now` (ms), and what came of them in the hours in which they do.

    Late impressions are missing for as long as they are known here: a version lags while they are many of all, too.
    """
    found = {}
    for one, others in _compared(impressions):
        lags, on_the_whole = _lags(impressions[one], others, _UNUSUAL)
        lags = [hour for hour in lags if on_the_whole or now < _done(hour, impressions[one][hour])]
        if lags:
            found[one] = total(impressions[one][hour] for hour in lags)
    return found


def lagging_by_clicks(
    clicks: Mapping[Series, ByHour], impressions: Mapping[Series, ByHour], now: int, window: int
) -> dict[Series, Share]:
    """The same by clicks; `window`: the attribution window, ms.

    A version lags until the late clicks of an hour have had twice the time that they took, and clicks come in time again.
    """
    found = {}
    for one, others in _compared(clicks):
        mine, (lags, _) = clicks[one], _lags(clicks[one], others, _UNUSUAL_CLICKS)
        if lags:
            late = {hour for hour in lags if now < _done(hour, mine[hour])}
            shown = [row for other, row in impressions.items() if other.model == one.model and other != one]
            if _is_still_late(mine, impressions.get(one, {}), others, shown, lags, now - window):
                late |= _last_run(lags)
            if late:
                found[one] = total(mine[hour] for hour in sorted(late))
    return found


def _compared(hours: Mapping[Series, ByHour]) -> Iterable[tuple[Series, Sequence[ByHour]]]:
    """The versions that are not alone, with the others of their model."""
    for one in hours:
        others = [row for other, row in hours.items() if other.model == one.model and other != one]
        if others:
            yield one, others


def _lags(mine: ByHour, others: Sequence[ByHour], unusual: float) -> tuple[list[int], bool]:
    """The hours in which a version lags, in order; and whether it does in all of its hours together. `unusual`: the share
    of its events, more than usual, with which it does.
    """
    if all(share.late <= unusual * share.events for share in mine.values()) or total(mine.values()).late < _FEWEST:
        return [], False
    usual = {hour: _usual(others, hour, share.first) for hour, share in mine.items()}
    whole = _exceed(((mine[hour], usual[hour]) for hour in mine), unusual)
    found = [
        hour
        for hour, share in mine.items()
        if _exceed([(share, usual[hour])], unusual)
        or (whole and share.late >= _FEW and share.late > (unusual + usual[hour]) * share.events)
    ]
    return sorted(found), whole


def _done(hour: int, share: Share) -> int:
    """When late events of an hour have had twice the time that they took, ms."""
    return hour * HOUR + 2 * share.waited // share.late


def _is_still_late(
    clicks: ByHour,
    shown: ByHour,
    others: Sequence[ByHour],
    others_shown: Sequence[ByHour],
    lags: Sequence[int],
    due: int,
) -> bool:
    """Whether, since the last hour in which a version lags, fewer clicks were in time than it has, beside the others, in hours
    of which all have come. `due`: impressions before that time (ms) have their labels.
    """
    after = [hour for hour in shown if hour > lags[-1]]
    over = [hour for hour in after if (hour + 1) * HOUR <= due]
    if not over:
        return bool(after)
    then, now = _rate(others, others_shown, lags), _rate(others, others_shown, over, in_time=True)
    expected = (_rate([clicks], [shown], lags) or 0.0) * total(shown[hour] for hour in over).events
    if then and now is not None:
        expected *= now / then
    in_time = total(clicks.get(hour, NONE_SHOWN) for hour in over)
    enough = max((1.0 - _UNUSUAL) * expected, (1.0 - _UNUSUAL_CLICKS) * expected - sqrt(expected))
    return expected >= _FEWEST and in_time.events - in_time.late < enough


def _rate(
    clicks: Sequence[ByHour], shown: Sequence[ByHour], hours: Sequence[int], in_time: bool = False
) -> float | None:
    """Clicks of an impression in some hours; None: too few to tell."""
    of, among = (total(row.get(hour, NONE_SHOWN) for row in rows for hour in hours) for rows in (clicks, shown))
    if of.events < _FEWEST or not among.events:
        return None
    return (of.events - of.late * in_time) / among.events


def _last_run(lags: Sequence[int]) -> set[int]:
    """The last of some hours, and those that it follows without a gap."""
    first = lags[-1]
    while first - 1 in lags:
        first -= 1
    return set(range(first, lags[-1] + 1))


def _exceed(hours: Iterable[tuple[Share, float]], unusual: float) -> bool:
    """Whether many more are late than the usual share of each hour."""
    late, most, variance = 0, 0.0, 0.0
    for share, usual in hours:
        late += share.late
        most += (unusual + usual) * share.events
        variance += usual * (1.0 - usual) * share.events
    return late >= _FEWEST and late > most + _SURE * sqrt(variance)


def _usual(others: Sequence[ByHour], hour: int, first: int) -> float:
    """Which share of the others' events of an hour comes late; of earlier hours, if they began to serve after `first`.

    For what was shown later has had less time to come late. 1: not known.
    """
    before, now = (total(row.get(one, NONE_SHOWN) for row in others) for one in (hour - 1, hour))
    if now.events < MIN_CLICKS or (before.events < MIN_CLICKS and now.first > first):
        now = total(share for row in others for one, share in row.items() if one < hour)
    return min(now.late / now.events, 1.0) if now.events >= MIN_CLICKS else 1.0
