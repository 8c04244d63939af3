"""`status` and `versions` against a real server: what a terminal shows, what a script reads, and the exit status."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import pytest

from streameval.commands.client import MonitorClient
from streameval.commands.columns import duration
from streameval.compare.reading.reading import Role
from streameval.events.batch import Series
from streameval.metrics.registry import names
from streameval.results.result import Result, Totals
from streameval.results.snapshot import PartitionState
from tests.commands.test_gate import Stage, run, serving
from tests.comparisons import comparison, deploy

V1, V2, V10 = (Series("default", version, "logged") for version in ("v1", "v2", "v10"))
READY = {"broker": True, "assigned": True, "caught_up": True, "topics": True}


@pytest.fixture
def stage() -> Iterator[Stage]:
    made = Stage()
    yield made
    made.handle.stop()


def results(*series: Series) -> tuple[Result, ...]:
    counts, numbers = Totals(1000, 20, 20.0, 90.0, 19.0, 30.0), {**dict.fromkeys(names()), "auc": 0.75}
    made = serving(*((one.model, one.version) for one in series))
    return tuple(replace(one, totals=counts, metrics=numbers) for one in made)


def publish(stage: Stage, verdict: str = "undecided", **changes: object) -> None:
    """A healthy snapshot of now: v2 serves, v1 and v10 in shadow."""
    roles = {V2: Role("live", 1.0), V1: Role("shadow"), V10: Role("shadow")}
    around = {"ready": READY, "taken_at": time.time(), "started_at": time.time() - 60.0, "roles": roles}
    stage.publish(comparison(verdict), **{**around, "results": results(V1, V10, V2), **changes})


@pytest.mark.parametrize(("verdict", "status"), [("worse", 3), ("not_worse", 0), ("undecided", 0)])
def test_the_exit_status_says_whether_a_live_version_is_worse(stage, verdict, status) -> None:
    publish(stage, verdict)
    code, said = run("status", "--url", stage.handle.url)
    assert code == status, said
    assert "live 100%" in said
    assert "labels reliable" in said
    code, text = run("status", "--json", "--url", stage.handle.url)
    found = json.loads(text)
    assert code == found["exit_status"] == status
    assert [(one["version"], one["verdict"]) for one in found["live"]] == [("v2", verdict)]


def test_live_versions_that_are_worse_are_named_before_everything_else(stage) -> None:
    every = [Series("default", f"v{number}", "logged") for number in range(1, 31)]
    bad = (3, 5, 8, 13, 21, 30)
    live = Role("live", 1 / 30)
    found = [
        comparison(
            "worse" if number in bad else "undecided", number=number, candidate=every[number - 1], roles=(None, live)
        )
        for number in range(2, 31)
    ]
    deploys = tuple(deploy(number, f"v{number}") for number in range(2, 31))
    now = {
        "ready": READY,
        "taken_at": time.time(),
        "started_at": time.time() - 60.0,
        "roles": dict.fromkeys(every, live),
    }
    stage.publish(*found, deploys=deploys, results=results(*every), **now)
    code, said = run("status", "--url", stage.handle.url)
    assert code == 3
    first = said.splitlines()[2]
    assert (
        first == "WORSE: 6 of 30 live versions: default v3, default v5, default v8, default v13, default v21 and 1 more"
    )


def test_an_old_snapshot_is_stale_and_nothing_to_rely_on(stage) -> None:
    publish(stage, taken_at=time.time() - 4000.0, started_at=time.time() - 4010.0)
    stage.publish()  # many snapshots in ten seconds: the interval is short
    code, said = run("status", "--url", stage.handle.url)
    assert code == 4
    assert re.search(r"STALE: the last snapshot is (39|40)\d\d s old$", said, re.MULTILINE), said


def test_an_old_snapshot_for_which_a_kernel_is_compiled_says_so(stage) -> None:
    """A newcomer's first minute: it was only stale."""
    publish(stage, taken_at=time.time() - 4000.0, started_at=time.time() - 4010.0)
    stage.publisher.awaited = lambda: "compiling a kernel, once on a machine"
    code, said = run("status", "--url", stage.handle.url)
    assert code == 4
    assert "s old: the monitor is compiling a kernel, once on a machine" in said


def test_the_state_of_a_monitor_behind_a_proxy_that_hides_its_health_is_told(stage, monkeypatch) -> None:
    ask = MonitorClient._ask

    def hidden(self: MonitorClient, method: str, path: str, *body: Mapping[str, Any]) -> dict[str, Any]:
        return ask(self, method, "/nowhere" if path == "/livez" else path, *body)

    monkeypatch.setattr(MonitorClient, "_ask", hidden)
    publish(stage, taken_at=time.time() - 4000.0, started_at=time.time() - 4010.0)
    code, said = run("status", "--url", stage.handle.url)
    assert code == 4
    assert "STALE" in said


def test_a_monitor_that_is_not_ready_says_why(stage) -> None:
    publish(stage, ready={**READY, "caught_up": False})
    code, said = run("status", "--url", stage.handle.url)
    assert code == 4
    assert "NOT READY: caught_up" in said


