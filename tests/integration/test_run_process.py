"""`streameval run` as its users run it: a process of its own, a broker, HTTP from outside, signals."""

from __future__ import annotations

import json
import re
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
import trustme

from streameval.simulate.runner import run as run_traffic
from streameval.simulate.scenario import Scenario, Version
from streameval.simulate.traffic import Traffic
from streameval.sources.kafka.embedded import EmbeddedBroker
from streameval.sources.kafka.writer import KafkaWriter
from tests import asking

PATIENCE = 240.0  # seconds that anything awaited here may take, on a slow machine


@dataclass
class Run:
    """A `streameval run` under way."""

    process: subprocess.Popen[bytes]
    log: Path

    @property
    def errors(self) -> str:
        """Its stderr so far."""
        return self.log.read_text(errors="replace")

    @property
    def url(self) -> str:
        """Of its page, once it has said so."""
        return until(lambda: (found := re.search(r"http://127\.0\.0\.1:\d+", self.errors)) and found[0], self)

    def get(self, path: str) -> httpx.Response:
        """An answer of its HTTP side."""
        return asking.get(self.url + path, timeout=PATIENCE)

    def ended(self) -> int:
        """Its exit status, awaited."""
        return self.process.wait(PATIENCE)


@pytest.fixture
def settings(embedded_kafka: EmbeddedBroker, tmp_path: Path) -> Callable[..., Path]:
    """`settings(key=value, ...)`: a config file for the embedded broker and topics of the test's own."""

    def write(**changes: object) -> Path:
        own = uuid.uuid4().hex[:8]
        tree: dict[str, dict[str, object]] = {
            "join": {
                "attribution_window": "20s", "allowed_lateness": "2s", "correction_horizon": "10m",
                "request_gap": "5s",
            },
            "windows": {"pane": "5s", "sliding": ["30s"]},
            "kafka": {
                "bootstrap_servers": embedded_kafka.bootstrap_servers, "start": "earliest", "group_id": f"g-{own}",
                "impressions_topic": f"i-{own}", "clicks_topic": f"c-{own}", "dead_letter_topic": "",
            },
            "server": {"port": 0, "snapshot_interval": "100ms"},
        }  # fmt: skip
        for name, value in changes.items():
            section, key = name.split("__")
            tree.setdefault(section, {})[key] = value
        path = tmp_path / f"{own}.toml"
        lines = []
        for section, values in tree.items():
            lines += [f"[{section}]", *(f"{key} = {json.dumps(value)}" for key, value in values.items())]
        path.write_text("\n".join(lines))
        return path

    return write


@contextmanager
def running(config: Path, *options: str) -> Iterator[Run]:
    """The process, killed at the end if it still lives."""
    log = config.with_suffix(f".{uuid.uuid4().hex[:4]}.err")
    command = [sys.executable, "-m", "streameval", *options, "run", "-c", str(config)]
    with log.open("wb") as errors:
        process = subprocess.Popen(command, stderr=errors, stdout=subprocess.DEVNULL, cwd=config.parent)
    try:
        yield Run(process, log)
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()


def until(seen: Callable[[], Any], run: Run | None = None) -> Any:
    """What `seen` says as soon as it is true; fails when that takes too long or the process has ended."""
    deadline = time.monotonic() + PATIENCE
    while True:
        ended = run is not None and run.process.poll() is not None
        said = seen()
        if said:
            return said
        if ended or time.monotonic() > deadline:
            pytest.fail(f"{'ended' if ended else 'not seen in time'}; stderr: {run.errors if run else ''}")
        time.sleep(0.1)


def topics(config: Path) -> tuple[str, str]:
    found = dict(re.findall(r'^(\w+)_topic = "([^"]+)"', config.read_text(), re.MULTILINE))
    return found["impressions"], found["clicks"]


