"""No user's id and no event's content in the log above debug level, whatever goes wrong."""

from __future__ import annotations

import io
import json
import logging
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from streameval import app
from streameval.app import Loop, make_decoder, new_publisher
from streameval.commands import cli
from streameval.loop.pipeline import Pipeline
from streameval.process import logs
from streameval.server import create_app, serve
from streameval.settings.server import Server
from streameval.settings.tree import Settings
from streameval.sources.kafka.dead_letters import KafkaDeadLetters
from streameval.sources.kafka.embedded import EmbeddedBroker
from streameval.sources.kafka.source import KafkaSource
from streameval.sources.kafka.writer import KafkaWriter
from tests import asking

USER, PAYLOAD = "alice.planted@example.com", "payload-planted-4711"
NOW = int(time.time() * 1000)


def event(**changes: object) -> dict[str, object]:
    good = {"impression_id": f"{PAYLOAD}-id", "ts": NOW, "user_id": USER, "pclick": 0.5, "item_id": PAYLOAD}
    return {**good, **changes}


# Every reason that a dead letter can have, each with the planted words in it
BAD = [
    json.dumps(one).encode() if isinstance(one, dict) else one
    for one in (
        event(pclick=7.5), event(pclick=PAYLOAD), event(ts=PAYLOAD), event(ts=-1), event(ts=NOW + 10**12),
        event(user_id=None), event(impression_id=[USER]), event(features={"f": {USER: PAYLOAD}}), event(slices=PAYLOAD),
        event(predictions={USER: PAYLOAD}), event(position=PAYLOAD), event(propensity=USER), event(clicked=PAYLOAD),
        event(type=PAYLOAD), {"user_id": USER, "item_id": PAYLOAD}, f'{{"user_id": "{USER}", {PAYLOAD}'.encode(),
        f"{USER} {PAYLOAD}".encode(), f'["{USER}", "{PAYLOAD}"]'.encode(), f'"{PAYLOAD}"'.encode(), b"",
        USER.encode() + b"\xff\xfe" + PAYLOAD.encode(), json.dumps(event(item_id=PAYLOAD * 9000)).encode(),
        b"[" * 5000 + USER.encode(),
    )
]  # fmt: skip


def is_silent(text: str) -> None:
    for secret in (USER, PAYLOAD, "alice", "planted", "4711"):
        assert secret not in text


@pytest.fixture
def log() -> Iterator[io.StringIO]:
    """What the log would hold at level info, of every logger, in either format."""
    out = io.StringIO()
    handlers = [logging.StreamHandler(out), logging.StreamHandler(out)]
    handlers[0].setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    handlers[1].setFormatter(logs.JsonLines())
    root = logging.getLogger()
    before = root.level
    root.setLevel(logging.INFO)
    for handler in handlers:
        root.addHandler(handler)
    yield out
    root.setLevel(before)
    for handler in handlers:
        root.removeHandler(handler)


@pytest.mark.parametrize("format", ["json", "arrow"])
@pytest.mark.parametrize("client", ["confluent", "kafka-python"])
@pytest.mark.slow
def test_bad_events_from_kafka(log, client: str, format: str) -> None:
    with EmbeddedBroker() as broker:
        settings = Settings.model_validate(
            {
                "kafka": {
                    "bootstrap_servers": broker.bootstrap_servers, "client": client, "format": format,
                    "client_options": broker.client_options(client), "start": "earliest", "max_message": "50KB",
                }
            }
        )  # fmt: skip
        writer = KafkaWriter(broker.bootstrap_servers, broker.client_options("confluent"))
        for topic in ("impressions", "clicks"):
            writer.write(topic, [USER.encode()] * len(BAD), BAD)
        writer.close()
        pipeline, sink, publisher = (
            Pipeline(settings, time.time),
            KafkaDeadLetters(settings.kafka),
            new_publisher(settings),
        )
        source = KafkaSource(settings.kafka, make_decoder(settings, pipeline), sink, settings.batch.max_events)
        stop = threading.Event()
        loop = threading.Thread(target=Loop(source, pipeline, publisher, 0.01, sink).run, args=(stop,))
        loop.start()
        due = time.monotonic() + 240
        refused = 0
        while refused < 2 * len(BAD) - 4 and time.monotonic() < due and loop.is_alive():
            time.sleep(0.02)
            refused = sum(dict(publisher.latest().events.get("invalid") or {}).values())
        stop.set()
        loop.join(240)
        source.close()
        sink.close()
    assert refused >= 2 * len(BAD) - 4
    assert "assigned partitions" in log.getvalue()  # this log would have caught it
    is_silent(log.getvalue())


