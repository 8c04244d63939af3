"""A seeded log of requests, and the metrics of its lists by their definitions, ties over every order."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby, permutations, product
from math import log1p, log2, sqrt
from random import Random
from typing import Any

import numpy as np

from streameval.events.batch import Shadow
from streameval.events.hashing import hash_strings
from streameval.loop.pipeline import Pipeline
from streameval.results.result import Result
from streameval.settings.tree import Settings
from streameval.testing import Event, ManualClock, Shown, Tap, make_batch, readers_see

LATENESS = 25_000  # ms, less than is allowed

BASE = 1_700_000_040_000  # on a minute
MINUTE = 60_000
SPAN = 40 * MINUTE  # of a log
GAINS = {"click": lambda value: 1.0, "value": float, "sqrt_value": sqrt, "log_value": log1p}


@dataclass
class Row:
    """One impression of the log, as the judge reads it."""

    event: Shown
    clicked: bool
    value: float
    shadow: float | None  # v2's score


KS = (1, 3, 10)
JUDGED = 40_000, 3  # rows and seed of the log without ties that other programs judge
BY_USER = ("ndcg_3", "hit_rate_1", "click_hit_rate_3")


def settings(gain: str = "click", k: Sequence[int] = (1, 3, 10)) -> Settings:
    return Settings.model_validate(
        {
            "join": {"attribution_window": "2m", "allowed_lateness": "30s", "correction_horizon": "1h", "request_gap": "1m"},
            "windows": {"pane": "1m", "sliding": ["5m", "20m"]},
            "ranking": {"k": list(k), "gain": gain, "by_user": [name for name in BY_USER if int(name[-1]) in k]},
        }
    )  # fmt: skip


def log(n: int, seed: int) -> list[Row]:
    """Requests of 1 to 8 impressions with tied scores, some without clicks, some that v2 scored in part."""
    rng = np.random.default_rng(seed)
    out: list[Row] = []
    while len(out) < n:
        request, at = f"r{len(out)}", BASE + len(out) * SPAN // n
        size, whole = int(rng.integers(1, 9)), rng.random() < 0.9
        user, other = rng.integers(300), rng.random() < 0.02  # few lists are of several users
        served, placed = f"v{rng.integers(1, 3)}", rng.random() < 0.8
        scores = np.minimum(rng.integers(1, 40, size), 30) / 41
        for i in range(size):
            clicked = bool(rng.random() < 0.2)
            position = {"position": float(rng.integers(0, 10))} if placed else {}
            event = Shown(
                f"{request}-{i}", at + int(rng.integers(0, 20_000)), f"u{0 if other and i else user}",
                float(scores[i]), served, request if rng.random() > 0.001 else "", fields=position,
            )  # fmt: skip
            value = float(rng.integers(0, 4)) if clicked else 0.0
            shadow = float(rng.integers(1, 20) / 20) if whole or rng.random() < 0.5 else None
            out.append(Row(event, clicked, value, shadow if served == "v1" else None))
    return out


def untied(n: int, seed: int) -> list[Row]:
    """The same with scores that are all different, also in the 32 bits that trec_eval keeps of them; no shadow version."""
    rows = log(n, seed)
    scores = (np.random.default_rng(seed).permutation(len(rows)) + 1) / (len(rows) + 1)
    return [replace(r, event=replace(r.event, pclick=float(p)), shadow=None) for r, p in zip(rows, scores, strict=True)]


Documents = tuple[dict[str, dict[str, int]], dict[str, dict[str, float]]]


def documents(rows: Sequence[Row], gain: str) -> Documents:
    """By request of v1 and impression, as judges of documents read it: (the gain as its relevance, the score)."""
    wanted: defaultdict[str, dict[str, int]] = defaultdict(dict)
    ranked: defaultdict[str, dict[str, float]] = defaultdict(dict)
    for row in rows:
        if row.event.request and row.event.version == "v1":
            gained = int(row.value) if gain == "value" else 1
            wanted[row.event.request][row.event.id] = gained if row.clicked else 0
            ranked[row.event.request][row.event.id] = row.event.pclick
    return wanted, ranked


def events(rows: Sequence[Row]) -> list[tuple[int, Event]]:
    """By when they arrive, ms: clicks a little later, a few of them after their impression has matured."""
    out: list[tuple[int, Event]] = [(row.event.ts, row.event) for row in rows]
    for i, row in enumerate(rows):
        if row.clicked:
            when = row.event.ts + 1_000 + i % 97 * 1_000
            arrives = when + (10 * MINUTE if i % 31 == 0 else 0)
            out.append((arrives, Tap(row.event.id, when, {"value": row.value})))
    return sorted(out, key=lambda pair: pair[0])


def take(pipeline: Pipeline, part: Sequence[Event], rows: Sequence[Row], partition: int = 0) -> None:
    """Gives a pipeline events, impressions with the scores that v2 gave in shadow."""
    shadows = {row.event.id: row.shadow for row in rows}
    code = pipeline.catalog.series_code("default", "v2")
    batch = make_batch(part, pipeline.catalog, partition)
    given = [shadows[e.id] for e in part if isinstance(e, Shown)]
    indptr = np.concatenate((np.zeros(1, np.int64), np.cumsum([p is not None for p in given], dtype=np.int64)))
    p = np.array([one for one in given if one is not None])
    shadow = Shadow(indptr, np.full(p.size, code, np.int32), p)
    pipeline.take(replace(batch, impressions=replace(batch.impressions, shadow=shadow)))


def take_late(pipeline: Pipeline, rows: Sequence[Row], rng: Random, size: int, partitions: int) -> None:
    """Gives it a log in any order within the lateness, so many events at a time, by user on partitions; and looks in between."""
    late = [event for _, event in sorted(events(rows), key=lambda pair: pair[0] + rng.uniform(0, LATENESS))]
    of = list_users(rows)
    place = {row.event.id: of[row.event.request or row.event.id] % partitions for row in rows}  # Kafka: by user
    for start in range(0, len(late), size):
        for number in range(partitions):
            mine = [event for event in late[start : start + size] if place[event.id] == number]
            if mine:
                take(pipeline, mine, rows, number)
        if start % 3 == 0:
            readers_see(pipeline)  # windows stand somewhere, and slide


def run(rows: Sequence[Row], gain: str = "click") -> Pipeline:
    """A pipeline that has read the log."""
    pipeline = Pipeline(settings(gain), ManualClock())
    stream = [event for _, event in events(rows)]
    for start in range(0, len(stream), 3_000):
        take(pipeline, stream[start : start + 3_000], rows)
    pipeline.finish()
    return pipeline


def result(pipeline: Pipeline, version: str = "v1") -> Result:
    return next(r for r in readers_see(pipeline).results if (r.series.version, r.window) == (version, "all"))


def list_users(rows: Sequence[Row]) -> dict[str, int]:
    """By request, or by impression without one: its user, one of them where there are several."""
    out: dict[str, int] = {}
    for row, user in zip(rows, hash_strings([row.event.user for row in rows]).tolist(), strict=True):
        name = row.event.request or row.event.id
        out[name] = max(user, out.get(name, 0))
    return out


def judged(rows: Sequence[Row], version: str, gain: str) -> dict[str, float]:
    """Every metric of one version, by the definitions."""
    requests: defaultdict[str, list[Row]] = defaultdict(list)
    for row in rows:
        if row.event.request:
            requests[row.event.request].append(row)

    def items(some: Sequence[Row], scores: Sequence[float]) -> list[Item]:
        gains = [GAINS[gain](row.value) if row.clicked else 0.0 for row in some]
        return [Item(p, int(row.clicked), g) for p, row, g in zip(scores, some, gains, strict=True)]

    ranked, shown, of = [], [], list_users(rows)
    users: defaultdict[int, list[list[Item]]] = defaultdict(list)
    for some in requests.values():
        scores = [row.event.pclick if row.event.version == version else row.shadow for row in some]
        if all(p is not None for p in scores):
            ranked.append(items(some, scores))
            users[of[some[0].event.request]].append(ranked[-1])
        places = [row.event.fields.get("position") for row in some]
        if all(row.event.version == version for row in some) and None not in places:
            shown.append(items(some, [-place for place in places]))
    as_shown = averages(shown, (1, 3, 10))
    more = {f"shown_{name}": as_shown[name] for name in ("mrr", "ndcg_1", "ndcg_3", "ndcg_10")}
    by_user: defaultdict[str, list[float]] = defaultdict(list)
    for lists in users.values():
        own = averages(lists, (1, 3))
        for name in BY_USER:
            if own[name] is not None:
                by_user[f"{name}_by_user"].append(own[name])
    return averages(ranked, (1, 3, 10)) | more | {name: sum(each) / len(each) for name, each in by_user.items()}


Terms = dict[str, float]


@dataclass(frozen=True)
class Item:
    """One impression of a list."""

    score: float
    clicked: int
    gain: float  # of NDCG


def of_order(items: Sequence[Item], ks: Sequence[int]) -> Terms:
    """The terms of a list with a click, in the order in which it is given."""
    ranks = [r for r, item in enumerate(items, 1) if item.clicked]
    precise = {r: sum(1 for q in ranks if q <= r) / r for r in ranks}
    best = sorted((item.gain for item in items), reverse=True)
    found = {"mrr": 1 / ranks[0], "map": sum(precise.values()) / len(ranks)}
    for k in ks:
        within = [r for r in ranks if r <= k]
        ideal = sum(gain / log2(r + 1) for r, gain in enumerate(best[:k], 1))
        found[f"ndcg_{k}"] = sum(i.gain / log2(r + 1) for r, i in enumerate(items[:k], 1)) / ideal if ideal else 0.0
        found[f"map_{k}"] = sum(precise[r] for r in within) / len(ranks)
        found[f"hits_{k}"] = len(within)
        found[f"recall_{k}"] = len(within) / len(ranks)
        found[f"hit_{k}"] = float(bool(within))
    return found


def over_orders(items: Sequence[Item], ks: Sequence[int]) -> Terms:
    """The mean of the terms over every order of the ties."""
    each = [of_order(order, ks) for order in _orders(items)]
    return {name: sum(one[name] for one in each) / len(each) for name in each[0]}


def averages(lists: Sequence[Sequence[Item]], ks: Sequence[int]) -> dict[str, Any]:
    """The metrics by list; None: undefined."""
    clicked = [one for one in lists if any(item.clicked for item in one)]
    terms = [over_orders(one, ks) for one in clicked]
    gained = [t for t, one in zip(terms, clicked, strict=True) if any(item.gain for item in one)]
    clicks = sum(item.clicked for one in lists for item in one)

    def total(name: str, of: Sequence[Terms] = terms) -> float:
        return sum(one[name] for one in of)

    def mean(above: float, below: int) -> float | None:
        return above / below if below else None

    found: dict[str, Any] = {"requests": len(lists), "requests_clicked": len(clicked)}
    found |= {name: mean(total(name), len(terms)) for name in ("mrr", "map")}
    for k in ks:
        found[f"ndcg_{k}"] = mean(total(f"ndcg_{k}", gained), len(gained))
        found[f"map_{k}"] = mean(total(f"map_{k}"), len(terms))
        found[f"recall_{k}"] = mean(total(f"recall_{k}"), len(terms))
        found[f"precision_{k}"] = total(f"hits_{k}") / k / len(lists)
        found[f"hit_rate_{k}"] = total(f"hit_{k}") / len(lists)
        found[f"click_hit_rate_{k}"] = mean(total(f"hits_{k}"), clicks)
    return found


def _orders(items: Sequence[Item]) -> Iterator[list[Item]]:
    by_score = sorted(items, key=lambda item: -item.score)
    runs = [list(run) for _, run in groupby(by_score, key=lambda item: item.score)]
    for orders in product(*(permutations(run) for run in runs)):
        yield [item for run in orders for item in run]
