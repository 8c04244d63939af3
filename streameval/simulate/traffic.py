"""The events of a scenario, block by block, with the truth beside them.

Blocks of ten seconds are drawn from generators of their own (seed, block number), so nothing depends on how the
traffic is consumed. Every impression has a true click probability p*: user and item tastes, position, country, device,
and the hour.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from streameval.simulate.scenario import Scenario

BLOCK_S = 10.0
COUNTRIES = ("de", "fr", "gb", "jp", "us")
DEVICES = ("android", "ios", "web")
FACTORS = 4
_DAY_S = 86_400.0


@dataclass(frozen=True, slots=True)
class Block:
    """Impressions and clicks of ten seconds (clicks: of impressions shown in them), in order of time."""

    number: NDArray[np.int64]  # of the impression, unique in the scenario
    ts: NDArray[np.int64]
    user: NDArray[np.int64]
    item: NDArray[np.int64]
    request: NDArray[np.int64]
    position: NDArray[np.int64]
    country: NDArray[np.int64]
    device: NDArray[np.int64]
    p_star: NDArray[np.float64]
    clicked: NDArray[np.bool_]  # whether a click will come, in time or late
    version: NDArray[np.int64]  # which version served
    pclick: NDArray[np.float64]  # [n, versions]
    click_of: NDArray[np.int64]  # position in the block
    click_ts: NDArray[np.int64]
    click_known: NDArray[np.bool_]  # False: its impression is never sent


class World:
    """Users and items with tastes, drawn once."""

    def __init__(self, scenario: Scenario) -> None:
        rng = np.random.default_rng((scenario.seed, 0))
        self.users = rng.normal(0, 1, (scenario.users, FACTORS)) / np.sqrt(FACTORS)
        self.items = rng.normal(0, 1, (scenario.items, FACTORS))
        self.user_bias = rng.normal(0, 0.5, scenario.users)
        self.item_bias = rng.normal(0, 0.6, scenario.items)
        self.country = rng.integers(0, len(COUNTRIES), scenario.users)
        self.age = rng.integers(18, 75, scenario.users)
        activity = rng.pareto(1.2, scenario.users) + 0.05  # a few are very active, many come once
        self.activity = np.cumsum(activity) / activity.sum()
        self.category = rng.integers(0, 12, scenario.items)
        # the mean of the logistic of a normal is not the logistic of its mean: shift until the CTR is right
        sample = rng.normal(0, 1.3, 20_000)
        shift = -3.0
        for _ in range(50):
            shift += np.log(scenario.ctr / np.mean(_sigmoid(shift + sample)))
        self.base = float(shift)


class Traffic:
    """Iterate `blocks()`; the same scenario always gives the same."""

    def __init__(self, scenario: Scenario) -> None:
        self.scenario = scenario
        self.world = World(scenario)

    def blocks(self) -> Iterator[Block]:
        """All blocks of the scenario, in order."""
        number = 0
        for block in range(int(np.ceil(self.scenario.duration_s / BLOCK_S))):
            made = self._block(block, number)
            number += made.number.size
            yield made

    def _block(self, block: int, first: int) -> Block:
        s, world = self.scenario, self.world
        rng = np.random.default_rng((s.seed, 1, block))
        begin = block * BLOCK_S
        length = min(BLOCK_S, s.duration_s - begin)
        hour = (s.start_ms / 1000.0 + begin) % _DAY_S / _DAY_S
        volume = 1.0 + 0.3 * np.sin(2 * np.pi * (hour - 0.3))
        requests = max(1, rng.poisson(s.rate * volume * length / s.request_size))
        n = requests * s.request_size
        shown = np.repeat(np.sort(rng.uniform(0, length, requests)), s.request_size)
        position = np.tile(np.arange(s.request_size), requests)
        scrolled = np.minimum(shown + position * rng.uniform(0.1, 0.6, requests).repeat(s.request_size), length - 1e-3)
        user = np.repeat(np.searchsorted(world.activity, rng.random(requests)), s.request_size)
        item = rng.integers(0, s.items, n)
        device = np.repeat(rng.integers(0, len(DEVICES), requests), s.request_size)
        logit = (
            world.base
            + 0.8 * (world.users[user] * world.items[item]).sum(axis=1)
            + world.user_bias[user]
            + world.item_bias[item]
            - 0.25 * (position - (s.request_size - 1) / 2)
            + 0.2 * (world.country[user] - 2)
            + 0.2 * np.sin(2 * np.pi * hour)
        )
        p_star = _sigmoid(logit)
        chance = np.full(n, s.ctr) if s.random_labels else p_star
        clicked = rng.random(n) < chance
        version, pclick = self._scores(user, item, begin + scrolled, logit)
        order = np.argsort(scrolled, kind="stable")
        ts = s.start_ms + np.round((begin + scrolled) * 1000).astype(np.int64)
        click_of, click_ts, known = self._clicks(rng, clicked[order], ts[order], begin)
        return Block(
            number=first + np.arange(n)[order],
            ts=ts[order],
            user=user[order],
            item=item[order],
            request=(block * 1_000_000 + np.arange(n) // s.request_size)[order],
            position=position[order],
            country=world.country[user][order],
            device=device[order],
            p_star=p_star[order],
            clicked=clicked[order],
            version=version[order],
            pclick=pclick[order],
            click_of=click_of,
            click_ts=click_ts,
            click_known=known,
        )

    def _scores(
        self, user: NDArray[np.int64], item: NDArray[np.int64], at_s: NDArray[np.float64], logit: NDArray[np.float64]
    ) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        s = self.scenario
        version = np.zeros(user.size, np.int64)
        pclick = np.empty((user.size, len(s.versions)))
        for v, one in enumerate(s.versions):
            # splitmix-like: the same user and item always get the same error from the same version
            mixed = (user * 1_000_003 + item * 7_919 + (s.seed * 31 + v) * 104_729).astype(np.uint64)
            mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
            mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
            uniform = ((mixed >> np.uint64(11)).astype(np.float64) + 0.5) / 2**53
            error = np.log(uniform / (1 - uniform)) / 1.814  # logistic with unit variance
            pclick[:, v] = _sigmoid(logit + one.bias + one.noise * error)
            chosen = (user * 2_654_435_761 + v * 97) % 10_000 < one.share * 10_000
            version = np.where((at_s >= one.start_s) & chosen, v, version)
        return version, pclick

    def _clicks(
        self, rng: np.random.Generator, clicked: NDArray[np.bool_], ts: NDArray[np.int64], begin: float
    ) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.bool_]]:
        s = self.scenario
        of = np.flatnonzero(clicked)
        delay = s.click_delay_s * np.exp(rng.normal(0, 0.8, of.size))
        delay = np.minimum(delay, s.window_s * 0.95)
        late = rng.random(of.size) < s.late_share
        delay[late] = s.window_s * rng.uniform(1.05, 1.5, int(late.sum()))
        when = ts[of] + np.maximum(1, np.round(delay * 1000)).astype(np.int64)
        known = rng.random(of.size) >= s.unmatched
        if s.dead_clicks is not None:
            at = (when - s.start_ms) / 1000.0
            alive = ~((at >= s.dead_clicks[0]) & (at < s.dead_clicks[1]))
            of, when, known = of[alive], when[alive], known[alive]
        return of, when, known


def _sigmoid(x: NDArray[np.float64] | float) -> NDArray[np.float64]:
    return np.asarray(1.0 / (1.0 + np.exp(-np.asarray(x))))
