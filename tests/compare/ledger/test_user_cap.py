"""The sums under the cap of impressions of a user and day: against a loop, and their laws: batches, late labels, restart, partitions."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from benchmarks.detection.feed import PAIRED
from benchmarks.detection.versions import PAIRS
from benchmarks.detection.whole import read
from benchmarks.detection.worlds import WORLDS, draw
from streameval.compare.ledger import strata, user_cap
from streameval.compare.ledger.ledger import Ledger
from streameval.compare.ledger.placements import ITEMS, WIDTH
from streameval.compare.ledger.user_cap import UserCap
from streameval.compare.reading.reading import COMPARED
from streameval.compare.tracking.sums import PairedSums
from streameval.counting.users import Users, UserSlots
from streameval.events.batch import Catalog, Series
from streameval.events.durations import DAY
from streameval.settings.tree import Settings
from streameval.sketches import blocks
from streameval.sketches.blocks import BLOCKS, SCALE, blocks_of
from streameval.sketches.directory import Directory
from tests.compare.ledger.test_ledger import (
    BASE,
    CATALOG,
    EDGES,
    HORIZON,
    PANE,
    PLACED,
    SCALARS,
    Counting,
    Traffic,
    loss,
)

CAP = 3
NAMES = {**CATALOG.names(), "values": [["", "", "a", "b"]]}


class Capped(Counting):
    """Ledgers that cap users."""

    def __init__(self, partitions: int = 1) -> None:
        super().__init__(partitions)
        self.ledgers = [Ledger(PANE, HORIZON, CATALOG.radix, 1, EDGES, CAP) for _ in range(partitions)]


def traffic_of_few(n: int, seed: int, gap: int = 1_000) -> Traffic:
    """A few users have most of it, over the end of a day."""
    traffic = Traffic(n, seed, gap)
    rng = np.random.default_rng(seed + 1)
    traffic.user = rng.integers(1, 2**62, 40).astype(np.uint64)[(rng.pareto(1.0, n) * 3).astype(int) % 40]
    middle = (int(traffic.ts[n // 2]) // PANE) * PANE
    traffic.ts += (middle // DAY + 1) * DAY - middle
    return traffic


def within_cap(traffic: Traffic) -> NDArray[np.bool_]:
    """Which are among a user's first of the day that others than the server scored too."""
    seen: dict[tuple[int, int], int] = {}
    out = []
    for i, (user, ts) in enumerate(zip(traffic.user.tolist(), traffic.ts.tolist(), strict=True)):
        # the server is one of them
        seen[user, ts // DAY] = seen.get((user, ts // DAY), 0) + int(traffic.shadow[i].sum() > 1)
        out.append(seen[user, ts // DAY] <= CAP)
    return np.array(out)


def counted(traffic: Traffic, cuts: list[int]) -> Capped:
    counting = Capped()
    for rows in np.split(np.arange(traffic.ts.size), sorted(cuts)):
        if rows.size:
            counting.observe(*traffic.part(rows))
    return counting


def under_cap(counting: Counting) -> dict[tuple[int, int], NDArray[np.int64]]:
    """The sums under the cap of every pair."""
    out: dict[tuple[int, int], NDArray[np.int64]] = {}
    for (_, key), sums in counting.content()["segments"].items():
        row = np.array(sums)
        if key[1] >= 0:
            out[key] = out.get(key, 0) + row[:WIDTH] - row[WIDTH:]
    return out


@pytest.fixture(autouse=True)
def few_labels_close_a_stratum(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(strata, "_ENOUGH", 40)


def test_sums_under_the_cap_are_those_of_a_loop_over_a_users_first_impressions() -> None:
    traffic = traffic_of_few(3_000, 0)
    within = within_cap(traffic)
    assert 60 < within.sum() < 300
    block, item = blocks_of(traffic.user), traffic.item
    pairs = {key: np.zeros((2, BLOCKS + 1, 3)) for key in ((0, 1), (0, 2), (1, 0), (1, 2))}
    squares = dict.fromkeys(pairs, 0.0)
    for i in np.flatnonzero(within):
        a, label = int(traffic.series[i]), int(traffic.label[i])
        for b in range(3):
            if b != a and traffic.shadow[i, b]:
                d = loss(traffic.p[i, b], label) - loss(traffic.p[i, a], label)
                for by, g in enumerate((block[i], item[i])):
                    pairs[a, b][by, g] += (1, label, d)
                squares[a, b] += d * d
    found = under_cap(counted(traffic, [500, 501, 1200]))
    assert set(found) == set(pairs)
    for key, (users, items) in pairs.items():
        for start, expected in ((0, users[:BLOCKS]), (ITEMS, items[:BLOCKS])):
            sums = found[key][start : start + 8 * BLOCKS].reshape(BLOCKS, 8)
            assert sums[:, :2].tolist() == expected[:, :2].tolist()
            assert sums[:, blocks.D] / SCALE == pytest.approx(expected[:, 2], abs=1e-6)
        assert found[key][SCALARS + blocks.D_SQ] / SCALE == pytest.approx(squares[key], abs=1e-6)
        assert found[key][SCALARS + blocks.D_PROMISED] > 0


def test_all_sums_are_those_without_a_cap() -> None:
    traffic = traffic_of_few(1_000, 1)
    plain = Counting()
    plain.observe(*traffic.part(np.arange(1_000)))
    with_cap, without = counted(traffic, [300]).content(), plain.content()
    assert {k: row[:WIDTH] for k, row in with_cap["segments"].items()} == without["segments"]
    assert with_cap["parts"] == without["parts"]


def test_users_with_few_impressions_are_all_under_the_cap() -> None:
    traffic = traffic_of_few(600, 2)
    traffic.user = np.arange(1, 601, dtype=np.uint64) // np.uint64(CAP)
    for (_, key), sums in counted(traffic, []).content()["segments"].items():
        assert not any(sums[WIDTH:]), key


def test_placements_under_the_cap_are_those_of_impressions_under_it() -> None:
    """By the curves of all: over blocks of users and of items they add up alike, and squares are of the same scores."""
    traffic = traffic_of_few(2_000, 3)
    traffic.item = traffic.item % 64
    for sums in under_cap(counted(traffic, [])).values():
        users, items = sums[:SCALARS].reshape(BLOCKS, 8), sums[ITEMS:].reshape(BLOCKS, 8)
        assert users.sum(axis=0).tolist() == items.sum(axis=0).tolist()
        assert np.abs(users[:, blocks.PAIR_PHI1]).sum() > 0
        for square, phi, n in ((blocks.PAIR_PHI1_SQ, blocks.PAIR_PHI1, 1), (blocks.PAIR_PHI0_SQ, blocks.PAIR_PHI0, 0)):
            number = users[:, 1].sum() if n else users[:, 0].sum() - users[:, 1].sum()
            mean = users[:, phi].sum() / SCALE / number
            assert sums[SCALARS + square] / SCALE / number >= mean**2


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 99), st.lists(st.integers(0, 399), min_size=1, max_size=40, unique=True))
def test_a_label_that_changes_later_does_not_touch_the_sums_under_the_cap(seed: int, changed: list[int]) -> None:
    traffic = traffic_of_few(400, seed)
    rows = np.array(sorted(changed))
    counting = counted(traffic, [100])
    counting.observe(*traffic.part(rows, fresh=False), -1)
    counting.observe(*traffic.part(rows, 1 - traffic.label[rows], fresh=False), +1)
    found, expected = under_cap(counting), under_cap(counted(traffic, []))
    assert found.keys() == expected.keys()
    for key, row in expected.items():  # a stratum that is open when the stream ends is placed by the labels of then
        assert np.delete(found[key], PLACED).tolist() == np.delete(row, PLACED).tolist()


def test_deferred_panes_are_not_under_the_cap() -> None:
    traffic = traffic_of_few(600, 4)
    panes = traffic.ts // PANE
    deferred = {int(pane) for pane in np.unique(panes)[2:5]}
    counting = counted(traffic, [])
    end = int(panes[-1]) + 1
    for pane in range(int(panes[0]), end + 2 * HORIZON // PANE + 61):
        for segment, rows in counting.ledger.advance(pane + 1, deferred):
            counting._gain({(segment, key): row for key, row in rows.items()})
        counting._gain(counting.strata.settle(counting.ledgers, pane + 1))
    within = within_cap(traffic) & ~np.isin(panes, list(deferred))
    found = under_cap(counting)
    for a, b in found:
        on = (traffic.series == a) & traffic.shadow[:, b]
        assert found[a, b][0:SCALARS:8].sum() == (on & within).sum()
        assert found[a, b][1:SCALARS:8].sum() == traffic.label[on & within].sum()
        whole = sum(
            np.array(s)[0:SCALARS:8].sum() for (_, k), s in counting.content()["segments"].items() if k == (a, b)
        )
        assert whole == on.sum()


def test_a_checkpoint_from_before_there_was_a_cap_is_read_and_the_other_way_round() -> None:
    traffic = traffic_of_few(400, 5)
    rows = np.arange(400)
    codes = Catalog(("country",), 5).adopt(NAMES)
    whole = Counting()
    whole.observe(*traffic.part(rows))
    expected = whole.content()["segments"]
    for first, second in ((Counting(), Capped()), (Capped(), Counting())):
        first.observe(*traffic.part(rows[:200]))
        second.ledger.restore(first.ledger.state(), codes)
        second.observe(*traffic.part(rows[200:]))
        assert {k: row[:WIDTH] for k, row in second.content()["segments"].items()} == expected


def test_a_checkpoint_that_has_users_and_counts_apart_is_read() -> None:
    user, ts, on = np.arange(40, dtype=np.uint64) // np.uint64(2), np.full(40, BASE), np.ones(40, np.bool_)
    truth, read = UserCap(3), UserCap(3)
    truth.beyond(user, ts, on)
    seen, counts = np.unique(user, return_counts=True)
    read.restore({"day": BASE // DAY, "users": seen, "counts": counts.astype(np.uint8)})
    assert read.state()["cells"].tolist() == truth.state()["cells"].tolist()
    assert read.beyond(user, ts, on).tolist() == [False, True] * 20


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 999), st.lists(st.sampled_from(["slots", "none", "sample", "restart"]), min_size=2, max_size=12))
def test_counts_by_slot_are_those_of_the_table(seed: int, batches: list[str]) -> None:
    """Also where only some batches tell slots, a smaller sample renumbers them, and a checkpoint is read in between."""
    rng, ts = np.random.default_rng(seed), BASE // DAY * DAY + DAY - 400
    plain, cap, users = UserCap(CAP), UserCap(CAP), Users([1], "impressions", 1 << 30)
    for batch in batches:
        user = rng.integers(0, 30, 100).astype(np.uint64)
        if batch == "sample":
            users._halve()
        elif batch == "restart":
            state, cap = cap.state(), UserCap(CAP)
            cap.restore(state)
        known = None if batch == "none" else users.known(user)
        when, on = ts + np.arange(100), rng.random(100) < 0.8
        ts += 100
        assert cap.beyond(user, when, on, known).tolist() == plain.beyond(user, when, on).tolist()
        assert cap.state()["cells"].tolist() == plain.state()["cells"].tolist()


@pytest.mark.parametrize("in_table", [0, 10, 40])
def test_with_as_many_users_as_are_counted_new_ones_are_beyond_the_cap(
    monkeypatch: pytest.MonkeyPatch, in_table: int
) -> None:
    monkeypatch.setattr(user_cap, "MOST_USERS", 20)
    user, ts = np.arange(40, dtype=np.uint64), np.full(40, BASE)
    slot = np.arange(40, dtype=np.int32) - np.int32(in_table)
    directory = Directory()
    directory.slots(user[in_table:])
    cap, on = UserCap(CAP), np.ones(40, np.bool_)
    for _ in range(CAP):
        assert cap.beyond(user, ts, on, UserSlots(np.maximum(slot, -1), directory)).tolist() == (user >= 20).tolist()
    assert cap.beyond(user, ts, on).all()
    assert cap.state()["cells"].size == 20


def test_users_of_two_partitions_do_not_meet() -> None:
    traffic = traffic_of_few(1_000, 6)
    rows, mine = np.arange(1_000), traffic.user % 2 == 0
    one, two = Capped(), Capped(2)
    one.observe(*traffic.part(rows))
    two.observe(*traffic.part(rows[mine]))
    two.observe(*traffic.part(rows[~mine]), partition=1)
    assert two.content()["segments"] == one.content()["segments"]


def test_the_table_grows_forgets_the_day_before_and_has_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(7)
    user = rng.integers(0, 5_000, 30_000).astype(np.uint64)
    ts = np.arange(30_000, dtype=np.int64) + BASE
    logged = np.ones(30_000, np.bool_)
    cap, fewer = UserCap(2), UserCap(2)
    expected = np.array([(user[:i] == user[i]).sum() >= 2 for i in range(3_000)])
    assert cap.beyond(user[:3_000], ts[:3_000], logged[:3_000]).tolist() == expected.tolist()
    cap.beyond(user[3_000:], ts[3_000:], logged[3_000:])
    large = cap.nbytes
    assert 3 * large >= 4 * 8 * np.unique(user).size
    assert not cap.beyond(user[:10], ts[:10] + DAY, logged[:10]).any()
    assert cap.nbytes < large
    assert not UserCap(1).beyond(np.ones(5, np.uint64), ts[:5], np.zeros(5, np.bool_)).any()

    monkeypatch.setattr(user_cap, "MOST_USERS", 1_000)
    known = set[int]()
    expected = []
    count: dict[int, int] = {}
    for one in user.tolist():
        if one not in known and len(known) < 1_000:
            known.add(one)
        count[one] = count.get(one, 0) + 1
        expected.append(one not in known or count[one] > 2)
    assert fewer.beyond(user, ts, logged).tolist() == expected
    assert fewer.nbytes <= 9 * 2_048


SERIES = [Series("m", version, "logged") for version in ("v1", "v2", "v3")]
V1, V2, _ = SERIES


def test_a_comparison_looks_at_both_directions_of_a_pair_under_the_cap_in_every_window() -> None:
    """As sums of a stream that has nothing else, but for placements, whose curves are those of all."""
    traffic = traffic_of_few(3_000, 8)
    within = np.flatnonzero(within_cap(traffic))
    alone = Counting()
    alone.observe(*traffic.part(within))
    segments = sorted({number for number, _ in alone.content()["segments"]})
    found, expected = PairedSums(V1, V2), PairedSums(V1, V2)
    for sums, counting in ((found, counted(traffic, [700])), (expected, alone)):
        begun = False
        for (number, key), row in sorted(counting.content()["segments"].items()):
            if number > segments[0] and not begun:
                sums.begin(number)
                begun = True
            sums.add(number, (SERIES[key[0]], SERIES[key[1]] if key[1] >= 0 else None), np.array(row))
        assert begun
    assert expected.capped() is None
    some = found.capped()
    assert some is not None
    assert some.clicks.tolist() == expected.clicks().tolist()
    assert set(some.statistics) == {"log_loss", "auc", "calibration_mid", "calibration_gap"}
    for name in ("log_loss", "calibration_mid", "calibration_gap"):
        one, other = some.statistics[name], expected.statistics()[name]
        for field in ("theta", "weight", "v_clu", "v_iid", "df", "v_floor"):
            assert getattr(one, field).tolist() == getattr(other, field).tolist(), (name, field)
    assert found.clicks()[0, 0] == traffic.label[(traffic.series < 2) & traffic.shadow[:, :2].all(axis=1)].sum()


def test_without_anything_apart_the_second_look_is_the_first() -> None:
    traffic = traffic_of_few(600, 9)
    traffic.user = np.arange(1, 601, dtype=np.uint64)
    sums = PairedSums(V1, V2)
    for (number, key), row in counted(traffic, []).content()["segments"].items():
        sums.add(number, (SERIES[key[0]], SERIES[key[1]] if key[1] >= 0 else None), np.array(row))
    some = sums.capped()
    assert some is not None
    assert some.clicks.tolist() == sums.clicks().tolist()
    assert all(
        some.statistics[name].theta.tolist() == s.theta.tolist()
        for name, s in sums.statistics().items()
        if name != "gauc"
    )
    assert "gauc" not in some.statistics


def overall(pair: str, seed: int, cap: int) -> str:
    """The verdict on a day and a half of users Zipf 1.1, 80 impressions a minute, through the whole pipeline."""
    stream = draw(WORLDS["zipf 1.1"], PAIRS[pair], seed, hours=36.0, alone=0.5)
    rule = {"alpha": 0.05, "margins": dict.fromkeys(COMPARED, 0.0), "user_cap": cap}
    settings = Settings.model_validate({"windows": {"pane": "5m", "sliding": []}, "compare": rule})
    return read(stream, PAIRED, settings).final["overall"]


@pytest.mark.slow
@pytest.mark.parametrize("seed", [2, 3])
def test_a_heavy_user_hides_a_difference_no_longer(seed: int) -> None:
    assert overall("AUC -0.02", seed, 0) == "undecided"
    assert overall("AUC -0.02", seed, 30) == "worse"


@pytest.mark.slow
@pytest.mark.parametrize("seed", [2, 3, 4])
def test_under_the_cap_equal_versions_stay_unaccused(seed: int) -> None:
    assert overall("exchangeable", seed, 30) != "worse"
