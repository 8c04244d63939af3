"""`config check --connect` against a real broker, a wrong address, and disks that cannot be used."""

from __future__ import annotations

import base64
import json
import os
import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from click.testing import CliRunner

from streameval.commands.cli import cli
from streameval.commands.connect import Probed, connections
from streameval.settings.tree import Settings
from streameval.sources.kafka.embedded import EmbeddedBroker
from streameval.sources.kafka.writer import KafkaWriter

CLIENTS = ["confluent", "kafka-python"]


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker() as made:
        writer = KafkaWriter(made.bootstrap_servers)
        for topic in ("impressions", "clicks", "letters"):
            writer.write(topic, [b"u"], [b"{}"])
        writer.flush()
        writer.close()
        yield made


def settings(broker: EmbeddedBroker, client: str = "confluent", store: str = "", **kafka: object) -> Settings:
    basic = {"bootstrap_servers": broker.bootstrap_servers, "client": client, "dead_letter_topic": "letters"}
    options = {"client_options": broker.client_options(client)}
    return Settings.model_validate({"kafka": {**basic, **options, **kafka}, "store": {"path": store}})


def found(of: Settings, patience: float = 60.0) -> dict[str, Probed]:
    return {one.about: one for one in connections(of, patience)}


@pytest.mark.parametrize("client", CLIENTS)
def test_a_line_each_for_broker_topics_and_disk(broker, client, tmp_path) -> None:
    seen = found(settings(broker, client, str(tmp_path / "state" / "deep")))
    assert [one.state for one in seen.values()] == ["ok"] * 5, seen
    assert seen["broker"].text == f"{broker.bootstrap_servers} answers"
    assert seen['topic "impressions"'].text == "4 partitions"
    assert "will be created" in list(seen.values())[-1].text
    assert list(tmp_path.iterdir()) == [], "nothing is left behind"


def test_a_wrong_address_is_said_with_the_fix_and_the_disk_is_asked_all_the_same(tmp_path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        where = f"127.0.0.1:{free.getsockname()[1]}"
    of = Settings.model_validate({"kafka": {"bootstrap_servers": where}, "store": {"path": str(tmp_path)}})
    broker, disk = connections(of, 1.0)
    assert broker.state == "fail"
    assert where in broker.text
    assert "check the address" in broker.fix
    assert "\n" not in broker.line()
    assert disk.state == "ok"


def test_a_line_has_no_gap_before_what_to_do(broker) -> None:
    disk = found(settings(broker))["disk"]
    assert disk.line() == 'warn  disk: store.path = "": nothing is stored, a restart begins empty; set it in production'


def test_a_topic_that_is_not_there_is_a_failure_of_an_input_and_a_warning_of_dead_letters(broker) -> None:
    # its mock makes topics when a client asks for them by name: so what the client answered is what is judged
    from streameval.commands import connect

    counts = {"impressions": 4}
    lacking = connect._input("clicks", counts, 4)
    assert (lacking.state, "--create --topic clicks --partitions 4" in lacking.fix) == ("fail", True)
    assert connect._letters("letters", counts).state == "warn"
    odd = connect._input("clicks", {**counts, "clicks": 3}, 4)
    assert (odd.state, odd.text) == ("fail", "has 3 partitions, the other topic 4")


@pytest.mark.skipif(not Path("/proc/version").exists(), reason="needs a folder that nobody can write: Linux has /proc")
def test_a_disk_that_cannot_be_written_is_said(broker) -> None:
    *_, disk = connections(settings(broker, store="/proc/streameval"))
    assert disk.state == "fail"
    assert "/proc cannot be written" in disk.text
    assert f"let user {os.getuid()} write there" in disk.fix


def test_a_store_below_a_file_is_said(broker, tmp_path) -> None:
    (tmp_path / "file").touch()
    for path in ("file", "file/x"):
        *_, disk = connections(settings(broker, store=str(tmp_path / path)))
        assert (disk.state, disk.text) == ("fail", f"{tmp_path / 'file'} is a file, not a folder")


def test_a_disk_that_is_too_small_and_none_at_all_are_warnings(broker, tmp_path) -> None:
    small = settings(broker, store=str(tmp_path))
    huge = small.model_copy(update={"store": small.store.model_copy(update={"max_size": 1 << 62})})
    *_, disk = connections(huge)
    assert (disk.state, "the history alone may take" in disk.text) == ("warn", True)
    *_, nothing = connections(settings(broker))
    assert (nothing.state, "a restart begins empty" in nothing.text) == ("warn", True)


def test_the_command_ends_with_1_when_something_fails_and_0_otherwise(broker, tmp_path, monkeypatch) -> None:
    config = tmp_path / "s.toml"
    server = f'[kafka]\nbootstrap_servers = "{broker.bootstrap_servers}"\ndead_letter_topic = "letters"\n'
    config.write_text(f'{server}[store]\npath = "{tmp_path}"\n')
    done = CliRunner().invoke(cli, ["config", "check", "--connect", "-c", str(config)])
    assert (done.exit_code, done.output.count("\nok ")) == (0, 5), done.output
    config.write_text(f'{server}[store]\npath = "/proc/none"\n')
    done = CliRunner().invoke(cli, ["config", "check", "--connect", "-c", str(config)])
    assert done.exit_code == 1
    assert "fail  disk" in done.output


class _Types(BaseHTTPRequestHandler):
    """A registry that knows what kinds of schemas it has, for whoever has the password."""

    kinds = ("AVRO", "JSON")

    def do_GET(self) -> None:
        known = self.headers["Authorization"] == "Basic " + base64.b64encode(b"ana:s3cret").decode()
        self.send_response(200 if known and self.path == "/schemas/types" else 401)
        self.end_headers()
        self.wfile.write(json.dumps(self.kinds).encode())

    def log_message(self, *_: object) -> None:
        """Nothing."""


@pytest.fixture
def registry() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), _Types) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def test_the_schema_registry_is_asked_where_the_format_needs_one(broker, registry: str, tmp_path) -> None:
    (tmp_path / "password").write_text("s3cret\n")
    of = {"url": registry, "username": "ana", "password_file": str(tmp_path / "password")}
    seen = found(settings(broker, format="avro", schema_registry=of))["schema registry"]
    assert (seen.state, seen.text) == ("ok", f"{registry} answers")
    seen = found(settings(broker, format="protobuf", schema_registry=of))["schema registry"]
    assert (seen.state, "PROTOBUF" in seen.text) == ("fail", True)
    (tmp_path / "password").write_text("guessed")
    seen = found(settings(broker, format="avro", schema_registry=of))["schema registry"]
    assert (seen.state, "HTTP 401" in seen.text) == ("fail", True)
    assert "guessed" not in seen.line()
    nowhere = {"url": "http://127.0.0.1:9"}
    seen = found(settings(broker, format="avro", schema_registry=nowhere))["schema registry"]
    assert seen.state == "fail"
    assert "kafka.schema_registry" in seen.fix
    assert "schema registry" not in found(settings(broker))
