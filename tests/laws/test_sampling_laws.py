"""Impressions of a sampled log count as several: in integers, so order, corrections and restarts change nothing."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from streameval.settings.tree import Settings
from streameval.sketches.ranks import GroupRanks
from streameval.sketches.sorted_lists import Changes, by_entry, entries
from tests.laws.streams import PARTITIONS, differences, through_disk
from tests.laws.test_restart_laws import Message, Process, messages, report


def config(sampling: dict[str, Any], **users: Any) -> Settings:
    return Settings.model_validate(
        {
            "join": {
                "attribution_window": "40s", "allowed_lateness": "8s", "correction_horizon": "90s", "request_gap": "20s",
            },
            "windows": {"pane": "10s", "sliding": ["30s", "60s"]},
            "slices": {"dimensions": ["country", "device"]},
            "compare": {"count": 20, "min_duration": "30s", "min_clicks": 20, "min_blocks": 10, "gauc_window": "20s"},
            "kafka": {"impressions_topic": "i", "clicks_topic": "i"},
            "users": users,
            "sampling": sampling,
        }
    )  # fmt: skip


def given_weights(weight: Callable[[Random], object]) -> list[list[Message]]:
    """The stream of the laws of restarts, its impressions with weights; what is malformed stays so."""

    def weighed(message: Message) -> Message:
        kind, value = message
        if kind == 2 or not value.endswith(b"}"):
            return message
        found = json.loads(value)
        found["weight"] = weight(Random(value))
        return kind, json.dumps(found, separators=(",", ":")).encode()

    return [[weighed(message) for message in part] for part in messages()]


def run(settings: Settings, parts: list[list[Message]], size: int = 400) -> dict[str, Any]:
    process = Process(settings, [])
    for start in range(0, max(map(len, parts)), size):
        for p, part in enumerate(parts):
            if part[start : start + size]:
                process.take(p, part[start : start + size], min(start + size, len(part)))
    return report(process.pipeline)


def without_sampling(found: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in found.items() if key != "sampling"}


def test_with_all_weights_1_the_report_is_the_unweighted_one_to_the_bit() -> None:
    plain = run(config({}), messages())
    ones = run(config({"weights": True}), given_weights(lambda _: 1))
    assert not differences(without_sampling(ones), without_sampling(plain))
    absent = run(config({"weights": True}), messages())
    assert not differences(without_sampling(absent), without_sampling(plain))
    assert [one["setup"] for one in plain["comparisons"]] == ["paired", "split"]
    assert not any(row["sampled"] for row in ones["results"])
    assert plain["results"][0]["gauc"] is not None


ODD = [0.4, 1, 1.0, 3.7, 100, 12.25]


@pytest.mark.parametrize("sampling", [{"weights": True}, {"negatives": 0.03}], ids=["weights", "negatives"])
@given(sizes=st.lists(st.sampled_from([7, 60, 400, 1500]), min_size=1, max_size=4), seed=st.integers(0, 1 << 32))
@settings(max_examples=3, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_restarts_and_batches_change_nothing(
    sampling: dict[str, Any], sizes: list[int], seed: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    parts, luck = given_weights(lambda luck: luck.choice(ODD)), Random(seed)
    folder, settings = tmp_path_factory.mktemp("restart"), config(sampling)
    expected = run(settings, parts, 10_000)
    process = Process(settings, [])
    at, number = [0] * PARTITIONS, 0
    while any(at[p] < len(parts[p]) for p in range(PARTITIONS)):
        for p in range(PARTITIONS):
            some = parts[p][at[p] : at[p] + sizes[number % len(sizes)]]
            if some:
                at[p] += len(some)
                process.take(p, some, at[p])
        number += 1
        if luck.random() < max(0.02, 3 * max(sizes) / 6_000):
            saved = [through_disk(process, p, folder / f"{number}-{p}") for p in range(PARTITIONS)]
            process = Process(settings, luck.sample([0, 1, 2], 3))
            for p in luck.sample(range(PARTITIONS), PARTITIONS):
                process.pipeline.restore_partition(p, saved[p])
    found = report(process.pipeline)
    assert not differences(found, expected)
    whole = [
        row for row in found["results"] if row["window"] == "all" and row["impressions"] > 5_000 and not row["slice"]
    ]
    assert len(whole) == 2
    assert all(row["effective_impressions"] < 0.6 * row["impressions"] for row in whole)
    assert all(row["reasons"]["gauc_request"] == "weights_not_supported" for row in whole)
    assert all(row["gauc"] is not None and row["auc"] is not None for row in whole)


def test_a_late_click_makes_a_copy_of_many_copies_of_no_click() -> None:
    shown = b'{"type":"impression","impression_id":"%s","ts":%d,"user_id":"u%d","pclick":0.2}'
    t0 = 1_700_000_000_000
    events: list[Message] = [(1, shown % (b"i%d" % i, t0 + i * 100, i % 5)) for i in range(200)]
    events.append((1, shown % (b"end", t0 + 75_000, 0)))  # all labels are due
    before = run(config({"negatives": 0.01}), [events])["results"][0]
    assert (before["impressions"], before["clicks"]) == (20_100, 0)
    click = (2, b'{"type":"click","impression_id":"i3","ts":%d,"user_id":"u3"}' % (t0 + 5_000))
    after = run(config({"negatives": 0.01}), [[*events, click]])["results"][0]
    assert (after["impressions"], after["clicks"], after["corrected"]) == (20_001, 1, 1)
    assert after["mean_pclick"] == pytest.approx(0.2)
    in_time = run(config({"negatives": 0.01}), [[events[0], *events[1:60], click, *events[60:]]])["results"][0]
    assert {**after, "corrected": 0} == in_time


@given(
    columns=st.lists(
        st.tuples(st.integers(0, 4), st.integers(0, 6), st.integers(0, 1), st.integers(1, 5)), min_size=1, max_size=60
    ),
    gone=st.sets(st.integers(0, 59)),
    seed=st.integers(0, 1 << 32),
)
@settings(max_examples=150, deadline=None)
def test_ranks_of_copies_are_those_of_as_many_impressions(
    columns: list[tuple[int, int, int, int]], gone: set[int], seed: int
) -> None:
    user, key, label, copies = (np.array(column) for column in zip(*columns, strict=True))
    entry = entries(user.astype(np.int32), key.astype(np.uint32), label.astype(np.int8))
    left = np.array([i not in gone for i in range(user.size)])

    weighed, plain = GroupRanks(with_copies=True), GroupRanks()
    order = np.random.default_rng(seed).permutation(user.size)
    for some in np.array_split(order, 3):
        added = by_entry(entry[some], copies[some].astype(np.uint32))
        weighed.apply(added.entries, np.empty(0, np.uint64), 5, copies=(added.copies, np.empty(0, np.uint32)))
    taken = by_entry(entry[~left], copies[~left].astype(np.uint32))
    weighed.apply(np.empty(0, np.uint64), taken.entries, 5, copies=(np.empty(0, np.uint32), taken.copies))

    plain.apply(np.sort(np.repeat(entry[left], copies[left])), np.empty(0, np.uint64), 5)
    assert weighed.terms() == plain.terms()
    assert (weighed.eligible, weighed.groups) == (plain.eligible, plain.groups)
    assert (weighed.impressions, weighed.eligible_impressions) == (plain.impressions, plain.eligible_impressions)
    assert weighed.of_each() == plain.of_each()
    for name, column in weighed.columns().items():
        assert np.allclose(column, plain.columns()[name][: column.size]), name

    again = GroupRanks(with_copies=True)
    again.restore(weighed.state())
    assert again.terms() == weighed.terms()
    kept = np.array([1, 3])
    for ranks in (weighed, plain):
        ranks.keep(kept)
    assert weighed.terms() == plain.terms()
    assert weighed.impressions == plain.impressions


def test_copies_that_were_never_added_cannot_be_taken_out() -> None:
    ranks = GroupRanks(with_copies=True)
    one = np.array([7], np.uint64)
    ranks.apply(one, np.empty(0, np.uint64), 1, copies=(np.array([3], np.uint32), np.empty(0, np.uint32)))
    with pytest.raises(KeyError, match="1 entries"):
        ranks.apply(np.empty(0, np.uint64), one, 1, copies=(np.empty(0, np.uint32), np.array([2], np.uint32)))
    assert Changes._fields == ("add", "sub", "add_copies", "sub_copies")


def test_a_checkpoint_of_another_sampling_is_refused(tmp_path: Path) -> None:
    from streameval.loop.binding import binding

    plain, tenth = binding(config({})), binding(config({"negatives": 0.1}))
    assert plain["sampling"] is None  # as if it were not there: older checkpoints have none
    assert tenth["sampling"] != plain["sampling"]
    assert binding(config({"negatives": 0.2}))["sampling"] != tenth["sampling"]