def write_traffic(broker: EmbeddedBroker, config: Path) -> None:
    """Two minutes of simulated traffic of version v1, all at once."""
    impressions, clicks = topics(config)
    start = int(time.time() * 1000) - 600_000
    scenario = Scenario(start_ms=start, duration_s=120.0, rate=50.0, ctr=0.2, window_s=20.0, versions=(Version("v1"),))
    writer = KafkaWriter(broker.bootstrap_servers)

    def send(kind: str, keys: list[bytes], values: list[bytes]) -> None:
        writer.write(impressions if kind == "impression" else clicks, keys, values)

    run_traffic(Traffic(scenario), send, speed=None, stop=threading.Event())
    writer.close()


def whole(run: Run, version: str = "v1", window: str = "all") -> dict[str, Any] | None:
    """The result of a version in a window, once there is one."""
    answer = run.get("/api/v1/results")
    assert answer.status_code == 200
    found = [r for r in answer.json()["results"] if (r["version"], r["window"], r["slice"]) == (version, window, None)]
    return found[0] if found else None


def counts(run: Run, version: str = "v1", window: str = "all") -> tuple[int, int] | None:
    """(impressions, clicks) of such a result."""
    result = whole(run, version, window)
    return result and (result["impressions"], result["clicks"])


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_gets_ready_shows_what_it_reads_and_ends_cleanly_on_a_signal(
    number: signal.Signals, settings: Callable[..., Path], embedded_kafka: EmbeddedBroker
) -> None:
    config = settings()
    write_traffic(embedded_kafka, config)
    with running(config) as run:
        assert run.get("/livez").status_code == 200
        answer = until(lambda: (a := run.get("/readyz")).status_code == 200 and a, run)
        assert set(answer.json()["checks"].values()) == {True}
        result = until(lambda: (r := whole(run)) and r["impressions"] > 1_000 and r, run)
        assert result["model"] == "ctr"
        assert 0.5 < result["auc"] < 1
        labels = {"model_name": "ctr", "model_version": "v1", "source": "logged"}
        line = "streameval_impressions_total{" + ",".join(f'{k}="{v}"' for k, v in labels.items()) + "} "
        text = run.get("/metrics").text
        assert float(next(t for t in text.splitlines() if t.startswith(line)).removeprefix(line)) > 1_000
        url = run.url
        run.process.send_signal(number)
        assert run.ended() == 0, run.errors
        assert "Traceback" not in run.errors
    with pytest.raises(httpx.TransportError):
        asking.get(url + "/livez")


def test_with_certificate_and_token_it_speaks_https_to_those_who_know_the_token(
    settings: Callable[..., Path], embedded_kafka: EmbeddedBroker, tmp_path: Path
) -> None:
    authority = trustme.CA()
    made = authority.issue_cert("127.0.0.1")
    made.private_key_and_cert_chain_pem.write_to_path(tmp_path / "both.pem")  # key and certificate may share a file
    trust = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    authority.configure_trust(trust)
    (tmp_path / "token").write_text("s3cret\n")
    config = settings(
        server__tls_certificate="both.pem", server__tls_key="both.pem", server__token_file="token",
        server__token_scope="all",
    )  # fmt: skip
    write_traffic(embedded_kafka, config)
    with running(config) as run:
        url = until(lambda: (found := re.search(r"page (https://127\.0\.0\.1:\d+)", run.errors)) and found[1], run)
        with httpx.Client(base_url=url, verify=trust, timeout=PATIENCE) as client:
            until(lambda: client.get("/readyz").status_code == 200, run)
            for path in ("/metrics", "/", "/docs", "/api/v1/results", "/api/v1/stream", "/nope"):
                assert client.get(path).status_code == 401
            assert client.get("/metrics", headers={"Authorization": "Bearer s3cret"}).status_code == 200
        run.process.send_signal(signal.SIGTERM)
        assert run.ended() == 0, run.errors
        assert "WARNING" not in run.errors
        assert "s3cret" not in run.errors


