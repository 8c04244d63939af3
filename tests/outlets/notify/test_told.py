"""From a receiver's answer to the API: who was told of a change, or why nobody was, stands beside it, and stays there."""

from __future__ import annotations

import csv
import io
import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from streameval import __version__
from streameval.compare.reading.handling import Handling, comparison_key
from streameval.compare.reading.notified import Told
from streameval.compare.reading.reading import Role
from streameval.outlets.notify import telling
from streameval.outlets.notify.telling import TellingRecord
from streameval.outlets.outlets import Outlets
from streameval.results.publish import Publisher
from streameval.results.snapshot import empty_snapshot
from streameval.server import create_app
from streameval.settings import toml
from streameval.settings.server import Server
from streameval.store.outbox import Outbox, Parcel
from tests.outlets.receiving import Inbox, Post, http_receiver
from tests.outlets.telling import seen, story
from tests.server.conftest import Client

PATIENCE = 120.0  # seconds, on a slow machine
ROUTE = "/api/v1/comparisons/2-paired"


@dataclass
class Monitor:
    """What a monitor does at each snapshot, and what it answers."""

    outlets: Outlets
    publisher: Publisher
    web: Client
    _number: int = 0

    def publish(self, changes: int, roles: tuple[Role | None, Role | None] = (None, None)) -> None:
        self._number += 1
        shown = seen(changes)
        shown = replace(shown, comparisons=tuple(replace(one, roles=roles) for one in shown.comparisons))
        comparisons = self.outlets.annotated(shown.comparisons)
        self.publisher.publish(replace(shown, number=self._number, comparisons=comparisons))

    def told(self) -> list[list[dict[str, Any]]]:
        return [change["told"] for change in self.web.get(ROUTE).json()["changes"]]

    def untold(self) -> list[str | None]:
        """The same everywhere that it is written."""
        out = [change["untold"] for change in self.web.get(ROUTE).json()["changes"]]
        rows = list(csv.DictReader(io.StringIO(self.web.get(f"{ROUTE}?rows=changes&format=csv").text)))
        assert [row["untold"] or None for row in rows] == out
        assert [one["untold"] for one in self.publisher.latest().report()["comparisons"][0]["changes"]] == out
        return out

    def wait_untold(self, changes: int, wanted: list[str | None], *roles: Role) -> None:
        deadline = time.monotonic() + PATIENCE
        while True:
            self.publish(changes, (roles[0], roles[1]) if roles else (None, None))
            if (found := self.untold()) == wanted:
                return
            assert time.monotonic() < deadline, found
            time.sleep(0.02)

    def wait(self, changes: int, for_what: Callable[[list[list[dict[str, Any]]]], bool]) -> list[list[dict[str, Any]]]:
        deadline = time.monotonic() + PATIENCE
        while True:
            self.publish(changes)
            if for_what(found := self.told()):
                return found
            assert time.monotonic() < deadline, found
            time.sleep(0.02)


@pytest.fixture
def inbox() -> Iterator[Inbox]:
    with http_receiver() as inbox:
        yield inbox


@contextmanager
def monitor(folder: Path, *notify: dict[str, Any]) -> Iterator[Monitor]:
    settings = toml.validate({"notify": list(notify), "store": {"path": str(folder)}})
    publisher = Publisher(empty_snapshot(time.time()))
    outlets = Outlets(settings, publisher)
    outlets.start()
    app = create_app(publisher, Server(), version=__version__, environ={}, handlings=outlets)
    try:
        yield Monitor(outlets, publisher, Client(app))
    finally:
        outlets.close()


def hook(tmp_path: Path, inbox: Inbox, **more: Any) -> dict[str, Any]:
    (tmp_path / "url").write_text(inbox.url)
    return {"kind": "webhook", "url_file": str(tmp_path / "url"), **more}


