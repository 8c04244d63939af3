"""Traffic for which verdicts were not tuned: seeded columns of impressions, their clicks, and the scores of two versions.

logit P(click) = level(t) + shock + user + item + session. The level varies with the hour of the day, the weekend, a flash
hour, and a trend; users and items are active by Zipf's law, and items are continually replaced by new ones. A version sees
user + item through noise and predicts the calibrated P(click | what it sees, the level), as in `world`; the shocks are
unknown to versions. Bots click by a law of their own, which is unknown, too. Days begin at midnight UTC of a Monday.

It returns columns, a week of 80 impressions a minute in about a second; `feed` decides which version serves what.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from benchmarks.detection.versions import Pair, scores
from benchmarks.detection.world import BASE, MAX_LENGTH, SD_ITEM, SD_SESSION, SD_USER

MONDAY = 1_714_953_600_000  # 2024-05-06T00:00:00Z
MINUTE, HOUR, DAY = 60_000, 3_600_000, 86_400_000
WEEK_HOURS = 168
PEAK_HOUR = 14  # of traffic; that of the odds is six hours later
FLASH_TRAFFIC, FLASH_ODDS = 8.0, 0.5
CLICK_DELAY = 60_000.0  # ms on average
WITHIN_SESSION = 15_000.0  # ms between two impressions

Reals = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Traffic:
    """The arrival of users, and the variation of odds. In log-odds throughout."""

    rate: float = 80.0  # impressions a minute on average
    base: float = BASE - 0.2  # a CTR of about 2.8%
    users: int = 20_000
    zipf: float | None = 0.8  # of users' activity; None: log-normal
    items: int = 2_000  # in stock at a time; 0: every impression has its own
    item_zipf: float = 0.8
    turnover: float = 1.0  # of the stock, a day
    top_item: float = 0.0  # share of the impressions that a single item takes
    swing: float = 0.3  # amplitude over the day
    busy: float = 0.6  # amplitude of the traffic over the day, relative
    session: float = 5.0  # impressions
    weekend: float = 0.0  # added to the odds; also the relative growth of the traffic
    flash: float | None = None  # hours after the deploy: an hour of eight times the traffic
    bots: float = 0.0  # share of the sessions
    robots: int = 5  # the number of bots
    bot_odds: float = -3.0  # what they add to the level
    trend: float = 0.0  # a day
    followed: bool = True  # whether scores follow the trend
    day_shock: float = 0.05
    hour_shock: float = 0.03


@dataclass(frozen=True)
class Stream:
    """n impressions in order of time, with the scores of both versions. Times are ms since the epoch."""

    ts: Ints
    user: NDArray[np.uint64]
    item: NDArray[np.uint64]
    clicked: NDArray[np.bool_]
    click_ts: Ints  # of clicked impressions, in their order
    pclick: Reals  # [2, n]: baseline, candidate
    truth: Reals  # P(click), unknown to versions
    arm: Reals  # in [0, 1), by user: decides the arm of a split
    deploy: int  # when the candidate goes live
    end: int

    def __len__(self) -> int:
        return self.ts.size


def draw(traffic: Traffic, pair: Pair, seed: int, hours: float, alone: float = 24.0) -> Stream:
    """`alone` hours of the baseline, then `hours` of both; the deploy is at a random minute of the week."""
    rng = np.random.default_rng([seed, 71])
    deploy = MONDAY + 7 * DAY + int(rng.integers(0, WEEK_HOURS * 60)) * MINUTE
    begin, end = deploy - round(alone * HOUR), deploy + round(hours * HOUR)
    ts, session, user = _sessions(traffic, rng, begin, end, deploy)
    item, generation = _items(traffic, rng, ts)
    bot = user >= traffic.users

    of_users = rng.standard_normal(traffic.users + traffic.robots)
    of_items = rng.standard_normal(generation.shape) if traffic.items else None
    signal = SD_USER * of_users[user]
    signal += SD_ITEM * (rng.standard_normal(ts.size) if of_items is None else of_items.ravel()[item])
    known, shocks = _levels(traffic, rng, ts, begin, deploy)
    hidden = shocks + SD_SESSION * rng.standard_normal(int(session.max()) + 1)[session]
    if not traffic.followed:
        hidden += traffic.trend * (ts - begin) / DAY
    logit = known + signal + hidden + traffic.bot_odds * bot
    truth = 1.0 / (1.0 + np.exp(-logit))
    clicked = rng.random(ts.size) < truth
    delay = rng.exponential(CLICK_DELAY, int(clicked.sum())).astype(np.int64)

    pclick = scores(pair, rng, known, signal, user, item, (traffic.users + traffic.robots, generation.size))
    if pair.levelled:
        pclick *= (
            np.array([[m.core.scale] for m in (pair.baseline, pair.candidate)])
            * truth.sum()
            / pclick.sum(axis=1, keepdims=True)
        )
    return Stream(
        ts, _hashes(user, seed, 1), _hashes(item, seed, 2), clicked, ts[clicked] + delay, pclick, truth,
        rng.random(traffic.users + traffic.robots)[user], deploy, end,
    )  # fmt: skip


def _sessions(
    traffic: Traffic, rng: np.random.Generator, begin: int, end: int, deploy: int
) -> tuple[Ints, NDArray[np.int32], NDArray[np.int32]]:
    """Time, number of the session and user of every impression."""
    minute = np.arange(begin, end, MINUTE, dtype=np.int64)
    rate = traffic.rate / traffic.session * (1.0 + traffic.busy * _wave(minute, PEAK_HOUR - 6))
    rate *= 1.0 + traffic.weekend * _weekend(minute)
    if traffic.flash is not None:
        rate *= np.where(_flash(minute, traffic.flash, deploy), FLASH_TRAFFIC, 1.0)
    counts = rng.poisson(rate)
    many = int(counts.sum())
    start = np.repeat(minute, counts) + rng.integers(0, MINUTE, many)
    length = np.minimum(rng.geometric(1.0 / traffic.session, many), MAX_LENGTH)
    user = rng.choice(traffic.users, many, p=_activity(traffic, rng)).astype(np.int32)
    if traffic.bots:
        robots = rng.random(many) < traffic.bots
        user[robots] = traffic.users + rng.integers(0, traffic.robots, int(robots.sum()))
    session = np.repeat(np.arange(many, dtype=np.int32), length)
    gap = rng.exponential(WITHIN_SESSION, session.size)
    gap[np.cumsum(length) - length] = 0.0
    passed = np.cumsum(gap)
    ts = start[session] + (passed - passed[np.cumsum(length) - length][session]).astype(np.int64)
    order = np.argsort(ts, kind="stable")
    order = order[ts[order] < end]
    return ts[order], session[order], user[session[order]]


def _activity(traffic: Traffic, rng: np.random.Generator) -> Reals:
    if traffic.zipf is None:
        activity = np.exp(rng.standard_normal(traffic.users))
    else:
        activity = np.arange(1, traffic.users + 1, dtype=np.float64) ** -traffic.zipf
    return activity / activity.sum()


def _items(traffic: Traffic, rng: np.random.Generator, ts: Ints) -> tuple[Ints, NDArray[np.int8]]:
    """The item of every impression, and an empty array with the shape of all items: [places of the stock, successive items]."""
    if not traffic.items:
        return np.arange(ts.size, dtype=np.int64), np.empty(ts.size, np.int8)
    weight = np.arange(1, traffic.items + 1, dtype=np.float64) ** -traffic.item_zipf
    place = rng.choice(traffic.items, ts.size, p=weight / weight.sum())
    if traffic.top_item:
        place[rng.random(ts.size) < traffic.top_item] = 0
    turns = traffic.turnover * (ts - ts[0]) / DAY + rng.random(traffic.items)[place]  # places change at different hours
    turn = turns.astype(np.int64)
    most = int(turn.max()) + 1
    return place * most + turn, np.empty((traffic.items, most), np.int8)


def _levels(traffic: Traffic, rng: np.random.Generator, ts: Ints, begin: int, deploy: int) -> tuple[Reals, Reals]:
    """(the level that versions know, the shocks that they do not), by impression."""
    known = traffic.base + traffic.swing * _wave(ts, PEAK_HOUR) + traffic.weekend * _weekend(ts)
    if traffic.flash is not None:
        known = known + FLASH_ODDS * _flash(ts, traffic.flash, deploy)
    if traffic.followed:
        known = known + traffic.trend * (ts - begin) / DAY
    hour = (ts - begin) // HOUR
    day = ts // DAY - begin // DAY
    shocks = traffic.hour_shock * rng.standard_normal(int(hour[-1]) + 1)[hour]
    shocks += traffic.day_shock * rng.standard_normal(int(day[-1]) + 1)[day]
    return known, shocks


def _wave(ts: Ints, hour: int) -> Reals:
    """A day's sine, 0 at this hour and rising."""
    return np.sin(2.0 * np.pi * ((ts - MONDAY) / DAY - hour / 24.0))


