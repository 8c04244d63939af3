"""Health, status, headers, ETags."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from streameval.results.certificate import CertificateState
from streameval.results.publish import Publisher
from streameval.results.snapshot import BEFORE_FIRST, CheckpointState, HistoryState, SliceValues, empty_snapshot
from streameval.server import create_app
from streameval.server.api.overview import overview, status
from streameval.server.api.schemas.status import Overview, Status
from streameval.settings.server import Server
from streameval.settings.tree import ConfigError


def test_the_process_is_alive_before_anything_else_is(client_of) -> None:
    client = client_of(create_app(Publisher(empty_snapshot(0.0)), Server(), version="1"))
    assert client.get("/livez").json() == {"status": "alive", "checks": {}}


def test_what_counting_waits_for_is_said(client_of) -> None:
    publisher = Publisher(empty_snapshot(0.0))
    publisher.awaited = lambda: "compiling a kernel, once on a machine"
    client = client_of(create_app(publisher, Server(), version="1"))
    found = client.get("/livez")
    assert found.status_code == 200
    assert found.json()["awaited"] == "compiling a kernel, once on a machine"


@pytest.mark.parametrize("path", ["/readyz", "/healthz"])
def test_before_the_first_snapshot_the_program_is_not_ready(client_of, path: str) -> None:
    client = client_of(create_app(Publisher(empty_snapshot(0.0)), Server(), version="1"))
    answer = client.get(path)
    assert answer.status_code == 503
    assert answer.headers["content-type"] == "application/problem+json"
    assert "first_snapshot" in answer.json()["detail"]


def test_what_is_prepared_before_the_first_event_is_said(client_of) -> None:
    publisher = Publisher(replace(empty_snapshot(0.0), number=BEFORE_FIRST))
    app = create_app(publisher, Server(), version="1")
    latest = publisher.latest()
    publisher.publish(
        replace(latest, number=latest.number + 1, preparing="compiling kernel 3 of 80, once on a machine")
    )
    client = client_of(app)
    answer = client.get("/readyz")
    assert answer.status_code == 503
    assert answer.json()["detail"] == "not ready: first_snapshot (compiling kernel 3 of 80, once on a machine)"
    assert client.get("/api/v1/status").json()["preparing"] == "compiling kernel 3 of 80, once on a machine"
    assert overview(publisher.latest())["preparing"] == "compiling kernel 3 of 80, once on a machine"
    assert "streameval_snapshot_number 0.0" in client.get("/metrics").text


@pytest.mark.parametrize("path", ["/readyz", "/healthz"])
def test_a_failing_check_is_named(client_of, build, path: str) -> None:
    snapshot = build.snapshot(ready={"assigned": True, "restored": False, "caught_up": False})
    answer = client_of(create_app(Publisher(snapshot), Server(), version="1")).get(path)
    assert answer.status_code == 503
    assert answer.json()["detail"] == "not ready: restored, caught_up"
    assert answer.json()["checks"] == {"assigned": True, "restored": False, "caught_up": False}


SUSPENDED = (
    'model "ftrl" is suspended since impressions, partition 1, offset 4711: not_finite: its features are too large'
)
MISSING = [
    "kafka: 17 messages of impressions [0] were deleted or skipped before they were read",
    "kafka: topic clicks was deleted and recreated, 2 times",
    "kafka: 3 partitions of topic impressions are not read because the other topic lacks them",
]


@pytest.mark.parametrize(("age", "status"), [(29.0, 200), (31.0, 503)])
def test_an_old_snapshot_is_not_fresh_where_a_loop_should_make_new_ones(
    client_of, build, age: float, status: int
) -> None:
    """While a loop hung, or was starved, everything it had last known was said to be well."""
    snapshot = build.snapshot()
    publisher, now = Publisher(snapshot), snapshot.taken_at + age
    client = client_of(create_app(publisher, Server(), version="1", clock=lambda: now, paced=True))
    found = client.get("/readyz")
    assert found.status_code == status
    assert found.json()["checks"].get("fresh", True) is (status == 200)
    publisher.awaited = lambda: "compiling a kernel, once on a machine"
    found = client.get("/readyz")
    assert found.status_code == status
    if status == 503:
        assert found.json()["detail"] == "not ready: fresh (compiling a kernel, once on a machine)"
    shown = client_of(create_app(publisher, Server(), version="1", clock=lambda: now))
    assert shown.get("/readyz").status_code == 200, "of a run that has ended"


def test_before_partitions_are_assigned_no_model_is_said_not_to_exist(client_of, build) -> None:
    """After a kill a gate was told 404, as of a name that is misspelt, and gave up."""
    snapshot = replace(empty_snapshot(0.0), number=1, ready={"broker": True, "assigned": False})
    client = client_of(create_app(Publisher(snapshot), Server(), version="1"))
    found = client.get("/api/v1/models/ads/verdict")
    assert (found.status_code, found.headers["Retry-After"]) == (503, "5")
    assert found.json()["detail"] == "no partition is assigned yet: nothing is known of any model"
    known = client_of(create_app(Publisher(build.snapshot()), Server(), version="1"))
    assert known.get("/api/v1/models/ads2/verdict").status_code == 404


def test_ready_when_every_check_passes_whatever_is_degraded_is_said(client) -> None:
    answer = client.get("/readyz")
    assert answer.status_code == 200
    assert answer.json() == {
        "status": "ready", "checks": {"assigned": True, "caught_up": True}, "degraded": [SUSPENDED, *MISSING],
    }  # fmt: skip


def test_a_suspended_model_is_in_the_status_and_in_the_stream(client, build) -> None:
    body = client.get("/api/v1/status").json()
    assert body["degraded"] == [SUSPENDED, *MISSING]
    assert body["suspensions"][0]["offset"] == 4711
    assert body["online_failures"] == {"ftrl": {"not_finite": 100, "raised": 0}}
    assert overview(build.snapshot())["degraded"] == [SUSPENDED, *MISSING]


def test_what_was_left_out_is_told_and_makes_nobody_wait(client_of, build) -> None:
    given = build.snapshot(
        history=HistoryState(9_000_000, 120, 3, 2, 1, 0, 1, 4, 6, skipped=3, failing=True),
        checkpoints=CheckpointState(failing=2, claimed=3, gone_unread=(2, 5), rows_lost=16_384),
        strangers={"etl at 10.0.0.7": 2},
        slice_values={"country": SliceValues(200, 200, 50, True), "device": SliceValues(3, 200, 50, False)},
    )
    client = client_of(create_app(Publisher(given), Server(), version="1"))
    answer = client.get("/readyz")
    assert answer.status_code == 200
    assert [one for one in answer.json()["degraded"] if one not in (SUSPENDED, *MISSING)] == [
        "checkpoints: 2 partitions cannot be written now, their last good ones stay; the log says why",
        "checkpoints: 3 partitions were claimed by another worker and are not counted here; do two groups share store.path?",
        "checkpoints: the topics no longer have partitions 2, 5, and what they had counted cannot be restored, so it is missing from the results; the log says why",
        "checkpoints: 16384 impressions were in files that are damaged or missing, so late clicks on them are unmatched; the log names the files",
        "history: 4 panes wait, none can be written now; the log says why",
        "history: 6 panes left memory before they could be written",
        "history: 3 rows could not be written; the log names them",
        "kafka: etl at 10.0.0.7 is no streameval but in this group, and the 2 partitions it reads are not counted; give it one of its own",
        "slices: country has had more than 200 values; which of them are in __other__ depends on the order of events",
    ]
    body = client.get("/api/v1/status").json()
    Status.model_validate(body)
    assert body["slice_values"]["country"] == {
        "counted": 200, "most_counted": 200, "most_shown": 50, "overflowed": True
    }  # fmt: skip
    assert body["history"]["skipped"] == 3
    scraped = client.get("/metrics").text
    assert "streameval_checkpoint_gone_partitions 2.0" in scraped
    assert "streameval_history_rows_skipped_total 3.0" in scraped
    assert 'streameval_topics_recreated_total{topic="clicks"} 2.0' in scraped
    assert 'streameval_unpaired_partitions{topic="impressions"} 3.0' in scraped
    assert 'streameval_empty_offsets_total{partition="1",topic="impressions"} 5.0' in scraped
    assert 'streameval_slice_values{slice="country"} 200.0' in scraped
    assert 'streameval_slice_overflowed{slice="country"} 1.0' in scraped
    assert 'streameval_slice_overflowed{slice="device"} 0.0' in scraped


def test_a_silent_partition_is_counted_while_a_broker_answers(client_of, build) -> None:
    """While none does, nothing comes from any, and that has an alert of its own."""
    silent = build.snapshot(unread=(("clicks", 1),), ready={"broker": True, "caught_up": False})
    sample = 'streameval_consumer_silent{partition="1",topic="clicks"} 1.0'
    assert sample in client_of(create_app(Publisher(silent), Server(), version="1")).get("/metrics").text
    away = replace(silent, ready={"broker": False, "caught_up": False})
    assert "consumer_silent{" not in client_of(create_app(Publisher(away), Server(), version="1")).get("/metrics").text


def test_an_expired_certificate_is_told_with_its_date(client_of, build) -> None:
    snapshot = build.snapshot(certificate=CertificateState(1_706_000_000.0, 1_714_000_000.0))
    client = client_of(create_app(Publisher(snapshot), Server(), version="1"))
    answer = client.get("/readyz")
    assert answer.status_code == 200
    assert [one for one in answer.json()["degraded"] if one.startswith("tls: ")] == [
        "tls: the server's certificate expired on 2024-04-24 23:06 UTC, so clients that check it do not connect; replace the files of server.tls_certificate and server.tls_key, no restart is needed"
    ]
    body = client.get("/api/v1/status").json()
    Status.model_validate(body)
    assert body["certificate"] == {"not_before": "2024-01-23T08:53:20.000Z", "not_after": "2024-04-24T23:06:40.000Z"}
    scraped = client.get("/metrics").text
    assert "streameval_certificate_not_before_timestamp_seconds 1.706e+09" in scraped
    assert "streameval_certificate_not_after_timestamp_seconds 1.714e+09" in scraped
    valid = replace(snapshot, certificate=CertificateState(1_706_000_000.0, 1_904_000_000.0))
    assert not [one for one in overview(valid)["degraded"] if one.startswith("tls: ")]


def test_the_status_says_where_the_program_stands_and_which_names_there_are(client) -> None:
    body = client.get("/api/v1/status").json()
    Status.model_validate(body)
    assert body["version"] == "9.9.9"
    assert body["as_of"] == "2024-05-01T12:00:00.000Z"
    assert body["uptime_seconds"] == 3600
    assert body["windows"] == ["5m", "all"]
    assert body["slices"] == {"country": ["de", "fr"]}
    assert body["partitions"][0]["watermark"] == "2024-05-01T11:59:00.000Z"
    assert body["partitions"][0]["lag"] == [{"topic": "impressions", "partition": 0, "value": 12}]
    assert body["partitions"][1]["watermark"] is None
    assert body["undefined"] == [{"metric": "auc", "reason": "no_impressions", "results": 1}]
    assert {(s["model"], s["version"]) for s in body["series"]} == {
        ("default", "v1"),
        ("default", "v2"),
        ("ftrl", "online"),
    }


def test_a_watermark_at_infinity_has_no_date_and_says_complete(build) -> None:
    snapshot = build.snapshot()
    state = snapshot.partitions[0]
    done = type(state)(0, 1 << 62, 1 << 62, state.newest_event, {}, {})
    body = status(build.snapshot(partitions=(done,)), "1")["partitions"][0]
    assert (body["watermark"], body["complete"]) == (None, True)
    closed = type(state)(0, state.newest_event, state.newest_event, state.newest_event, {}, {})
    assert status(build.snapshot(partitions=(closed,)), "1")["partitions"][0]["complete"]
    assert not status(snapshot, "1")["partitions"][0]["complete"]


def test_the_overview_has_the_overall_results_without_buckets(build) -> None:
    snapshot = build.snapshot()
    body = overview(snapshot)
    Overview.model_validate({"snapshot": 1, "as_of": "2024-05-01T12:00:00.000Z", **body})
    assert len(body["results"]) == sum(r.slice is None for r in snapshot.results)
    assert all("buckets" not in row for row in body["results"])
    assert (body["objectives"], body["auctions"]) == ([], True)
    long = replace(snapshot.results[0], series=snapshot.results[0].series._replace(objective="long"))
    some = overview(build.snapshot(results=(*snapshot.results, long), auctions=()))
    assert (some["objectives"], some["auctions"]) == (["long"], False)
    assert some["results"] == body["results"], "those are by clicks"


@pytest.mark.parametrize("path", ["/api/v1/status", "/api/v1/results", "/api/v1/users?version=v1"])
def test_an_answer_already_known_is_304_until_the_next_snapshot(client, publisher, build, path: str) -> None:
    first = client.get(path)
    tag = first.headers["etag"]
    for header in (tag, f"W/{tag}", f'"other", {tag}', "*"):
        again = client.get(path, headers={"If-None-Match": header})
        assert (again.status_code, again.content, again.headers["etag"]) == (304, b"", tag)
    publisher.publish(build.snapshot(2))
    newer = client.get(path, headers={"If-None-Match": tag})
    assert newer.status_code == 200
    assert newer.headers["etag"] != tag


def test_the_same_number_of_another_run_has_another_etag(client, client_of, build) -> None:
    other = client_of(create_app(Publisher(build.snapshot(started_at=1.0)), Server(), version="1"))
    assert client.get("/api/v1/status").headers["etag"] != other.get("/api/v1/status").headers["etag"]


@pytest.mark.parametrize(
    "path", ["/", "/docs", "/metrics", "/livez", "/nope", "/api/v1/results", "/page/app.js", "/api/v1/roc"]
)
def test_every_answer_carries_the_security_headers(client, path: str) -> None:
    headers = client.get(path).headers
    assert headers["content-security-policy"].startswith("default-src 'self'")
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["x-frame-options"] == "DENY"
    assert headers["referrer-policy"] == "no-referrer"


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (None, "no such file"),
        ("", "is empty"),
        ("  \n", "is empty"),
        ("two words", "one token"),
        ("schlüssel", "ASCII"),
    ],
)
def test_a_token_file_without_a_usable_token_is_refused_at_start(
    tmp_path: Path, publisher, content: str | None, words: str
) -> None:
    path = tmp_path / "token"
    if content is not None:
        path.write_text(content, encoding="utf-8")
    with pytest.raises(ConfigError, match=words) as error:
        create_app(publisher, Server(token_file=str(path)), version="1")
    assert str(path) in str(error.value)
