"""Averages by user of ranked lists, over the run and windows, against sums made anew."""

from __future__ import annotations

from collections import defaultdict

import numpy as np
import pytest

from streameval.counting.list_users import ListUsers
from streameval.counting.users import Users
from streameval.events.hashing import hash_strings
from streameval.metrics.view import UserMeans
from streameval.settings.tree import Settings
from streameval.sketches.list_cells import averages_of

NAMES = ("ndcg_5", "hit_rate_5", "click_hit_rate_5")
AVERAGES = averages_of(NAMES, (5,), "value")
WINDOWS = [3, 10]


def lists(rng: np.random.Generator, users: int, n: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows of n lists: lists, those with a gain, clicks; NDCG, hit, hits."""
    clicks = rng.integers(0, 3, n)
    reals = np.rint(rng.random((n, 3)) * (clicks > 0)[:, None] * (1 << 30)).astype(np.int64)
    counts = np.stack((np.ones(n, np.int64), (clicks > 1).astype(np.int64), clicks), axis=1)
    return rng.integers(0, users, n).astype(np.int32), np.concatenate((counts, reals), axis=1)


def anew(parts: list[tuple[np.ndarray, np.ndarray]]) -> list[UserMeans]:
    rows: defaultdict[int, list[int]] = defaultdict(lambda: [0] * 6)
    for slot, cells in parts:
        for s, row in zip(slot.tolist(), cells.tolist(), strict=True):
            rows[s] = [a + b for a, b in zip(rows[s], row, strict=True)]
    out = []
    for j, below in enumerate((1, 0, 2)):
        means = [int(np.rint(row[3 + j] / row[below])) for row in rows.values() if row[below] > 0]
        out.append(UserMeans(len(means), sum(means), sum(m * m for m in means)))
    return out


@pytest.mark.parametrize("seed", range(3))
def test_windows_and_the_run_are_as_if_made_anew(seed: int) -> None:
    rng = np.random.default_rng(seed)
    assert AVERAGES is not None
    users, log, end, first = ListUsers(WINDOWS, AVERAGES), defaultdict(list), 4, 0
    for _ in range(400):
        pane = int(rng.integers(max(first, end - 12), end + 2))
        slot, cells = lists(rng, 30, int(rng.integers(1, 8)))
        users.add({pane: (slot, cells)})
        log[pane].append((slot, cells))
        if rng.random() < 0.3:  # taken out again, in part
            users.add({pane: (slot[:2], -cells[:2])})
            log[pane].append((slot[:2], -cells[:2]))
        if rng.random() < 0.2:
            end += int(rng.integers(0, 6))
        if rng.random() < 0.1:
            first = end - 12
            users.forget_before(first)
        for window, length in enumerate(WINDOWS):
            inside = [part for pane, parts in log.items() if end - length <= pane < end for part in parts]
            assert list(users.means(window, end)) == anew(inside)
    assert list(users.means(None, end)) == anew([part for parts in log.values() for part in parts])


def test_a_row_takes_48_bytes_at_the_most() -> None:
    assert AVERAGES is not None
    assert AVERAGES.cells * 8 == 48
    widest = Settings.model_validate({"ranking": {"by_user": list(NAMES), "gain": "value"}}).ranking
    found = averages_of(widest.by_user, widest.k, widest.gain)
    assert found is not None
    assert found.cells * 8 <= 48


def test_beyond_the_budget_a_sample_of_users_is_kept_completely() -> None:
    rng = np.random.default_rng(4)
    ids = hash_strings([f"u{i}" for i in range(40_000)])
    whole, sampled = (Users(WINDOWS, "impressions", budget, averages=AVERAGES) for budget in (1 << 30, 2_000_000))
    for pane in range(12):
        slot, cells = lists(rng, ids.size, 60_000)
        for users in (whole, sampled):
            users.add_lists(0, {pane: (users.slots(ids[slot]), cells)})
            users.fit_budget()
    assert sampled.sampled < 1.0 == whole.sampled
    assert sampled.nbytes <= sampled.budget + 60_000 * 52  # what came since it was looked at
    for window in (None, 0, 1):
        of_all, of_some = (users.list_means(0, window, 12) for users in (whole, sampled))
        for name in NAMES:
            a, b = of_all[name], of_some[name]
            assert b.users / a.users == pytest.approx(sampled.sampled, rel=0.1)
            assert b.total / b.users == pytest.approx(a.total / a.users, rel=0.05)