def write_files(folder: Path) -> list[Path]:
    """Files that hold bad events, and files that cannot be read at all."""
    made = {
        "bad.jsonl": b"\n".join(line for line in BAD if line) + b"\n",
        "bad.csv": f"impression_id,ts,user_id,pclick\n{PAYLOAD},{USER},{USER},{PAYLOAD}\n{USER},{USER}\n".encode(),
        "headerless.csv": f"{PAYLOAD},{NOW},{USER},0.5\n{PAYLOAD}2,{NOW},{USER},0.5\n".encode(),
        "twice.csv": f"{USER},{USER},{PAYLOAD}\n1,2,3\n".encode(),
        "unnamed.csv": f"{USER},,{PAYLOAD}\n1,2,3\n".encode(),
        "quote.csv": f'impression_id,ts,user_id,pclick\n"{USER},{PAYLOAD}\n'.encode(),
        "broken.parquet": f"PAR1{USER}{PAYLOAD}".encode(),
        "broken.arrow": f"ARROW1{USER}{PAYLOAD}".encode(),
        "broken.jsonl.gz": f"{USER}{PAYLOAD}".encode(),
        "broken.jsonl.zst": f"{USER}{PAYLOAD}".encode(),
    }
    for name, content in made.items():
        (folder / name).write_bytes(content)
    rows = {"impression_id": [USER, PAYLOAD], "ts": [NOW, -5], "user_id": [USER, USER], "pclick": [7.0, 0.5]}
    pq.write_table(pa.table(rows), folder / "bad.parquet")
    return [folder / name for name in (*made, "bad.parquet")]


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "streameval", *arguments],
        cwd=folder, capture_output=True, text=True, check=False, timeout=480,
    )  # fmt: skip


@pytest.fixture
def own_log() -> Iterator[None]:
    """For tests of `cli.main`, which sets the log up anew."""
    root = logging.getLogger()
    before = root.level, root.handlers[:]
    yield
    root.level, root.handlers[:] = before


def test_bad_events_and_broken_files(tmp_path: Path, own_log, monkeypatch, capsys) -> None:
    letters = tmp_path / "dead-letters.jsonl"
    monkeypatch.setenv("STREAMEVAL_FILES__DEAD_LETTERS", str(letters))
    statuses = []
    for path in write_files(tmp_path):
        for log_format in ("text", "json"):
            monkeypatch.setattr(sys, "argv", ["streameval", "--log-format", log_format, "replay", str(path)])
            try:
                cli.main()
                statuses.append(0)
            except SystemExit as ended:
                statuses.append(ended.code)
            is_silent(capsys.readouterr().err.replace(str(tmp_path), ""))
    assert set(statuses) == {0, 1}
    kept = letters.read_text()
    assert USER in kept  # nothing is lost: it is where it belongs
    assert PAYLOAD in kept


