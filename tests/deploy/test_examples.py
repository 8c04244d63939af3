"""deploy/examples: each file is what the settings' loader takes, and the Kafka client takes its options."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import trustme
from click.testing import CliRunner
from confluent_kafka import Consumer

from streameval.commands.cli import cli
from streameval.settings.toml import load
from tests.deploy.manifests import DEPLOY

EXAMPLES = sorted((DEPLOY / "examples").rglob("*.toml"))


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_is_taken(path: Path) -> None:
    load(path, {})


def test_there_is_one_for_production_and_one_with_tls() -> None:
    assert {"production", "production-tls"} <= {path.stem for path in EXAMPLES}


def test_the_program_and_the_client_take_the_one_with_tls(tmp_path: Path) -> None:
    """With a certificate, a key, an authority and a token that exist."""
    authority, server = trustme.CA(), trustme.CA().issue_cert("localhost")
    authority.cert_pem.write_to_path(str(tmp_path / "kafka-ca.pem"))
    server.cert_chain_pems[0].write_to_path(str(tmp_path / "server.pem"))
    server.private_key_pem.write_to_path(str(tmp_path / "server.key"))
    (tmp_path / "token").write_text("a-token-of-the-test\n")
    path = tmp_path / "streameval.toml"
    path.write_text(
        (DEPLOY / "examples" / "production-tls.toml").read_text().replace("/etc/streameval/", f"{tmp_path}/")
    )
    done = CliRunner().invoke(cli, ["config", "check", "-c", str(path)])
    assert done.output == "the settings are valid\n"
    kafka = load(path, {"STREAMEVAL_KAFKA__CLIENT_OPTIONS__sasl.password": "from-the-environment"}).kafka
    assert kafka.client_options["sasl.password"] == "from-the-environment"
    consumer = Consumer({**kafka.client_options, "group.id": kafka.group_id, "log_level": 0})  # reads the authority
    consumer.close()


def test_no_example_holds_a_real_secret() -> None:
    for path in EXAMPLES:
        for value in re.findall(r'(?:password|token)"?\s*=\s*"(.*)"', path.read_text()):
            assert value == "change-me", path
