"""One message per change and none lost: over restarts, kills, outages, full queues and a store that fails."""

from __future__ import annotations

import random
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from streameval.compare.reading.handling import Handling, comparison_key
from streameval.compare.reading.notified import Told
from streameval.compare.reading.reading import Role, RoleName, VerdictChange
from streameval.events.batch import Series
from streameval.outlets.notify import notifier as module
from streameval.outlets.notify.notifier import Notifier
from streameval.outlets.notify.receivers import make_receiver
from streameval.results.snapshot import CheckpointState, Snapshot
from streameval.settings import toml
from streameval.store import outbox as outbox_module
from streameval.store.errors import StoreError
from streameval.store.outbox import Outbox
from tests.comparisons import NOON, comparison
from tests.outlets.receiving import Inbox, http_receiver
from tests.outlets.telling import seen, story

ROOT = Path(__file__).parents[3]
PATIENCE = 240.0  # seconds, on a slow machine


@pytest.fixture(autouse=True)
def _no_time_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_LONGEST_BACKOFF", 0.05)


@pytest.fixture
def inbox() -> Iterator[Inbox]:
    with http_receiver() as inbox:
        yield inbox


@contextmanager
def telling(
    inbox: Inbox, tmp_path: Path, store: Path | None, *, had_state: bool = False, **keys: Any
) -> Iterator[Notifier]:
    """A notifier with one webhook; at the end it goes as a killed one would: without a word."""
    url = tmp_path / "url"
    url.write_text(inbox.url)
    settings = toml.validate({"notify": [{"kind": "webhook", "url_file": str(url), **keys}]})
    outbox = Outbox(store)
    out = Notifier([make_receiver(one) for one in settings.notify], outbox, "", had_state=had_state)
    out.start()
    try:
        yield out
    finally:
        out.finish(60.0)
        out.close()
        outbox.close()