def test_who_was_told_stands_beside_each_change_and_stays_there(inbox: Inbox, tmp_path: Path) -> None:
    receivers = hook(tmp_path, inbox, name="oncall"), hook(tmp_path, inbox, name="bad-news", on=["worse"])
    begin = round(1000 * time.time())
    with monitor(tmp_path, *receivers) as running:
        found = running.wait(2, lambda told: [len(some) for some in told] == [2, 1])
        assert {one["receiver"] for one in found[0]} == {"oncall", "bad-news"}
        (one,) = found[1]
        assert (one["receiver"], one["kind"], one["state"]) == ("oncall", "webhook", "delivered")
        rows = list(csv.DictReader(io.StringIO(running.web.get(f"{ROUTE}?rows=changes&format=csv").text)))
        assert [set(row["told"].split(", ")) for row in rows] == [{"oncall", "bad-news"}, {"oncall"}]
        in_report = running.publisher.latest().report()["comparisons"][0]["changes"][1]["told"][0]
        assert begin <= in_report["at"] <= 1000 * time.time()
        assert one["at"].startswith(time.strftime("%Y-%m-%dT%H:%M:", time.gmtime(in_report["at"] / 1000)))
    with monitor(tmp_path) as again:  # also when nobody is configured any more
        again.publish(3)
        assert again.told() == [*found, []]


def test_what_somebody_has_muted_says_so(inbox: Inbox, tmp_path: Path) -> None:
    with monitor(tmp_path, hook(tmp_path, inbox)) as running:
        running.wait(1, lambda told: len(told[0]) == 1)
        running.outlets.say(comparison_key(story(1)[0]), Handling("muted", "ana", "known", 0, "worse"))
        found = running.wait(2, lambda told: len(told[1]) == 1)
        assert [some[0]["state"] for some in found] == ["delivered", "muted"]
        rows = csv.DictReader(io.StringIO(running.web.get(f"{ROUTE}?rows=changes&format=csv").text))
        assert [row["told"] for row in rows] == ["webhook", "webhook (muted)"]
    assert len(inbox.taken) == 1


def test_nobody_is_told_while_the_receiver_fails_or_there_is_none(inbox: Inbox, tmp_path: Path) -> None:
    inbox.answer = lambda post: (503, {})
    with monitor(tmp_path / "a", hook(tmp_path, inbox)) as running:
        deadline = time.monotonic() + PATIENCE
        running.publish(1)
        while not inbox.refused and time.monotonic() < deadline:
            time.sleep(0.02)
        running.publish(1)
        assert running.told() == [[]]
        running.wait_untold(1, ["waiting"])
        inbox.answer = lambda post: (200, {})
        running.wait_untold(1, [None])
        assert len(running.told()[0]) == 1
    with monitor(tmp_path / "b") as running:
        running.publish(2)
        assert running.told() == [[], []]
        assert running.untold() == ["no_receivers"] * 2


