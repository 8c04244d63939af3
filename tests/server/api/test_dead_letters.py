"""Dead letters for people: counts for everybody, samples of what events hold for who has the token."""

from __future__ import annotations

import csv
import io
import threading
from pathlib import Path

import pytest

from streameval.events.batch import Catalog
from streameval.results.publish import Publisher
from streameval.results.snapshot import empty_snapshot
from streameval.server import create_app
from streameval.server.api.schemas.status import DeadLetters
from streameval.settings.server import Server
from streameval.settings.tree import Files
from streameval.sources.dead_letters import JsonlDeadLetters
from streameval.sources.files import FileSource
from streameval.sources.formats.decode import Decoder
from streameval.sources.protocol import REASONS, DeadLetter, SourceError
from streameval.sources.recent_letters import RecentLetters

TOKEN = "s3cret-of-this-test"
GOOD = {"Authorization": f"Bearer {TOKEN}"}
NOW = 1_714_564_800.0


class Sink:
    """Keeps what it is given."""

    def __init__(self) -> None:
        self.letters: list[DeadLetter] = []
        self.calls: list[str] = []

    def write(self, letters) -> None:
        self.letters += letters

    def flush(self, timeout: float) -> None:
        self.calls.append("flush")

    def close(self) -> None:
        self.calls.append("close")


def letter(number: int, reason: str = "malformed", value: bytes = b"{", message: str = "is not JSON") -> DeadLetter:
    return DeadLetter(value, reason, "", message, "impressions", 3, number)


@pytest.fixture
def recent() -> RecentLetters:
    return RecentLetters(Sink(), lambda: NOW)


def ask(client_of, publisher, recent: RecentLetters | None, headers=None, token: bool = True):
    environ = {"STREAMEVAL_TOKEN": TOKEN} if token else {}
    app = create_app(publisher, Server(), version="1", environ=environ, letters=recent)
    answer = client_of(app).get("/api/v1/dead-letters", headers=headers or {})
    DeadLetters.model_validate(answer.json())
    return answer


def test_the_latest_ten_of_every_reason_are_shown_newest_first(client_of, publisher, recent: RecentLetters) -> None:
    recent.write([letter(n) for n in range(25)])
    recent.write([letter(100, "empty", b"")])
    recent.write([letter(n) for n in range(25, 30)])
    samples = ask(client_of, publisher, recent, GOOD).json()["samples"]
    assert [s["offset"] for s in samples] == [29, 28, 27, 26, 25, 100, 24, 23, 22, 21, 20]
    assert samples[0] == {
        "at": "2024-05-01T12:00:00.000Z",
        "reason": "malformed",
        "field": "",
        "topic": "impressions",
        "partition": 3,
        "offset": 29,
        "message": "is not JSON",
        "value": "{",
        "value_bytes": 1,
    }


def test_every_letter_is_passed_on_whole(recent: RecentLetters) -> None:
    letters = [letter(n, value=b"x" * 5000) for n in range(40)]
    recent.write(letters)
    recent.flush(1.0)
    recent.close()
    assert recent._sink.letters == letters
    assert recent._sink.calls == ["flush", "close"]


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (b"a" * 1000, "a" * 200),
        ("\U0001f600".encode() * 1000, "\U0001f600" * 200),
        (b"\xff\x00\x80", "\ufffd\x00\ufffd"),
        (b"a" + "é".encode() * 1000, "a" + "é" * 199),
    ],
)
def test_two_hundred_characters_of_an_event_are_kept(
    client_of, publisher, recent: RecentLetters, value: bytes, shown: str
) -> None:
    recent.write([letter(1, value=value, message="m" * 10_000)])
    (sample,) = ask(client_of, publisher, recent, GOOD).json()["samples"]
    assert (sample["value"], sample["value_bytes"], len(sample["message"])) == (shown, len(value), 500)


@pytest.mark.slow
def test_memory_is_bounded_by_reasons_and_not_by_letters(recent: RecentLetters) -> None:
    for _ in range(50):
        recent.write([letter(n, reason, b"x" * 100_000) for reason in REASONS for n in range(20)])
    samples = recent.samples()
    assert len(samples) == 10 * len(REASONS)
    assert sum(len(s.value) + len(s.message) + len(s.topic) for s in samples) < 100_000