def until(true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def keys_of(changes: int) -> list[str]:
    key = comparison_key(story(1)[0])
    return [f"{key}-{one.at}-{one.kind}-{one.verdict}" for one in story(changes)[0].changes]


def test_each_change_is_told_once_and_in_order(inbox: Inbox, tmp_path: Path) -> None:
    with telling(inbox, tmp_path, tmp_path) as notifier:
        for number in (1, 2, 2, 5, 5):
            notifier.see(seen(number))
        until(lambda: notifier.states()[0].delivered == 5)  # counted after the receiver has answered
    assert inbox.ids == keys_of(5)


def test_a_restart_that_counts_everything_again_tells_nothing_again(inbox: Inbox, tmp_path: Path) -> None:
    for start, last in enumerate((3, 3, 4)):
        with telling(inbox, tmp_path, tmp_path, had_state=start > 0) as notifier:
            for number in range(1, last + 1):
                notifier.see(seen(number))
            until(lambda: not notifier.states()[0].waiting)
    assert inbox.ids == keys_of(4)


def test_an_outage_and_a_restart_within_it_lose_nothing(inbox: Inbox, tmp_path: Path) -> None:
    inbox.answer = lambda post: (503, {})
    with telling(inbox, tmp_path, tmp_path) as notifier:
        notifier.see(seen(3))
        until(lambda: inbox.refused > 2)
        state = notifier.states()[0]
        assert (state.waiting, state.delivered, state.error) == (3, 0, "127.0.0.1: 503")
        assert state.oldest is not None
    inbox.answer = lambda post: (200, {})
    with telling(inbox, tmp_path, tmp_path) as notifier:
        until(lambda: len(inbox.taken) == 3)
        until(lambda: notifier.states()[0].error == "" and not notifier.states()[0].waiting)
    assert inbox.ids == keys_of(3)


def test_a_receiver_that_hangs_holds_up_neither_the_caller_nor_another_receiver(inbox: Inbox, tmp_path: Path) -> None:
    hang = threading.Event()
    with http_receiver() as other:
        other.answer = lambda post: (200 if hang.wait(PATIENCE) else 503, {})
        (tmp_path / "a").write_text(inbox.url)
        (tmp_path / "b").write_text(other.url)
        tables = [{"kind": "webhook", "name": name, "url_file": str(tmp_path / name)} for name in ("a", "b")]
        settings = toml.validate({"notify": tables})
        outbox = Outbox(None)
        notifier = Notifier([make_receiver(one) for one in settings.notify], outbox, "")
        notifier.start()
        for number in range(1, 6):
            notifier.see(seen(number))
        until(lambda: len(inbox.taken) == 5)
        assert not other.taken
        hang.set()
        until(lambda: list(dict.fromkeys(other.ids)) == keys_of(5))  # whom it hung for too long was asked again
        notifier.finish(60.0)
        notifier.close()
        outbox.close()


def test_a_message_that_is_refused_does_not_hold_up_the_others(inbox: Inbox, tmp_path: Path) -> None:
    first = keys_of(1)[0]
    inbox.answer = lambda post: (400 if post.body["id"] == first else 200, {})
    with telling(inbox, tmp_path, tmp_path) as notifier:
        notifier.see(seen(3))
        until(lambda: len(inbox.taken) == 2)
        until(lambda: notifier.states()[0].waiting == 1)  # noted after the receiver has answered
    assert inbox.ids == keys_of(3)[1:]


def test_only_what_was_asked_for_is_told(inbox: Inbox, tmp_path: Path) -> None:
    with telling(inbox, tmp_path, None, on=["worse"]) as notifier:
        notifier.see(seen(3))  # worse, recovered, worse
        until(lambda: len(inbox.taken) == 2 and not notifier.states()[0].waiting)
    assert inbox.ids == keys_of(3)[::2]


def test_a_muted_comparison_sends_nothing_not_even_what_waited(inbox: Inbox, tmp_path: Path) -> None:
    inbox.answer = lambda post: (503, {})
    outbox = Outbox(tmp_path)
    with telling(inbox, tmp_path, tmp_path) as notifier:
        notifier.see(seen(2))
        until(lambda: inbox.refused > 0)
        outbox.handle(comparison_key(story(1)[0]), Handling("muted", "ana", "known", 0, "worse"))
        until(lambda: notifier.states()[0].muted == 2)  # while an attempt of before may still be refused
        inbox.answer = lambda post: (200, {})
        outbox.handle(comparison_key(story(1)[0]), None)
        notifier.see(seen(3))
        until(lambda: len(inbox.taken) == 1)
    outbox.close()
    assert inbox.ids == keys_of(3)[2:]


OUTAGES = [
    VerdictChange(NOON + number, kind, "worse", "said")  # type: ignore[arg-type]
    for number, kind in enumerate(("verdict", "withheld", "restored", "withheld", "restored", "withheld", "restored"))
]


@pytest.mark.parametrize("role", ["retired", "shadow"])
@pytest.mark.parametrize("served", [0, 1, 2, 3])
def test_what_was_told_while_a_version_served_is_ended_and_nothing_else_is_told(
    inbox: Inbox, tmp_path: Path, role: RoleName, served: int
) -> None:
    """`served`: changes until it no longer did. Its labels are withheld three times, with a restart in between."""

    def now(changes: int, role: RoleName) -> Snapshot:
        found = comparison(changes=tuple(OUTAGES[:changes]), roles=(None, Role(role)))
        return replace(seen(0), number=changes + 2, comparisons=(found,))

    with telling(inbox, tmp_path, tmp_path) as notifier:
        notifier.see(now(served, "live"))
        until(lambda: not notifier.states()[0].waiting)
    with telling(inbox, tmp_path, tmp_path, had_state=True) as notifier:
        for changes in (max(served, 1), 4, len(OUTAGES)):
            notifier.see(now(changes, role))
        until(lambda: not notifier.states()[0].waiting)
    wanted = {0: [] if role == "shadow" else [0], 1: [0], 2: [0, 1, 2], 3: [0, 1, 2]}[served]
    assert [int(one.split("-")[1]) - NOON for one in inbox.ids] == wanted


def test_what_happened_before_there_were_notifications_is_no_news(inbox: Inbox, tmp_path: Path) -> None:
    restored = replace(seen(3), checkpoints=CheckpointState(restores=1))
    with telling(inbox, tmp_path, tmp_path, had_state=True) as notifier:
        notifier.see(replace(restored, whole=False, comparisons=()))  # before its past is there
        notifier.see(restored)
        notifier.see(seen(4))
        until(lambda: len(inbox.taken) == 1)
    assert inbox.ids == keys_of(4)[3:]


def test_a_full_queue_drops_the_oldest_and_says_so(
    inbox: Inbox, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outbox_module, "MOST_WAITING_MESSAGES", 4)
    inbox.answer = lambda post: (503, {})
    with telling(inbox, tmp_path, tmp_path) as notifier:
        notifier.see(seen(10))
        until(lambda: inbox.refused > 0)
        assert (notifier.states()[0].waiting, notifier.states()[0].dropped) == (4, 6)
        inbox.answer = lambda post: (200, {})
        until(lambda: len(inbox.taken) == 4)
    assert inbox.ids == keys_of(10)[6:]


def test_a_store_that_fails_delays_and_loses_nothing(
    inbox: Inbox, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with telling(inbox, tmp_path, tmp_path) as notifier:
        with monkeypatch.context() as broken:

            def fails(*args: Any) -> None:
                raise StoreError("disk full")

            broken.setattr(Outbox, "put", fails)
            notifier.see(seen(1))
        notifier.see(seen(2))
        until(lambda: len(inbox.taken) == 2)
    assert inbox.ids == keys_of(2)


def test_a_message_that_was_taken_is_not_sent_again_while_the_store_cannot_note_it(
    inbox: Inbox, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, failed = Outbox.done, 0

    def fails_at_first(self: Outbox, number: int, told: Told) -> None:
        nonlocal failed
        failed += 1
        if failed < 4:
            raise StoreError("disk full")
        whole(self, number, told)

    monkeypatch.setattr(Outbox, "done", fails_at_first)
    with telling(inbox, tmp_path, tmp_path) as notifier:
        notifier.see(seen(1))
        until(lambda: failed >= 4 and not notifier.states()[0].waiting)
    assert inbox.ids == keys_of(1)


def test_of_two_processes_on_one_store_one_sends(inbox: Inbox, tmp_path: Path) -> None:
    first, second = Outbox(tmp_path), Outbox(tmp_path)
    assert first.lease()
    assert not second.lease()
    first.close()
    assert second.lease()
    second.close()


@pytest.mark.slow
def test_kills_at_any_moment_and_outages_lead_to_one_message_per_change(inbox: Inbox, tmp_path: Path) -> None:
    """By the key that receivers go by: a kill between a receiver's answer and its note repeats one message, with its key."""
    kills_and_outages(inbox, tmp_path, kills=6, changes=60)


def kills_and_outages(inbox: Inbox, tmp_path: Path, kills: int, changes: int) -> int:
    """Kills a telling process so often; how many messages came twice (under the same key)."""
    luck = random.Random(7)
    inbox.answer = lambda post: (503 if luck.random() < 0.3 else 200, {})
    (tmp_path / "url").write_text(inbox.url)
    command = [
        sys.executable,
        "-m",
        "tests.outlets.telling",
        str(tmp_path / "store"),
        str(tmp_path / "url"),
        str(changes),
    ]
    for number in range(kills + 1):
        process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        with process.stdout:
            assert process.stdout.readline() == "ready\n"
            if number < kills:
                time.sleep(luck.uniform(0.0, 0.4))
                process.kill()
            else:
                inbox.answer = lambda post: (200, {})
                assert process.stdout.readline() == "told\n"
            process.wait()
    twice = len(inbox.ids) - len(set(inbox.ids))
    assert list(dict.fromkeys(inbox.ids)) == keys_of(changes)
    assert twice <= kills
    return twice


@pytest.mark.parametrize("step", [5 * 3_600.0, -5 * 3_600.0])
def test_a_clock_that_is_set_makes_no_model_silent_and_hides_none_that_is(
    inbox: Inbox, tmp_path: Path, step: float
) -> None:
    """Forwards every model was told to be silent at once; backwards none for as many hours."""
    (tmp_path / "url").write_text(inbox.url)
    table = {
        "kind": "webhook",
        "url_file": str(tmp_path / "url"),
        "on": ["no_data", "recovered"],
        "no_data_after": "15m",
    }
    settings = toml.validate({"notify": [table]})
    wall, elapsed = 1_000_000.0, 50.0
    outbox = Outbox(None)
    out = Notifier(
        [make_receiver(one) for one in settings.notify], outbox, "", lambda: wall, elapsed=lambda: elapsed
    )  # fmt: skip
    alive, ended = Series("ads", "v1", "logged"), Series("feed", "v1", "logged")
    snapshot = replace(seen(0), started_at=wall - 100.0, comparisons=())
    kept = {alive: wall, ended: wall}
    out.start()
    for second in range(0, 2_000, 5):
        if second == 300:  # `feed` has ended by now
            wall += step
        if second < 300:
            kept[ended] = wall
        kept[alive] = wall - (3.0 if second > 310 else 0.0)
        if second == 300:
            kept[alive] -= step  # of before
        out.see(replace(snapshot, number=second + 1, last_seen=dict(kept)))
        wall, elapsed = wall + 5.0, elapsed + 5.0
    out.finish(60.0)
    out.close()
    assert [(post.body["kind"], post.body["model"]) for post in inbox.taken] == [("no_data", "feed")]
    outbox.close()


def test_what_has_failed_does_not_wait_for_a_clock_that_was_set_back(
    inbox: Inbox, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "url").write_text(inbox.url)
    settings = toml.validate({"notify": [{"kind": "webhook", "url_file": str(tmp_path / "url")}]})
    wall, outbox, failed = time.time(), Outbox(None), threading.Event()
    put_off = outbox.put_off

    def then_set_back(*which: Any) -> None:
        nonlocal wall
        put_off(*which)
        wall -= 5 * 3_600.0
        inbox.answer = lambda post: (200, {})
        failed.set()

    monkeypatch.setattr(outbox, "put_off", then_set_back)
    inbox.answer = lambda post: (503, {})
    out = Notifier([make_receiver(one) for one in settings.notify], outbox, "", lambda: wall)
    out.start()
    out.see(seen(1))
    assert failed.wait(PATIENCE)
    out.see(seen(2))
    deadline = time.monotonic() + 15.0
    while len(inbox.taken) < 2 and time.monotonic() < deadline:
        time.sleep(0.01)
    out.finish(60.0)
    out.close()
    outbox.close()
    assert inbox.ids == keys_of(2)  # in order
