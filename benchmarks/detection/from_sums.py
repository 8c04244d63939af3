"""Feeds the sums of a week directly into the statistics and the evidence of comparisons, look by look, as `SequentialTracked` does."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from benchmarks.detection.versions import harm
from benchmarks.detection.week_sums import WeekSums, capped, week
from benchmarks.detection.whole import RULES, Case, Difference, Outcome
from benchmarks.detection.worlds import HOUR
from streameval.compare.evidence import joint, paired, split
from streameval.compare.evidence.evidence import Capped, Evidence, Rule
from streameval.compare.reading.reading import COMPARED, SIGN
from streameval.compare.tracking.sequential import GROWTH
from streameval.settings.units import parse_duration
from streameval.sketches import blocks as cells
from streameval.sketches.blocks import BlockSums

AT_ONCE = 24  # looks
Ints = NDArray[np.int64]


def run(case: Case) -> Outcome:
    """The same as `whole.run`, from sums: without GAUC, whose e is then 1, and with final labels."""
    stream = case.stream()
    pane = parse_duration(case.pane)
    sums = week(stream, case.plan, pane)
    fewer = week(stream, case.plan, pane, capped(stream, case.cap)) if case.cap else None
    rule = Rule(**RULES[case.rule], min_duration=parse_duration(case.floor))  # type: ignore[arg-type]
    evidence = Evidence(rule, stream.deploy)
    after = stream.ts >= stream.deploy
    out = Outcome(int(after.sum()), harm(stream.pclick[:, after], stream.truth[after]))
    ends = sums.begin + pane * np.arange(1, len(sums.impressions) + 1)
    windows = paired_looks if case.plan.setup == "paired" else split_looks
    looks, read = _looks(sums), dict.fromkeys(case.marks, 0)
    for mark in case.marks:
        read[mark] = int(np.searchsorted(ends, stream.deploy + mark * HOUR, side="right")) - 1
    for begin in range(0, looks.size, AT_ONCE):
        at = looks[begin : begin + AT_ONCE]
        starts = _starts(ends[at], sums, rule)
        looked = windows(sums, at, starts)
        statistics = looked.statistics
        evidence.advance(
            ends[at], looked.clicks, statistics, correlation=looked.correlation,
            capped=None if fewer is None else windows(fewer, at, starts),
        )  # fmt: skip
        for mark, pane_of_it in read.items():
            before = np.flatnonzero(at <= pane_of_it)
            if before.size:
                out.at[mark] = {
                    name: Difference(SIGN[name] * float(s.theta[before[-1], 0]), float(s.stderr()[before[-1], 0]))
                    for name, s in statistics.items()
                    if name in SIGN
                }
    for name in ("overall", *COMPARED):
        standing = evidence.standing(None if name == "overall" else name)
        out.final[name] = standing.verdict
        for said, when in ((out.worse, standing.worse_at), (out.not_worse, standing.not_worse_at)):
            if when is not None:
                said[name] = int(sums.impressions[np.searchsorted(ends, when)])
    return out


def _looks(sums: WeekSums) -> Ints:
    """The panes after which there is a look: when the sums have grown enough (`GROWTH`)."""
    total = sums.users.blocks[1:, :, cells.PAIR_N].sum(axis=1) + sums.served[..., cells.N].sum(axis=(1, 2)).cumsum()
    seen, out = 0, []
    for t, n in enumerate(total.tolist()):
        if n - seen > seen // GROWTH:
            seen = n
            out.append(t)
    return np.array(out, np.int64)


def _starts(at: Ints, sums: WeekSums, rule: Rule) -> Ints:
    """The first panes of the windows that begin by the last of these looks."""
    begun = np.arange(sums.begin, int(at[-1]), rule.restart)[: rule.windows]
    return (begun - sums.begin) // sums.pane


def paired_looks(sums: WeekSums, at: Ints, starts: Ints) -> Capped:
    """Looks after panes `at` [T] over windows from panes `starts` [J]."""
    looked = _windows(BlockSums(sums.users.blocks, sums.users.scalars, sums.items.blocks), at, starts)
    return Capped(paired.clicks(looked), paired.statistics(looked), joint.correlation(*paired.deviations(looked)))


def _windows(rows: BlockSums, at: Ints, starts: Ints) -> BlockSums:
    """[T, J, ...]; empty where the window has not begun."""
    out = []
    for x in (rows.blocks, rows.scalars, rows.items):
        assert x is not None
        some = x[at + 1][:, None] - x[starts][None]
        some[at[:, None] < starts[None]] = 0
        out.append(some)
    return BlockSums(*out)


def split_looks(sums: WeekSums, at: Ints, starts: Ints) -> Capped:
    """The same for arms: strata are hours, the last of which ends at the look."""
    each = HOUR // sums.pane
    hours = int(at[-1]) // each + 1

    def hourly(rows: Ints) -> Ints:
        some = rows[: hours * each]
        some = np.concatenate((some, np.zeros((hours * each - len(some), *rows.shape[1:]), np.int64)))
        return some.reshape(hours, each, *rows.shape[1:]).cumsum(axis=1)

    by_user, by_item, scalars = (hourly(x) for x in (sums.served, sums.served_items, sums.served_scalars))
    closed = _counted(by_user[:, -1], by_item[:, -1], scalars[:, -1])
    now = _counted(*(x[at // each, at % each] for x in (by_user, by_item, scalars)))
    first = np.broadcast_to(np.minimum(starts // each, hours), (at.size, starts.size))
    hour = np.maximum((at // each)[:, None], first)
    parts = []
    for whole, last in zip(closed, now, strict=True):
        cumulated = np.concatenate((np.zeros((1, *whole.shape[1:]), whole.dtype), whole.cumsum(axis=0)))
        some = cumulated[hour] - cumulated[first] + last[:, None]
        some[at[:, None] < starts[None]] = 0
        parts.append(some)
    users, items = split.StrataSums(*parts[:2]), split.StrataSums(*parts[2:4])
    spreads, clicks = parts[4:]
    correlation = joint.correlation(*split.deviations(users))
    return Capped(clicks.min(axis=-1), split.statistics(users, spreads, items), correlation)


def _counted(users: Ints, items: Ints, scalars: Ints) -> tuple[NDArray[np.float64] | Ints, ...]:
    """For n strata: totals and deviations by user and by item, spreads, clicks [n, 2]; 0 for strata without both arms."""
    both = (users[..., cells.N].sum(axis=-1) > 0).all(axis=1)
    by_user, by_item = (split.strata(rows[:, 0], rows[:, 1]) for rows in (users, items))
    spreads = np.stack([split.spread(rows, some) for rows, some in zip(users, scalars, strict=True)])
    clicks = users[..., cells.Y].sum(axis=-1) * both[:, None]
    return by_user.totals, by_user.devs, by_item.totals, by_item.devs, spreads, clicks
