"""The sums of a week straight into the statistics and the evidence of comparisons, look by look, as `Tracked` takes them."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from benchmarks.detection.versions import harm
from benchmarks.detection.week_sums import WeekSums, week
from benchmarks.detection.whole import RULES, Case, Difference, Outcome
from benchmarks.detection.worlds import HOUR
from streameval.compare import paired, split
from streameval.compare.evidence import Evidence, Rule
from streameval.compare.ratio import Statistic
from streameval.compare.reading import METRICS
from streameval.compare.tracked import GROWTH, SIGN
from streameval.comparing import RESTART
from streameval.sketches import blocks as cells
from streameval.sketches.blocks import BlockSums
from streameval.units import parse_duration

AT_ONCE = 24  # looks
Ints = NDArray[np.int64]


def run(case: Case) -> Outcome:
    """The same as `whole.run` from sums: without GAUC, whose e is then 1, and with all labels as they end up."""
    stream = case.stream()
    pane = parse_duration(case.pane)
    sums = week(stream, case.plan, pane)
    rule = Rule(**RULES[case.rule], min_duration=parse_duration(case.floor))  # type: ignore[arg-type]
    evidence = Evidence(rule, stream.deploy)
    after = stream.ts >= stream.deploy
    out = Outcome(int(after.sum()), harm(stream.pclick[:, after], stream.truth[after]))
    ends = sums.begin + pane * np.arange(1, len(sums.impressions) + 1)
    looks, read = _looks(sums), dict.fromkeys(case.marks, 0)
    for mark in case.marks:
        read[mark] = int(np.searchsorted(ends, stream.deploy + mark * HOUR, side="right")) - 1
    for begin in range(0, looks.size, AT_ONCE):
        at = looks[begin : begin + AT_ONCE]
        clicks, statistics = (_paired if case.plan.setup == "paired" else _split)(
            sums, at, _starts(ends[at], sums, rule)
        )
        evidence.advance(ends[at], clicks, statistics)
        for mark, pane_of_it in read.items():
            before = np.flatnonzero(at <= pane_of_it)
            if before.size:
                out.at[mark] = {
                    name: Difference(SIGN[name] * float(s.theta[before[-1], 0]), float(s.stderr()[before[-1], 0]))
                    for name, s in statistics.items()
                    if name in SIGN
                }
    for name in ("overall", *METRICS):
        standing = evidence.standing(None if name == "overall" else name)
        out.final[name] = standing.verdict
        for said, when in ((out.worse, standing.worse_at), (out.not_worse, standing.not_worse_at)):
            if when is not None:
                said[name] = int(sums.impressions[np.searchsorted(ends, when)])
    return out


def _looks(sums: WeekSums) -> Ints:
    """The panes after which there is a look: when what counts has grown by a 256th."""
    total = sums.users.blocks[1:, :, cells.PAIR_N].sum(axis=1) + sums.served[..., cells.N].sum(axis=(1, 2)).cumsum()
    seen, out = 0, []
    for t, n in enumerate(total.tolist()):
        if n - seen > seen // GROWTH:
            seen = n
            out.append(t)
    return np.array(out, np.int64)


def _starts(at: Ints, sums: WeekSums, rule: Rule) -> Ints:
    """The first panes of the windows that have begun by the last of these looks."""
    begun = np.arange(sums.begin, int(at[-1]), RESTART)[: rule.windows]
    return (begun - sums.begin) // sums.pane


def _paired(sums: WeekSums, at: Ints, starts: Ints) -> tuple[Ints, dict[str, Statistic]]:
    """(clicks [T, J], statistics [T, J]) of looks after panes `at` over windows from panes `starts`.

    On blocks of users: `sums.items` and `sums.promised` wait for statistics that take them.
    """
    looked = _windows(sums.users, at, starts)
    return paired.clicks(looked), paired.statistics(looked)


def _windows(rows: BlockSums, at: Ints, starts: Ints) -> BlockSums:
    """[T, J, ...]; empty where the window has not begun."""
    out = []
    for x in (rows.blocks, rows.scalars):
        some = x[at + 1][:, None] - x[starts][None]
        some[at[:, None] < starts[None]] = 0
        out.append(some)
    return BlockSums(*out)


def _split(sums: WeekSums, at: Ints, starts: Ints) -> tuple[Ints, dict[str, Statistic]]:
    """The same of arms: strata are hours, of which the last is as far as the look."""
    each = HOUR // sums.pane
    hours = int(at[-1]) // each + 1
    rows = sums.served[: hours * each]
    rows = np.concatenate((rows, np.zeros((hours * each - len(rows), *rows.shape[1:]), np.int64)))
    so_far = rows.reshape(hours, each, *rows.shape[1:]).cumsum(axis=1)
    closed, now = (_counted(x) for x in (so_far[:, -1], so_far[at // each, at % each]))
    shape = at.size, starts.size
    hour, first = np.broadcast_arrays((at // each)[:, None], (starts // each)[None])
    begun = at[:, None] >= starts[None]
    hour = np.maximum(hour, first)
    parts = []
    for whole, last in zip(closed, now, strict=True):
        cumulated = np.concatenate((np.zeros((1, *whole.shape[1:]), whole.dtype), whole.cumsum(axis=0)))
        some = cumulated[np.minimum(hour, hours)] - cumulated[np.minimum(first, hours)] + last[:, None]
        some[~begun] = 0
        parts.append(some)
    totals, devs, clicks = parts
    return clicks.min(axis=-1).reshape(shape), split.statistics(split.Strata(totals, devs))


def _counted(rows: Ints) -> tuple[NDArray[np.float64], NDArray[np.float64], Ints]:
    """Totals, deviations and clicks [n, 2] of strata from rows [n, 2, 64, 8]; nothing of those that one arm lacks."""
    strata = split.strata(rows[:, 0], rows[:, 1])
    both = (rows[..., cells.N].sum(axis=-1) > 0).all(axis=1)
    return strata.totals, strata.devs, rows[..., cells.Y].sum(axis=-1) * both[:, None]