def _weekend(ts: Ints) -> NDArray[np.bool_]:
    return (ts - MONDAY) // DAY % 7 >= 5


def _flash(ts: Ints, hours: float, deploy: int) -> NDArray[np.bool_]:
    since = ts - deploy - hours * HOUR
    return (since >= 0) & (since < HOUR)


def _hashes(index: NDArray[np.int32] | Ints, seed: int, kind: int) -> NDArray[np.uint64]:
    """Ids as a decoder produces them: 64 bits, different in every stream (splitmix64)."""
    x = index.astype(np.uint64) + np.uint64((seed * 4 + kind) << 40)
    x = (x + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31)) | np.uint64(1)


BASIC = Traffic()
WORLDS = {
    "zipf 0.8": BASIC,
    "zipf 1.1": Traffic(zipf=1.1),
    "zipf 1.3": Traffic(zipf=1.3),
    "flat": Traffic(swing=0.0),
    "swing 0.8": Traffic(swing=0.8),
    "no shocks": Traffic(day_shock=0.0, hour_shock=0.0),
    "weekend": Traffic(weekend=0.4),
    "flash": Traffic(flash=5.0),
    "bots": Traffic(bots=0.05),
    "one bot": Traffic(bots=0.3, robots=1),
    "one clicking bot": Traffic(bots=0.3, robots=1, bot_odds=2.0),
    "ten clickers": Traffic(bots=0.03, robots=10, bot_odds=4.0),  # a third of the clicks
    "four clickers": Traffic(bots=0.06, robots=4, bot_odds=4.0),  # half of the clicks
    "trend": Traffic(swing=0.0, trend=-0.25),
    "trend and swing": Traffic(trend=-0.25),
    "trend, unseen": Traffic(trend=-0.25, followed=False),
    "busy 0.9": Traffic(busy=0.9, swing=0.6),
    "items for ever": Traffic(turnover=0.0),
    "items 6 h": Traffic(turnover=4.0),
    "300 users": Traffic(users=300, zipf=0.0),
    "one item": Traffic(rate=600.0, users=200_000, turnover=0.0, top_item=0.5),
    "600 a minute": Traffic(rate=600.0, swing=0.6, users=200_000),
    "3,000 a minute": Traffic(rate=3_000.0, swing=0.6, users=1_000_000),
    "200 a minute": Traffic(rate=200.0, day_shock=0.0, hour_shock=0.0),
    # the world of docs/detection.md, except for cold curves: `world` warms up both versions
    "documented": Traffic(rate=300.0, base=BASE, users=60_000, zipf=None, items=0, swing=0.25),
    "documented, zipf 1.1": Traffic(rate=300.0, base=BASE, users=60_000, zipf=1.1, items=0, swing=0.25),
}