def test_a_monitor_that_still_compiles_says_how_far_it_is(stage) -> None:
    words = "compiling kernel 3 of 80, once on a machine"
    publish(stage, ready=dict.fromkeys(READY, False), preparing=words)
    code, said = run("status", "--url", stage.handle.url)
    assert code == 4
    assert f"STARTING: {words}" in said
    assert "NOT READY" not in said
    assert json.loads(run("status", "--json", "--url", stage.handle.url)[1])["preparing"] == words


def test_without_a_partition_nothing_is_said_of_labels_and_versions(stage) -> None:
    away = {"broker": False, "assigned": False, "caught_up": False, "topics": True}
    publish(stage, ready=away, results=(), roles={})
    code, said = run("status", "--url", stage.handle.url)
    assert code == 4
    assert "nothing is counted now: no partition is assigned to this monitor" in said
    assert "no broker answers" in said
    assert "reliable" not in said
    assert "no version is live" not in said


def test_versions_that_serve_are_named_while_labels_are_held_by_a_silent_input(stage) -> None:
    now = 1_700_000_000_000
    held = PartitionState(
        partition=1,
        watermark=now,
        offsets={},
        label_complete=now,
        newest_event=now,
        lag={},
        waiting_since=now - 240_000,
    )
    publish(stage, partitions=(replace(held, partition=0, waiting_since=now + 1), held), roles={V1: Role("shadow")})
    _, said = run("status", "--url", stage.handle.url)
    assert "not known yet which versions are live; these serve: default v2, default v10" in said
    assert "labels since 2023-11-14T22:09:20.000Z are not final" in said
    assert "no version is live" not in said


def test_labels_that_are_not_reliable_are_said(stage) -> None:
    before = stage.publisher.latest().join
    publish(stage, join=replace(before, reliable=False, reason="no clicks for 10 minutes"))
    code, said = run("status", "--url", stage.handle.url)
    assert code == 4
    assert "LABELS NOT RELIABLE: no clicks for 10 minutes" in said


def test_lag_is_the_sum_and_label_delay_the_slowest_partition_s(stage) -> None:
    now = round(time.time() * 1000)
    state = {"watermark": now, "offsets": {}}
    slow = PartitionState(partition=1, label_complete=now - 90_000, newest_event=now, lag={("clicks", 1): 7}, **state)
    fast = replace(slow, partition=0, label_complete=now - 20_000, lag={("clicks", 0): 5})
    publish(stage, partitions=(fast, slow))
    _, text = run("status", "--json", "--url", stage.handle.url)
    found = json.loads(text)
    assert found["lag"] == 12
    assert 89.0 <= found["label_delay"] < 90.0 + 60.0
    publish(stage, partitions=(fast, replace(slow, label_complete=None)))
    assert (
        "label delay -, " in run("status", "--url", stage.handle.url)[1]
    )  # as on the page: one has no final label yet


def test_label_delay_is_the_age_by_the_clock_also_of_a_stream_that_has_been_silent_for_days(stage) -> None:
    end = round(time.time() * 1000) - 10 * 86_400_000 - 60_000
    ended = PartitionState(
        partition=0, watermark=end, offsets={}, label_complete=end - 180_000, newest_event=end, lag={}
    )
    publish(stage, partitions=(ended,))
    _, said = run("status", "--url", stage.handle.url)
    assert "label delay 10 d, " in said
    found = json.loads(run("status", "--json", "--url", stage.handle.url)[1])
    assert found["label_delay"] == pytest.approx(10 * 86_400 + 240, abs=60.0)
    publish(stage, partitions=(replace(ended, label_complete=end),))  # nothing is awaited, and it is as old
    assert "label delay 10 d, " in run("status", "--url", stage.handle.url)[1]


@pytest.mark.parametrize(
    ("seconds", "says"),
    [(0.4, "0 s"), (119.9, "119 s"), (180.0, "3 min"), (7_199.0, "119 min"), (72_000.0, "20 h"), (864_000.0, "10 d")],
)
def test_a_duration_is_in_units_that_can_be_read(seconds, says) -> None:
    assert duration(seconds) == says


def test_a_monitor_that_is_away_is_status_1() -> None:
    code, said = run("status", "--url", "http://127.0.0.1:1")
    assert code == 1
    assert "cannot be reached" in said


def test_versions_are_in_their_natural_order_those_that_serve_first(stage) -> None:
    publish(stage)
    _, text = run("versions", "--json", "--url", stage.handle.url)
    rows = json.loads(text)["versions"]
    assert [r["version"] for r in rows] == ["v2", "v1", "v10"]
    assert rows[0]["auc"] == 0.75
    code, said = run("versions", "--url", stage.handle.url)
    assert code == 0
    assert said.index("v2 ") < said.index("v1 ") < said.index("v10 ")
    assert "0.7500" in said


def test_a_model_that_is_not_there_is_answered_with_those_that_are(stage) -> None:
    publish(stage)
    code, said = run("versions", "--model", "defualt", "--url", stage.handle.url)
    assert code == 1
    assert "no such model; models seen: default" in said


def test_names_of_others_do_not_steer_the_terminal(stage) -> None:
    evil = Series("default", "v\x1b[2J", "logged")
    publish(stage, results=results(evil), roles={evil: Role("live", 1.0)})
    for command in ("status", "versions"):
        assert "\x1b" not in run(command, "--url", stage.handle.url)[1]