@pytest.mark.parametrize("headers", [{}, {"Authorization": "Bearer wrong"}, {"Authorization": TOKEN}])
def test_without_the_token_there_are_counts_and_no_event_content(
    client_of, publisher, recent: RecentLetters, headers
) -> None:
    recent.write([letter(1, value=b"somebody's event", message="pclick = 7")])
    answer = ask(client_of, publisher, recent, headers)
    body = answer.json()
    assert answer.status_code == 200
    assert (body["samples"], body["total"]) == (None, 7)
    assert "token" in body["samples_withheld"]
    assert "somebody" not in answer.text
    assert "pclick" not in answer.text
    assert body["counts"] == {**dict.fromkeys(REASONS, 0), "malformed": 7}


def test_the_samples_are_had_as_a_table_with_the_token_only(client_of, publisher, recent: RecentLetters) -> None:
    recent.write([letter(1, value=b'{"a": "x, y"}\n'), letter(2, "empty", b"=1+1", message="is empty")])
    app = create_app(publisher, Server(), version="1", environ={"STREAMEVAL_TOKEN": TOKEN}, letters=recent)
    client = client_of(app)
    answer = client.get("/api/v1/dead-letters?format=csv", headers=GOOD)
    assert answer.headers["content-type"].startswith("text/csv")
    rows = list(csv.DictReader(io.StringIO(answer.text, newline="")))
    samples = client.get("/api/v1/dead-letters", headers=GOOD).json()["samples"]
    assert [{name: str(value) for name, value in one.items()} for one in samples] == [
        {**row, "value": row["value"].removeprefix("'")} for row in rows
    ]
    assert rows[0]["value"] == "'=1+1"  # no formula
    for headers in ({}, {"Authorization": "Bearer wrong"}):
        refused = client.get("/api/v1/dead-letters?format=csv", headers=headers)
        assert (refused.status_code, "x, y" in refused.text) == (401, False)
        assert "WWW-Authenticate" in refused.headers
    assert client.get("/api/v1/dead-letters?format=xml", headers=GOOD).status_code == 422


def test_nobody_else_is_served_the_answer_to_who_had_the_token(client_of, publisher, recent: RecentLetters) -> None:
    answer = ask(client_of, publisher, recent, GOOD)
    assert answer.headers["cache-control"] == "private, no-store"
    assert "Authorization" in answer.headers["vary"]
    assert "etag" not in answer.headers


def test_where_no_token_is_set_samples_are_open_as_users_are(client_of, publisher, recent: RecentLetters) -> None:
    recent.write([letter(1)])
    body = ask(client_of, publisher, recent, token=False).json()
    assert (len(body["samples"]), body["samples_withheld"]) == (1, None)
    assert ask(client_of, publisher, None, token=False).json()["samples"] == []


def test_before_the_first_event_every_reason_is_zero(client_of, recent: RecentLetters) -> None:
    body = ask(client_of, Publisher(empty_snapshot(0.0)), recent, GOOD).json()
    assert (body["total"], body["counts"], body["samples"]) == (0, dict.fromkeys(REASONS, 0), [])


def test_the_letters_of_a_file_are_seen_on_their_way_to_theirs(client_of, publisher, tmp_path: Path) -> None:
    path = tmp_path / "bad.jsonl"
    path.write_text('{"not": "an event"}\n{broken\n')
    recent = RecentLetters(JsonlDeadLetters(tmp_path / "letters.jsonl"), lambda: NOW)
    source = FileSource([path], Decoder(Catalog(), clock=lambda: 0, max_future=0), Files(), 100, recent)
    while not source.finished:
        source.poll(0.0)
    source.close()
    recent.close()
    samples = ask(client_of, publisher, recent, GOOD).json()["samples"]
    assert [s["value"] for s in samples] == ["{broken", '{"not": "an event"}']
    assert {s["topic"] for s in samples} == {str(path)}
    assert len((tmp_path / "letters.jsonl").read_text().splitlines()) == 2


def test_a_sink_that_fails_has_been_seen_all_the_same(recent: RecentLetters, monkeypatch) -> None:
    def fail(letters) -> None:
        raise SourceError("the disk is full")

    monkeypatch.setattr(recent._sink, "write", fail)
    with pytest.raises(SourceError):
        recent.write([letter(1)])
    assert len(recent.samples()) == 1


def test_reading_while_others_write_sees_whole_samples(recent: RecentLetters) -> None:
    stop = threading.Event()

    def write() -> None:
        n = 0
        while not stop.is_set():
            recent.write([letter(n + i, REASONS[i % 8]) for i in range(80)])
            n += 80

    threads = [threading.Thread(target=write) for _ in range(2)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(300):
            numbers = [s.number for s in recent.samples()]
            assert numbers == sorted(set(numbers), reverse=True)
            assert len(numbers) <= 80
    finally:
        stop.set()
        for thread in threads:
            thread.join()
