"""What is shown while all partitions were taken from a process: the last results, until as much was read again."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from streameval.loop.last_known import LastKnown
from streameval.results.snapshot import PartitionState, Snapshot, empty_snapshot

READY = {"broker": True, "assigned": True, "caught_up": True}


def snapshot(number: int, offset: int | None, **changes: Any) -> Snapshot:
    """`offset`: of the one partition; None: there is none."""
    states = () if offset is None else (PartitionState(0, None, None, None, {("impressions", 0): offset}, {}),)
    base = {
        "number": number,
        "partitions": states,
        "whole": offset is not None,
        "ready": READY,
        "taken_at": float(number),
    }
    return replace(empty_snapshot(0.0), **{**base, "events": {"impressions": offset or 0}, **changes})


def test_results_stay_from_the_loss_until_as_much_was_read_again() -> None:
    """Just reassigned, they were those of a checkpoint, or none, and a verdict was said to be reliable."""
    last, before = LastKnown(), snapshot(1, 500)
    assert last.shown(snapshot(0, 400), before, is_out=False) is before
    away = {**READY, "assigned": False, "broker": False, "caught_up": False}
    steps = [  # what is counted now, and whether it is shown
        (snapshot(2, None, ready=away), True, False),
        (snapshot(3, None), True, False),
        (snapshot(4, None), False, False),  # assigned, and not restored
        (snapshot(5, 100), False, False),
        (snapshot(6, 499), False, False),
        (snapshot(7, 500), False, True),
        (snapshot(8, 501), False, True),
    ]
    for now, is_out, is_shown in steps:
        found = last.shown(before, now, is_out=is_out)
        if is_shown:
            assert found is now
        else:
            assert (found.number, found.taken_at, found.events) == (now.number, 1.0, {"impressions": 500})
            assert (found.stands_still, found.whole, found.ready["caught_up"]) == (True, False, False)
            assert found.ready["assigned"] == now.ready["assigned"]
        before = found


def test_a_topic_that_never_comes_as_far_again_is_shown_after_a_minute() -> None:
    last, before = LastKnown(), snapshot(1, 500)
    before = last.shown(before, snapshot(2, None), is_out=True)
    for number, is_shown in ((10, False), (69, False), (70, True), (71, True)):
        now = snapshot(number, number)
        found = last.shown(before, now, is_out=False)
        assert (found is now) == is_shown, number
        before = found


def test_partitions_that_another_worker_has_now_are_not_waited_for() -> None:
    two = (
        PartitionState(0, None, None, None, {("i", 0): 5}, {}),
        PartitionState(1, None, None, None, {("i", 1): 9}, {}),
    )
    last, before = LastKnown(), snapshot(1, None, partitions=two)
    before = last.shown(before, snapshot(2, None), is_out=True)
    now = snapshot(3, None, partitions=two[:1], whole=True)
    assert last.shown(before, now, is_out=False) is now


def test_before_anything_was_counted_nothing_is_kept() -> None:
    last, now = LastKnown(), snapshot(2, None)
    assert last.shown(snapshot(1, None), now, is_out=True) is now