@pytest.mark.slow
def test_a_mapping_that_fits_no_value(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text(f"id,t,p\na,{PAYLOAD},0.5\n")
    (tmp_path / "s.toml").write_text(
        '[files.columns]\nimpression_id = "id"\npclick = "p"\nts = { column = "t", format = "%Y-%m-%d" }\n'
    )
    done = run(tmp_path, "replay", "t.csv", "-c", "s.toml")
    assert done.returncode == 1
    assert "files.columns.ts: none of the first values matches" in done.stderr
    is_silent(done.stderr)


@pytest.mark.parametrize("verb", ["learn_one", "predict_proba_one"])
@pytest.mark.slow
def test_a_model_that_quotes_the_event_in_its_error(tmp_path: Path, verb: str) -> None:
    other = {"learn_one": "predict_proba_one", "predict_proba_one": "learn_one"}[verb]
    (tmp_path / "quoting.py").write_text(
        f"class Model:\n    def {verb}(self, x, y=None):\n        raise ValueError(str(x))\n"
        f"    def {other}(self, x, y=None):\n        return {{}}\n"
    )
    (tmp_path / "s.toml").write_text('[[models]]\nname = "m"\nkind = "river"\nfactory = "quoting:Model"\n')
    lines = [event(clicked=i % 2, impression_id=str(i), ts=NOW + i, features={"f": USER}) for i in range(5)]
    (tmp_path / "t.jsonl").write_text("\n".join(map(json.dumps, lines)))
    done = run(tmp_path, "replay", "t.jsonl", "-c", "s.toml")
    assert done.returncode == 0
    assert f"Model.{verb} raised ValueError" in done.stderr
    is_silent(done.stderr)
    assert USER in run(tmp_path, "--log-level", "debug", "replay", "t.jsonl", "-c", "s.toml").stderr


def test_a_fault_of_the_program(own_log, monkeypatch, capsys) -> None:
    def fail(*_: object) -> None:
        try:
            raise KeyError("alice" + ".planted")
        except KeyError as error:
            raise ExceptionGroup("alice" + ".planted", [ValueError("alice" + ".planted")]) from error

    monkeypatch.setattr(app, "replay", fail)
    for log_format in ("text", "json"):
        monkeypatch.setattr(sys, "argv", ["streameval", "--log-format", log_format, "replay", "x.jsonl"])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        assert ended.value.code == 1
        said = capsys.readouterr().err
        assert "internal error; please report it" in said
        assert all(name in said for name in ("builtins.KeyError", "builtins.ExceptionGroup", "builtins.ValueError"))
        assert "in fail" in said
        is_silent(said.replace('"alice" + ".planted"', "").replace('\\"alice\\" + \\".planted\\"', ""))


def test_questions_to_the_server(log, caplog) -> None:
    caplog.set_level(logging.WARNING, "httpx")  # the client's own log
    publisher = new_publisher(Settings())
    handle = serve(create_app(publisher, Server(), version="1", environ={"STREAMEVAL_TOKEN": "x"}), "127.0.0.1", 0)
    token = {"Authorization": "Bearer x"}
    path = f"/api/v1/users/{USER}"
    try:
        statuses = [
            asking.get(handle.url + path).status_code,
            asking.get(handle.url + path, headers={"Authorization": f"Bearer {PAYLOAD}"}).status_code,
            asking.get(handle.url + path, headers=token).status_code,
            asking.get(handle.url + path + f"?{PAYLOAD}={PAYLOAD}", headers=token).status_code,
            asking.post(handle.url + path, content=PAYLOAD, headers=token).status_code,
            asking.get(handle.url + "/api/v1/users", params={"cursor": PAYLOAD}, headers=token).status_code,
            asking.get(handle.url + f"/{USER}").status_code,
            asking.get(handle.url + "/livez?" + PAYLOAD * 1000).status_code,
        ]
        for raw in (f"GET {path}\r\n\r\n", f"GET {path} HTTP/1.1\r\n {PAYLOAD}\r\n\r\n", f"{PAYLOAD} {path}\r\n\r\n"):
            with socket.create_connection(("127.0.0.1", handle.port), timeout=120) as connection:
                connection.sendall(raw.encode())
                assert b" 400 " in connection.recv(65536)
        # a crash in the route of single users
        object.__setattr__(publisher.latest(), "users", None)
        statuses.append(asking.get(handle.url + path, headers=token).status_code)
    finally:
        handle.stop()
    assert statuses == [401, 401, 404, 422, 405, 404, 404, 414, 500]
    assert "GET /api/v1/users/{user_id:path} failed" in log.getvalue()
    is_silent(log.getvalue())
