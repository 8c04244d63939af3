"""Numbers of clicks in the joiner: several clicks on one impression join by the field's rule, however the logs are cut."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

import numpy as np
import pytest

from streameval.events.batch import Catalog
from streameval.events.codes import Codes
from streameval.events.fields import ALWAYS, CLICK, FIELDS, Field, Join, register
from streameval.events.hashing import hash_one
from streameval.join.fates import Flips
from streameval.join.joiner import Joiner
from streameval.join.leaps import Leaps
from streameval.join.policy import CLICKED, MATURED, JoinPolicy
from streameval.testing import Event, Shown, Tap, make_batch

BASE, WINDOW, LATENESS, HORIZON = 1_700_000_000_000, 60_000, 5_000, 3_600_000
RULES = tuple(
    Field(rule.name.lower(), "number", (CLICK,), "", default=0.0, join=rule, needs=(ALWAYS,)) for rule in Join
)
SAME = Codes(np.arange(8, dtype=np.int32), (), 1)


@pytest.fixture(autouse=True)
def rules() -> Iterator[None]:
    for field in RULES:
        register(field)
    yield
    for field in RULES:
        del FIELDS[field.name]


def stream(luck: Random, n: int = 300) -> list[Event]:
    """Impressions with up to four clicks: some before them, some late, some without the numbers; by arrival."""
    arrivals: list[tuple[int, Event]] = []
    for i in range(n):
        ts = BASE + 500 * i
        arrivals.append((ts, Shown(f"i{i}", ts)))
        for _ in range(luck.choice([0, 1, 1, 2, 4])):
            clicked = ts + luck.randrange(-LATENESS - 1_000, WINDOW + 10_000)
            value = luck.choice([-3.0, 0.0, 0.5, 2.0, 7.25, None])
            fields = {} if value is None else {field.name: value for field in RULES}
            arrivals.append((clicked + luck.choice([0, 0, LATENESS // 2, 10 * WINDOW]), Tap(f"i{i}", clicked, fields)))
    return [event for _, event in sorted(arrivals, key=lambda pair: pair[0])]


def expected(events: list[Event], shared: bool) -> dict[int, dict[str, float]]:
    """What the rules say, click by click in the order of their log."""
    shown = {e.id: e.ts for e in events if isinstance(e, Shown)}
    taps: dict[str, list[Tap]] = {name: [] for name in shown}
    in_time: dict[str, list[float]] = {name: [0.0] for name in shown}
    keys: dict[str, int] = {}
    newest = {Shown: 0, Tap: 0}
    for e in events:
        newest[type(e)] = max(newest[type(e)], e.ts)
        key = max(newest.values()) if shared else newest[type(e)]
        if isinstance(e, Shown):
            keys[e.id] = key
        elif -LATENESS <= e.ts - shown[e.id] <= WINDOW:
            taps[e.id].append(e)
            came_after = e.id in keys and keys[e.id] <= key
            if e.fields and not (came_after and shown[e.id] + WINDOW <= key - LATENESS):
                in_time[e.id].append(e.fields["sum"])
    out = {}
    for name, clicks in taps.items():
        given = [tap.fields["sum"] for tap in clicks if tap.fields]
        out[hash_one(name)] = {
            "first": clicks[0].fields.get("first", 0.0) if clicks else 0.0,
            "last": given[-1] if given else 0.0,
            "largest": max([0.0, *given]),
            "sum": sum(given),
            "largest_in_time": max(in_time[name]),
        }
    return out


def made(shared: bool) -> Joiner:
    return Joiner(JoinPolicy(WINDOW, LATENESS, HORIZON, keep=RULES), shared=shared)


def values(joiner: Joiner) -> dict[int, dict[str, float]]:
    table, n = joiner.table, joiner.known
    columns = dict(zip((f.name for f in RULES), table.fields[:, :n].tolist(), strict=True))
    return {row: {name: column[k] for name, column in columns.items()} for k, row in enumerate(table.id[:n].tolist())}


def pieces(luck: Random, events: list[Event]) -> Iterator[list[Event]]:
    while events:
        size = luck.choice([1, 3, 40, 200])
        yield events[:size]
        events = events[size:]


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("shared", [True, False])
def test_clicks_join_by_the_rules_however_the_logs_are_cut(seed: int, shared: bool) -> None:
    luck = Random(seed)
    events = stream(luck)
    orders = [events]
    if not shared:  # one log read far ahead of the other
        logs = [[e for e in events if isinstance(e, kind)] for kind in (Tap, Shown)]
        orders += [logs[0] + logs[1], logs[1] + logs[0]]
    for order in orders:
        joiner, catalog = made(shared), Catalog()
        for part in pieces(luck, order):
            joiner.add(make_batch(part, catalog, shared=shared))
        assert values(joiner) == expected(events, shared)


@pytest.mark.parametrize("seed", range(4))
def test_what_a_flip_says_was_is_what_stood_there_when_it_was_counted(seed: int) -> None:
    luck = Random(seed)
    joiner, catalog = made(True), Catalog()
    counted: dict[int, list[float]] = {}

    def take_out(flips: Flips) -> None:
        rows, first = np.unique(flips.rows, return_index=True)
        for row, at in zip(rows.tolist(), first.tolist(), strict=True):
            assert counted[row] == [float(flips.was_clicked[at]), *flips.was_fields[:, at].tolist()]
        put_in(rows)

    def put_in(rows: np.ndarray) -> None:
        for row in rows.tolist():
            counted[row] = [float(joiner.table.state[row] & CLICKED), *joiner.table.fields[:, row].tolist()]

    for part in pieces(luck, stream(luck)):
        _, flips = joiner.add(make_batch(part, catalog))
        take_out(flips)
        put_in(joiner.mature(joiner.progress.firm))
    mature = np.flatnonzero(joiner.table.state[: joiner.known] & MATURED)
    assert mature.size == len(counted) > 200
    now = dict(counted)
    put_in(mature)
    assert counted == now, "nothing has changed without a flip"


def test_a_state_goes_on_as_if_nothing_had_happened() -> None:
    luck = Random(1)
    events = stream(luck)
    half = len(events) // 2
    first, catalog = made(False), Catalog()
    clicks_ahead = [e for e in events[half : half + 100] if isinstance(e, Tap)]
    first.add(make_batch(events[:half] + clicks_ahead, catalog, shared=False))
    assert first._held.end > 10
    again = made(False)
    again.restore(as_read(first.state(scores_change=False)), SAME)
    rest = [e for e in events[half:] if e not in clicks_ahead]
    for joiner in (first, again):
        joiner.add(make_batch(rest, catalog, shared=False))
    assert values(again) == values(first)


def as_read(state: dict) -> dict:
    return {**state, "runs": state["runs"]()}


def test_checkpoints_of_format_5_are_read() -> None:
    """They had `value` among the columns, of held clicks always, of rows when it was kept, and dead columns in `leaps`."""
    keep = (FIELDS["value"],)
    one = Joiner(JoinPolicy(WINDOW, LATENESS, HORIZON, keep=keep), shared=False)
    batch = make_batch(
        [Shown("a", BASE), Tap("a", BASE + 5, {"value": 2.5}), Tap("b", BASE, {"value": 1.5})], Catalog(), shared=False
    )
    one.add(batch)
    new = as_read(one.state(scores_change=False))
    old = {**new, "rows": dict(new["rows"]), "held": dict(new["held"])}
    for part in ("rows", "held"):
        old[part]["value"] = old[part].pop("fields")["value"]
    for kept in (keep, ()):
        again = Joiner(JoinPolicy(WINDOW, LATENESS, HORIZON, keep=kept), shared=False)
        if not kept:
            old["rows"]["value"] = np.empty(0)
        again.restore(old, SAME)
        again.add(make_batch([Shown("b", BASE)], Catalog(), shared=False))
        assert again.table.fields[:, :2].tolist() == [[2.5, 1.5]] * len(kept)

    leaps = Leaps(HORIZON, True)
    leaps.begin_at(BASE - 2 * HORIZON)
    leaps.screen(batch.impressions, batch.clicks)
    saved = leaps.state()
    impressions, clicks = dict(saved["impressions"]), dict(saved["clicks"])
    n, value = len(impressions["id"]), clicks.pop("fields")["value"]
    del impressions["fields"]
    impressions |= {"position": np.full(n, -1, np.int32), "propensity": np.full(n, np.nan)}
    restored = Leaps(HORIZON, True)
    restored.restore({**saved, "impressions": impressions, "clicks": {**clicks, "value": value}}, SAME)
    assert len(restored) == len(leaps) == 3
    assert restored.finish()[1].fields["value"].tolist() == [2.5, 1.5]


def test_a_field_may_have_the_name_of_a_column() -> None:
    """Nor need it: they are kept apart."""
    field = Field("state", "number", (CLICK,), "", default=0.0, join=Join.LAST, needs=(ALWAYS,))
    register(field)
    try:
        joiner, catalog = Joiner(JoinPolicy(WINDOW, LATENESS, HORIZON, keep=(field,))), Catalog()
        joiner.add(make_batch([Shown("a", BASE), Tap("a", BASE + 5, {"state": 2.5})], catalog))
        again = Joiner(joiner.policy)
        again.restore(as_read(joiner.state(scores_change=False)), SAME)
    finally:
        del FIELDS["state"]
    assert (again.table.fields[0, 0], again.table.state[0]) == (2.5, CLICKED)