def test_messages_of_a_receiver_that_was_renamed_are_kept_until_a_start_has_gone_well(
    inbox: Inbox, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A start that was refused, over a mistake in the settings, had dropped them already."""
    inbox.answer = lambda post: (503, {})
    with monitor(tmp_path, hook(tmp_path, inbox, name="oncall")) as running:
        running.wait_untold(1, ["waiting"])
    with monitor(tmp_path, hook(tmp_path, inbox, name="on-call")):
        """Ends before it has seen anything, as a start that is refused."""
    with monitor(tmp_path) as nobody:
        nobody.outlets._wake()  # as a start without receivers that is refused
    inbox.answer = lambda post: (200, {})
    with monitor(tmp_path, hook(tmp_path, inbox, name="oncall")) as again:
        again.wait(1, lambda told: [len(some) for some in told] == [1])
    assert len(inbox.taken) == 1
    inbox.answer = lambda post: (503, {})
    with monitor(tmp_path, hook(tmp_path, inbox, name="oncall")) as running:
        running.wait_untold(2, [None, "waiting"])
    with monitor(tmp_path) as nobody:
        nobody.wait_untold(2, [None, "receiver_removed"])
    assert any(
        record.getMessage() == 'notify: receivers that are no longer configured had messages, dropped (1): "oncall"'
        for record in caplog.records
    )


@pytest.mark.parametrize("answers_in", [1.0, 3.0])
def test_a_stop_while_a_slow_receiver_answers_sends_nothing_twice(
    answers_in: float, inbox: Inbox, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """What is on its way is waited for; one that takes longer than any answer may is said to be sent again."""
    monkeypatch.setattr("streameval.outlets.outlets.CLOSE_SECONDS", 0.2)
    hangs = answers_in > 2.0
    if hangs:
        monkeypatch.setattr("streameval.outlets.notify.notifier.ANSWER_SECONDS", 0.2)
    begun = threading.Event()

    def slow(post: Post) -> tuple[int, dict[str, str]]:
        begun.set()
        time.sleep(answers_in)
        return 200, {}

    inbox.answer = slow
    with monitor(tmp_path, hook(tmp_path, inbox)) as running:
        running.publish(1)
        assert begun.wait(PATIENCE)
    for one in threading.enumerate():
        if one.name == "notify-webhook":
            one.join()
    inbox.answer = lambda post: (200, {})
    with monitor(tmp_path, hook(tmp_path, inbox)) as again:
        again.wait(1, lambda told: [len(some) for some in told] == [1])
    said = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    warned = "notify webhook: no answer before the end; its message will be sent again"
    assert (len(inbox.taken), said) == ((2, [warned]) if hangs else (1, []))


def test_of_nobody_it_says_why(inbox: Inbox, tmp_path: Path) -> None:
    with monitor(tmp_path / "a", hook(tmp_path, inbox, on=["recovered"])) as running:
        running.wait_untold(2, ["not_subscribed", None])
    with monitor(tmp_path / "a") as again:  # what is on record stays; nobody is there for what is new
        again.publish(3)
        assert again.untold() == ["not_subscribed", None, "no_receivers"]
    with monitor(tmp_path / "b", hook(tmp_path, inbox)) as running:
        running.wait_untold(1, ["serves_nobody"], Role("live", 1.0), Role("shadow"))
    (tmp_path / "c" / "checkpoints" / "0").mkdir(parents=True)
    (tmp_path / "c" / "checkpoints" / "0" / "1.checkpoint").touch()
    with monitor(tmp_path / "c", hook(tmp_path, inbox)) as running:
        running.wait_untold(1, ["before_notifications"])


def test_what_happened_before_there_was_a_receiver_is_no_news_to_it(inbox: Inbox, tmp_path: Path) -> None:
    """Also where the store is older than `[[notify]]`, and had an outbox for what people say."""
    with monitor(tmp_path) as running:
        running.publish(1)
    (tmp_path / "checkpoints" / "0").mkdir(parents=True)
    (tmp_path / "checkpoints" / "0" / "1.checkpoint").touch()
    with monitor(tmp_path, hook(tmp_path, inbox)) as running:
        running.wait_untold(1, ["before_notifications"])
        running.wait_untold(2, ["before_notifications", None])
    assert len(inbox.taken) == 1


def test_what_another_worker_sends_is_followed_and_memory_holds_the_newest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(telling, "MOST_TOLD", 4)
    mine, other = Outbox(tmp_path), Outbox(tmp_path)
    record = TellingRecord(mine, 2)
    for number in range(1, 7):
        other.put([Parcel(f"k{number}", "c", {}, ("a", "b"))], 1.0)
        for name in ("a", "b"):
            other.done(number, Told(name, "slack", number, "delivered"))
            before = record.by_change
            record.follow()
            assert record.by_change is not before
    assert {key: [one.receiver for one in some] for key, some in record.by_change.items()} == {
        "k5": ["a", "b"],
        "k6": ["a", "b"],
    }
    before = record.by_change
    record.follow()
    assert record.by_change is before  # nothing is new
    mine.close()
    other.close()
