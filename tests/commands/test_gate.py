"""The gate and the announcement against a real server: what a delivery pipeline sees of it."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from streameval.commands.cli import cli
from streameval.commands.client import MonitorClient, MonitorError, read_token
from streameval.commands.gate import NOT_WORSE, UNDECIDED, WORSE, wait
from streameval.compare.announce import Announcement, Announcements
from streameval.compare.reading.reading import Comparison
from streameval.events.batch import Series
from streameval.metrics.tables import ScoreCounts
from streameval.results.publish import Publisher
from streameval.results.result import Result, Totals
from streameval.results.results import Results
from streameval.results.snapshot import empty_snapshot
from streameval.server import ServerHandle, create_app, serve
from streameval.settings.server import Server
from tests.comparisons import NOON, comparison, deploy

TOKEN = "s3cret"
PATIENCE = 180.0  # seconds, on a slow machine


class Stage:
    """A monitor whose snapshots a test publishes."""

    def __init__(self) -> None:
        self.publisher = Publisher(empty_snapshot(NOON / 1000))
        self.inbox = Announcements()
        app = create_app(
            self.publisher,
            Server(),
            version="1",
            clock=lambda: NOON / 1000,
            environ={"STREAMEVAL_TOKEN": TOKEN},
            announcements=self.inbox,
        )
        self.handle: ServerHandle = serve(app, "127.0.0.1", 0)

    def publish(self, *comparisons: Comparison, **changes: Any) -> None:
        """The next snapshot."""
        before = self.publisher.latest()
        deploys = changes.pop("deploys", (deploy(),))
        results = Results.of(changes.pop("results", before.results))
        number = before.number + 1
        self.publisher.publish(
            replace(before, number=number, comparisons=comparisons, deploys=deploys, results=results, **changes)
        )


@pytest.fixture
def stage(monkeypatch) -> Iterator[Stage]:
    monkeypatch.delenv("STREAMEVAL_TOKEN", raising=False)
    made = Stage()
    yield made
    made.handle.stop()


def run(*arguments: str) -> tuple[int, str]:
    """(exit status, what was printed) of a command."""
    done = CliRunner().invoke(cli, list(arguments))
    assert done.exception is None or isinstance(done.exception, SystemExit | MonitorError), done.exception
    return done.exit_code, done.output + (str(done.exception) if isinstance(done.exception, MonitorError) else "")


def gate(stage: Stage, *more: str, within: str = "0s") -> tuple[int, str]:
    where = ("--url", stage.handle.url, "--within", within, "--every", "50ms")
    return run("gate", "--candidate", "v2", *(more or ("--model", "default")), *where)


@pytest.fixture
def heard(monkeypatch) -> Callable[[], None]:
    """Waits until the gate has asked twice more: the second time it is told of what was published before."""
    asked, real = threading.Semaphore(0), MonitorClient.verdict

    def verdict(self: MonitorClient, model: str, candidate: str) -> dict[str, Any]:
        try:
            return real(self, model, candidate)
        finally:
            asked.release()

    monkeypatch.setattr(MonitorClient, "verdict", verdict)

    def wait_for_it() -> None:
        while asked.acquire(blocking=False):
            pass
        for _ in range(2):
            assert asked.acquire(timeout=PATIENCE)

    return wait_for_it


@pytest.mark.parametrize(("verdict", "status"), [("worse", WORSE), ("not_worse", NOT_WORSE), ("undecided", UNDECIDED)])
def test_the_exit_status_is_the_verdict(stage, verdict, status) -> None:
    stage.publish(comparison(verdict))
    said = {"worse": "v2 is worse than v1: decided 12:03 UTC on AUC -0.018", "not_worse": "v2 is not worse than v1"}
    code, output = gate(stage)
    assert code == status
    assert said.get(verdict, "v2 against v1 is undecided") in output
    assert ("no verdict within 0 s" in output) == (status == UNDECIDED)


def test_a_verdict_that_is_not_shown_any_more_stops_a_delivery_and_says_so(stage) -> None:
    stage.publish(comparison(supported_now=False))
    code, output = gate(stage)
    assert code == WORSE
    assert "v2 was found worse than v1" in output
    assert "which no longer supports it" in output


@pytest.mark.slow
def test_it_waits_for_the_verdict_and_says_only_what_changes(stage, heard) -> None:
    steps = [
        (comparison("undecided", impressions=1),),
        (comparison("undecided", impressions=2),),
        (comparison("undecided", reason=None, impressions=3),),
        (comparison("not_worse", impressions=4),),
    ]
    stage.publish()

    def loop() -> None:
        for comparisons in steps:
            heard()
            stage.publish(*comparisons)

    thread = threading.Thread(target=loop)
    thread.start()
    code, output = gate(stage, within=f"{PATIENCE:.0f}s")
    thread.join()
    assert code == NOT_WORSE
    lines = output.splitlines()
    assert lines[0] == "undecided: no comparison yet"
    assert len(lines) == 4
    assert lines[-1].startswith("v2 is not worse than v1")


def test_a_certificate_that_cannot_be_believed_does_not_open_the_gate_and_worse_always_shuts_it(stage) -> None:
    stage.publish(comparison("not_worse", withheld=True, reason="join_rate_low"))
    code, output = gate(stage)
    assert code == UNDECIDED
    assert "(not reliable: join_rate_low)" in output
    stage.publish(comparison("worse", withheld=True, reason="join_rate_low"))
    assert gate(stage)[0] == WORSE


def test_the_verdict_on_an_older_deploy_of_the_version_does_not_count(stage) -> None:
    stage.publish(comparison("not_worse"), deploys=(deploy(2), deploy(4)))
    code, output = gate(stage)
    assert code == UNDECIDED
    assert "no comparison yet" in output


def serving(*series: tuple[str, str]) -> tuple[Result, ...]:
    """Results of versions that have been seen: (model, version)."""
    nothing = ScoreCounts(np.empty(0), np.empty(0), np.empty(0, np.int64), np.empty(0, np.int64))
    return tuple(
        Result(
            Series(m, v, "logged"), "all", None, Totals(0, 0, 0, 0, 0, 0), {}, {}, (), (), nothing, None, None,
            None, 0, None, 0, True, None,
        )
        for m, v in series
    )  # fmt: skip


def test_a_version_that_nobody_has_seen_is_said_at_once_with_those_that_were(stage) -> None:
    seen = serving(*(("default", v) for v in ("v10", "v1", "v2")))
    stage.publish(results=seen, deploys=(deploy(version="v1"),))
    code, output = run("gate", "--candidate", "v2x", "--model", "default", "--within", "0s", "--url", stage.handle.url)
    assert code == UNDECIDED
    first, *_ = output.splitlines()
    assert first == "default has no version v2x yet; versions seen: v1, v2, v10; waiting for it"


def test_a_version_that_was_announced_and_has_no_traffic_is_said_to_have_none(stage) -> None:
    awaited = deploy(3, "v2-rc1", noticed=None, announced=True)
    stage.publish(results=serving(("default", "v1"), ("default", "v2")), deploys=(deploy(version="v2"), awaited))
    code, output = run(
        "gate", "--candidate", "v2-rc1", "--model", "default", "--within", "0s", "--url", stage.handle.url
    )
    assert code == UNDECIDED
    assert output.startswith("default has no version v2-rc1 yet; versions seen: v1, v2; waiting for it\n")


def test_a_version_that_has_been_seen_but_has_no_deploy_yet_is_no_typo(stage) -> None:
    stage.publish(results=serving(("default", "v2")), deploys=())
    code, output = gate(stage)
    assert code == UNDECIDED
    assert "undecided: no deploy yet" in output
    assert "versions seen" not in output


def test_without_a_model_the_only_one_is_meant(stage) -> None:
    stage.publish(comparison("worse"), results=serving(("default", "v1")))
    assert gate(stage, "--every", "1s")[0] == WORSE
    stage.publish(comparison("worse"), results=serving(("default", "v1"), ("other", "v1")))
    code, output = gate(stage, "--every", "1s", within="30s")
    assert code == 1
    assert "there are several models; choose one with --model: default, other" in output


def test_a_model_that_is_not_there_yet_is_waited_for(stage, heard) -> None:
    def come() -> None:
        heard()
        stage.publish(comparison("worse"))

    thread = threading.Thread(target=come)
    thread.start()
    code, output = gate(stage, within=f"{PATIENCE:.0f}s")
    thread.join()
    assert code == WORSE
    assert 'model = "default": unknown; there is none yet; retrying' in output


def test_a_monitor_that_cannot_be_reached_is_tried_until_the_end_and_is_no_verdict() -> None:
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{nobody.getsockname()[1]}"
        code, output = run("gate", "--candidate", "v2", "--model", "m", "--within", "200ms", "--every", "50ms", "--url", url)  # fmt: skip
    assert code == 1
    assert output.count("retrying") == 1
    assert "cannot be reached" in output


class Clock:
    """Time that passes by sleeping only."""

    def __init__(self) -> None:
        self.now = 0.0
        self.slept: list[float] = []

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds


class Scripted:
    """A monitor that fails so many times, then answers."""

    def __init__(self, failures: int, passing: bool = True) -> None:
        self.failures = failures
        self.passing = passing
        self.asked = 0

    def only_model(self) -> str:
        return "default"

    def versions(self, model: str) -> list[str]:
        return []

    def verdict(self, model: str, candidate: str) -> dict[str, Any]:
        self.asked += 1
        if self.asked <= self.failures:
            raise MonitorError("nobody there", passing=self.passing)
        return {"worse": False, "not_worse": True, "reliable": True, "words": "fine\x1b[2J"}


def test_errors_are_tried_again_less_and_less_often() -> None:
    clock, said = Clock(), []
    monitor = Scripted(failures=6)
    assert wait(monitor, None, "v2", 600, said.append, clock=lambda: clock.now, sleep=clock.sleep) == NOT_WORSE
    assert clock.slept == [10, 20, 30, 30, 30, 30]
    assert said == ["nobody there; retrying", "fine\N{REPLACEMENT CHARACTER}[2J"]


def test_the_last_attempt_is_at_the_deadline_and_a_refusal_for_good_ends_it_at_once() -> None:
    clock = Clock()
    monitor = Scripted(failures=1000)
    with pytest.raises(MonitorError, match="nobody there"):
        wait(monitor, "m", "v2", 100, lambda line: None, clock=lambda: clock.now, sleep=clock.sleep)
    assert clock.now == 100
    monitor = Scripted(failures=1000, passing=False)
    with pytest.raises(MonitorError, match="nobody there"):
        wait(monitor, "m", "v2", 100, lambda line: None, clock=lambda: clock.now, sleep=clock.sleep)
    assert monitor.asked == 1


def test_any_name_can_be_asked_for(stage) -> None:
    for name in ("a/b", "..", "ü ? #&%", "verdict", "x" * 256):
        c = comparison("worse", candidate=Series(name, name, "logged"))
        stage.publish(c, deploys=(deploy(model=name, version=name),))
        answer = MonitorClient(stage.handle.url).verdict(name, name)
        assert (answer["model"], answer["candidate"], answer["worse"]) == (name, name, True)


def test_a_deploy_is_announced_with_the_token_of_a_file(stage, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text(TOKEN + "\n")
    code, output = run(
        "deploy", "--model", "default", "--version", "v2", "--at", "2024-05-01T11:00:00Z", "--note", "ü", "--link",
        "https://ci/1", "--url", stage.handle.url, "--token-file", str(token),
    )  # fmt: skip
    assert (code, output) == (0, "announced: default v2 at 2024-05-01T11:00:00.000Z\n")
    assert stage.inbox.take() == (Announcement("default", "v2", NOON - 3_600_000, "ü", "https://ci/1"),)


def test_a_model_that_nobody_has_seen_is_a_warning(stage, monkeypatch) -> None:
    monkeypatch.setenv("STREAMEVAL_TOKEN", TOKEN)
    stage.publish(comparison(), deploys=(deploy(),))
    code, output = run("deploy", "--model", "defualt", "--version", "v2", "--url", stage.handle.url)
    assert code == 0
    warning = 'warning: model "defualt" has no impression in any window, and no deploy on record; those that have are: "default"'
    assert output.splitlines()[1:] == [warning]


def test_a_refused_announcement_says_why(stage, tmp_path: Path, monkeypatch) -> None:
    where = ("--url", stage.handle.url)
    assert "401 a token is needed" in run("deploy", "--model", "m", "--version", "v", *where)[1]
    monkeypatch.setenv("STREAMEVAL_TOKEN", TOKEN)
    code, output = run("deploy", "--model", "m", "--version", "v", "--at", "soon", *where)
    assert code == 1
    assert "422 at" in output
    assert run("deploy", "--model", "m", "--version", "v", *where)[0] == 0
    assert "cannot be read" in run("deploy", "--model", "m", "--version", "v", "--token-file", str(tmp_path), *where)[1]


@pytest.mark.parametrize("within", ["soon", "-1s", "30"])
def test_a_time_that_is_none_is_wrong_usage(within: str) -> None:
    code, output = run("gate", "--candidate", "v2", "--within", within)
    assert code == 2
    assert "must be a duration" in output or "No such option" in output


@pytest.mark.parametrize(
    "url",
    [
        "127.0.0.1:8080",
        "ftp://x",
        "http://",
        "http://[",
        "http://a:99999",
        "file:///etc/passwd",
        "http://a?b",
        "http://u:p@a",
    ],
)
def test_an_address_that_cannot_be_one_is_refused(url: str) -> None:
    with pytest.raises(MonitorError) as error:
        MonitorClient(url)
    assert not error.value.passing


def test_a_token_that_cannot_be_one_is_refused(tmp_path: Path) -> None:
    assert read_token(None, {}) is None
    assert read_token(None, {"STREAMEVAL_TOKEN": " t\n"}) == "t"
    path = tmp_path / "token"
    for text in ("", "two words", "a\nb"):
        path.write_text(text)
        with pytest.raises(MonitorError, match="must hold one token"):
            read_token(path, {})


@pytest.fixture
def stranger() -> Iterator[tuple[str, dict[str, Any]]]:
    """(the address of a server that is no monitor, what it shall answer and what it was asked)"""
    plan: dict[str, Any] = {"status": 200, "body": b"{}", "headers": {}, "asked": []}

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            plan["asked"].append((self.path, self.headers.get("Authorization")))
            self.send_response(plan["status"])
            for name, value in plan["headers"].items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(plan["body"])

        def log_message(self, *args: Any) -> None:
            """Nothing."""

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}", plan
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.mark.parametrize(
    ("status", "body", "passing", "says"),
    [
        (200, b"<html>", True, "does not respond like a streameval monitor"),
        (200, b"[]", True, "does not respond like a streameval monitor"),
        (200, b"[" * 100_000, True, "does not respond like a streameval monitor"),
        (200, b"{}", True, 'no usable "worse"'),
        (200, b'{"worse": "yes", "not_worse": true, "reliable": true, "words": ""}', True, 'no usable "worse"'),
        (500, b"oops", True, "500 Internal Server Error"),
        (503, b'{"detail": "come back"}', True, "503 come back"),
        (404, b'{"detail": "unknown"}', True, "404 unknown"),
        (401, b"", False, "401 Unauthorized"),
        (422, b'{"detail": "bad"}', False, "422 bad"),
    ],
)
def test_what_is_no_verdict_is_an_error_in_words(stranger, status, body, passing, says) -> None:
    url, plan = stranger
    plan.update(status=status, body=body)
    with pytest.raises(MonitorError, match=says) as error:
        MonitorClient(url).verdict("m", "v")
    assert error.value.passing is passing


def test_a_redirect_is_not_followed_with_the_token(stranger) -> None:
    url, plan = stranger
    plan.update(status=302, headers={"Location": url + "/elsewhere"})
    with pytest.raises(MonitorError, match="redirects are not followed"):
        MonitorClient(url, "t0ken").verdict("m", "v")
    assert [path for path, _ in plan["asked"]] == ["/api/v1/models/m/verdict?candidate=v"]
    assert plan["asked"][0][1] == "Bearer t0ken"


def test_json_is_one_object_with_the_verdict_and_the_status_and_changes_go_elsewhere(stage) -> None:
    stage.publish(comparison("worse"))
    where = ("--url", stage.handle.url, "--within", "0s", "--model", "default", "--json")
    done = CliRunner().invoke(cli, ["gate", "--candidate", "v2", *where])
    assert done.exit_code == WORSE
    found = json.loads(done.stdout)
    assert (found["exit_status"], found["verdict"], found["candidate"]) == (WORSE, "worse", "v2")
    assert found["words"] in done.stderr