def test_a_signal_during_the_first_compilation_is_heard_at_the_next_kernel(
    settings: Callable[..., Path], embedded_kafka: EmbeddedBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It went on for as long as that took, which is a minute: longer than anybody waits before a SIGKILL."""
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "empty"))
    config = settings()
    write_traffic(embedded_kafka, config)
    with running(config) as run:
        until(lambda: "compiling" in (run.get("/readyz").json()["preparing"] or ""), run)
        run.process.send_signal(signal.SIGTERM)
        assert run.ended() == 0, run.errors
        assert "ready after" not in run.errors
        assert "Traceback" not in run.errors


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_ends_cleanly_on_a_signal_while_it_still_waits_for_its_topics(
    number: signal.Signals, settings: Callable[..., Path]
) -> None:
    with running(settings()) as run:
        until(lambda: "waiting for topic" in run.errors, run)
        assert run.get("/readyz").status_code == 503
        run.process.send_signal(number)
        assert run.ended() == 0, run.errors
        assert "Traceback" not in run.errors


def test_a_port_in_use_is_one_line_and_status_1(settings: Callable[..., Path]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with running(settings(server__port=port)) as run:
            assert run.ended() == 1
            (line,) = run.errors.splitlines()
            assert line.startswith(f"streameval: server.port = {port}: already in use")


@pytest.mark.parametrize(
    ("key", "value", "says"),
    [
        ("join__attribution_window", "-5m", 'join.attribution_window = "-5m"'),
        ("join__atribution_window", "5m", "join.atribution_window"),
        ("kafka__client", "librdkafka", "kafka.client"),
        ("kafka__client_options", "ssl", "kafka.client_options"),
        ("server__token_file", "no-such-token", "no-such-token"),
    ],
)
def test_a_wrong_setting_is_one_line_that_names_it_and_status_1(
    settings: Callable[..., Path], key: str, value: str, says: str
) -> None:
    with running(settings(**{key: value})) as run:
        assert run.ended() == 1
        (line,) = run.errors.splitlines()
        assert line.startswith("streameval: ")
        assert says in line


def test_a_config_file_that_is_not_there_is_one_line_and_status_1(tmp_path: Path) -> None:
    with running(tmp_path / "nowhere.toml") as run:
        assert run.ended() == 1
        (line,) = run.errors.splitlines()
        assert "nowhere.toml: no such file" in line


@pytest.mark.parametrize("client", ["confluent", "kafka-python"])
def test_without_a_broker_it_lives_is_not_ready_and_names_the_check(settings: Callable[..., Path], client: str) -> None:
    with socket.socket() as closed, ExitStack() as stack:
        closed.bind(("127.0.0.1", 0))  # and kept, so that nobody else listens there
        nobody = f"127.0.0.1:{closed.getsockname()[1]}"
        run = stack.enter_context(running(settings(kafka__bootstrap_servers=nobody, kafka__client=client)))
        answer = until(lambda: (a := run.get("/readyz")) and "assigned" in a.json()["checks"] and a, run)
        assert answer.status_code == 503
        assert answer.json()["checks"]["assigned"] is False
        assert "assigned" in answer.json()["detail"]
        assert run.get("/livez").status_code == 200
        assert run.process.poll() is None
        run.process.send_signal(signal.SIGTERM)
        assert run.ended() == 0, run.errors


@pytest.mark.slow
def test_a_broker_that_never_answers_is_an_error_that_names_it(settings: Callable[..., Path]) -> None:
    with socket.socket() as closed, ExitStack() as stack:
        closed.bind(("127.0.0.1", 0))  # and kept, so that nobody else listens there
        nobody = f"127.0.0.1:{closed.getsockname()[1]}"
        run = stack.enter_context(running(settings(kafka__bootstrap_servers=nobody)))
        assert run.ended() == 1
        last = run.errors.splitlines()[-1]
        assert last.startswith(f'streameval: kafka.bootstrap_servers = "{nobody}": no broker answered')
        assert "Traceback" not in run.errors


def test_json_log_lines_parse(settings: Callable[..., Path], embedded_kafka: EmbeddedBroker) -> None:
    config = settings()
    with running(config, "--log-format", "json") as run:
        until(lambda: "waiting for topic" in run.errors, run)
        write_traffic(embedded_kafka, config)
        until(lambda: run.get("/readyz").status_code == 200, run)
        run.process.send_signal(signal.SIGTERM)
        assert run.ended() == 0
    records = [json.loads(line) for line in run.errors.splitlines()]
    assert all({"ts", "level", "logger", "message"} <= set(record) for record in records)
    assert any("does not exist yet" in record["message"] for record in records)
    assert any("assigned partitions" in record["message"] for record in records)


# -- idle partitions -------------------------------------------------------------------------------------------------


def impressions(start: int, seconds: int, name: str, version: str = "v1") -> list[bytes]:
    """One a second; the versions tell them apart."""
    return [
        json.dumps(
            {
                "impression_id": f"{name}-{i}", "ts": start + 1000 * i, "user_id": "u", "pclick": 0.1 + i / 1000,
                "model_version": version,
            }
        ).encode()
        for i in range(seconds)
    ]  # fmt: skip


def clicks(start: int, seconds: int, name: str) -> list[bytes]:
    """On impressions 3, 7, 11, ..., half a second later."""
    return [
        json.dumps({"impression_id": f"{name}-{i}", "ts": start + 1000 * i + 500}).encode()
        for i in range(3, seconds, 4)
    ]


def test_labels_mature_when_only_one_of_four_partitions_has_events(
    settings: Callable[..., Path], embedded_kafka: EmbeddedBroker
) -> None:
    config = settings(join__idle_timeout="500ms")
    topic, click_topic = topics(config)
    start = int(time.time()) // 5 * 5_000 - 600_000
    writer = KafkaWriter(embedded_kafka.bootstrap_servers)
    shown, tapped = impressions(start, 100, "a"), clicks(start, 100, "a")
    writer.write(topic, [b"u"] * len(shown), shown, partition=2)
    writer.write(click_topic, [b"u"] * len(tapped), tapped, partition=2)
    writer.flush()
    with running(config) as run:
        # the last event is at 99 s: what is older than 99 - 2 - 20 s is mature, impressions at 0 .. 77 s
        until(lambda: counts(run) == (78, 19), run)
        until(lambda: counts(run, window="30s") == (30, 7), run)  # 45 .. 74 s: panes of 5 s that are complete
        writer.write(topic, [b"u"], impressions(start + 300_000, 1, "b"), partition=2)  # no click with it
        writer.close()
        until(lambda: counts(run) == (100, 25), run)


def test_a_partition_that_fell_silent_does_not_hold_the_windows_of_the_others(
    settings: Callable[..., Path], embedded_kafka: EmbeddedBroker
) -> None:
    config = settings(join__idle_timeout="500ms")
    topic, click_topic = topics(config)
    start = int(time.time()) // 5 * 5_000 - 600_000
    writer = KafkaWriter(embedded_kafka.bootstrap_servers)
    for partition, begin, name in ((0, start, "silent"), (3, start + 200_000, "alive")):
        shown, tapped = impressions(begin, 60, name, version=name), clicks(begin, 60, name)
        writer.write(topic, [b"u"] * len(shown), shown, partition=partition)
        writer.write(click_topic, [b"u"] * len(tapped), tapped, partition=partition)
    writer.flush()
    with running(config) as run:
        until(lambda: whole(run, "silent"), run)
        ends = start + 200_000
        beat = 60

        def alive() -> Any:
            nonlocal beat  # the other goes on, so it is not idle itself
            more = impressions(ends + beat * 1000, 1, f"beat-{beat}", version="alive")
            writer.write(topic, [b"u"], more, partition=3)
            tap = {"impression_id": f"beat-{beat}-0", "ts": ends + beat * 1000 + 500}
            writer.write(click_topic, [b"u"], [json.dumps(tap).encode()], partition=3)
            writer.flush()
            beat += 1
            return whole(run, "alive", "30s")

        recent = until(alive, run)
        writer.close()
        assert recent["impressions"] >= 5
        assert whole(run, "silent", "30s") is None  # its events are older than the window


# -- restarts --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
def test_a_restart_goes_on_where_it_was_and_shows_the_past_at_once(
    settings: Callable[..., Path], embedded_kafka: EmbeddedBroker, tmp_path: Path, how: signal.Signals
) -> None:
    config = settings(
        join__idle_timeout="500ms", store__path=str(tmp_path / "store"), store__checkpoint_interval="200ms"
    )
    write_traffic(embedded_kafka, config)
    with running(config) as run:
        before = until(lambda: whole(run), run)
        until(lambda: (s := run.get("/api/v1/status").json()) and s["history"]["written"] and s["checkpoints"], run)
        until(lambda: settled(run) and run.get("/readyz").status_code == 200, run)
        before, events = whole(run), run.get("/api/v1/status").json()["events"]
        written = run.get("/api/v1/status").json()["checkpoints"]["written"]
        until(lambda: run.get("/api/v1/status").json()["checkpoints"]["written"] >= written + 8, run)  # all partitions
        run.process.send_signal(how)
        assert run.ended() == (0 if how == signal.SIGTERM else -signal.SIGKILL)
    with running(config) as run:
        past = until(lambda: run.get("/api/v1/results?from=2020-01-01T00:00:00Z&slice=none").json()["results"], run)
        assert [r["version"] for r in past] == ["v1"]
        assert past[0]["impressions"] > 0
        until(lambda: (c := run.get("/api/v1/status").json()["checkpoints"]) and c["restores"] == 4, run)
        after = until(lambda: whole(run), run)
        assert {k: v for k, v in after.items() if k != "as_of"} == {k: v for k, v in before.items() if k != "as_of"}
        assert run.get("/api/v1/status").json()["events"] == events  # nothing was read again and counted twice
        run.process.send_signal(signal.SIGTERM)
        assert run.ended() == 0


def test_a_dead_letter_that_was_in_flight_at_a_kill_is_written_after_it(
    settings: Callable[..., Path], embedded_kafka: EmbeddedBroker, tmp_path: Path, laboratory: Callable[..., Any]
) -> None:
    """The event was in a checkpoint already, so nobody read it again, and its letter was lost."""
    dead = f"dead-{uuid.uuid4().hex[:8]}"
    config = settings(
        kafka__dead_letter_topic=dead, store__path=str(tmp_path / "store"), store__checkpoint_interval="100ms",
        **{'kafka.client_options__"linger.ms"': 15_000},
    )  # fmt: skip
    write_traffic(embedded_kafka, config)
    writer = KafkaWriter(embedded_kafka.bootstrap_servers)
    writer.write(topics(config)[0], [b"u"], [b"{"])
    writer.close()
    with running(config) as run:
        until(lambda: run.get("/api/v1/status").json()["events"].get("invalid"), run)
        time.sleep(2.0)
        run.process.kill()
    with running(config) as run:
        lab = laboratory(embedded_kafka.bootstrap_servers, "confluent")
        ((value, headers, _),) = lab.read(dead, 1)
        assert (value, headers["reason"]) == (b"{", "malformed")


def settled(run: Run) -> bool:
    """Whether many snapshots, over far longer than the idle timeout, have changed nothing that was counted."""

    def seen() -> tuple[int, Any]:
        status = run.get("/api/v1/status").json()
        return status["snapshot"], [
            [(p["partition"], p["watermark"], p["offsets"]) for p in status["partitions"]],
            status["events"],
        ]

    number, before = seen()
    begin = time.monotonic()
    while (latest := seen())[1] == before:
        if latest[0] >= number + 10 and time.monotonic() > begin + 2.0:
            return True
        time.sleep(0.1)
    return False
