"""SASL/OAUTHBEARER on a real Kafka, with tokens out of `kafka.oauth`."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from deploy.kafka.kafka import free_ports
from streameval.settings.tree import Kafka
from streameval.sources.kafka.dead_letters import KafkaDeadLetters
from streameval.sources.kafka.oauth import token_source
from streameval.sources.kafka.writer import KafkaWriter
from streameval.sources.protocol import SourceError
from tests.integration import fake_signer

ASKING = {"confluent": "security.protocol", "kafka-python": "security_protocol"}
PATIENCE = 180.0
OAUTH = "tests.integration.fake_signer:token"


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Iterator[str]:
    """host:port of a broker that takes OAUTHBEARER."""
    from tests.integration.conftest import launch, need_kafka

    need_kafka()
    plain, controller, guarded = free_ports(3)
    login = 'org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required unsecuredLoginStringClaim_sub="b";'
    folder = str(tmp_path_factory.mktemp("kafka-oauth"))
    try:
        launch(
            "start", folder,
            f"listeners=PLAINTEXT://127.0.0.1:{plain},CONTROLLER://127.0.0.1:{controller},SASL_PLAINTEXT://127.0.0.1:{guarded}",
            f"advertised.listeners=PLAINTEXT://127.0.0.1:{plain},SASL_PLAINTEXT://127.0.0.1:{guarded}",
            f"controller.quorum.bootstrap.servers=127.0.0.1:{controller}",
            "listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SASL_PLAINTEXT:SASL_PLAINTEXT",
            "sasl.enabled.mechanisms=OAUTHBEARER",
            f"listener.name.sasl_plaintext.oauthbearer.sasl.jaas.config={login}",
        )  # fmt: skip
        yield f"127.0.0.1:{guarded}"
    finally:
        launch("stop", folder)


@pytest.mark.kafka
@pytest.mark.slow
def test_tokens_are_asked_for_again_and_what_is_written_is_read(
    guarded: str, client: str, laboratory: Callable[..., Any]
) -> None:
    options = {ASKING[client]: "SASL_PLAINTEXT"}
    lab = laboratory(guarded, client)
    settings: Kafka = lab.settings(client_options=options, oauth=OAUTH)
    writer = KafkaWriter(guarded, options, client, OAUTH)  # type: ignore[arg-type]
    writer.create_topics([lab.impressions, lab.clicks, lab.dead], 1)
    before = fake_signer.asked

    def write(number: int) -> None:
        event = {"impression_id": f"i{number}", "ts": 1_700_000_000_000, "user_id": "u", "pclick": 0.1 if number else 9}
        writer.write(lab.impressions, [b"u"], [json.dumps(event).encode()])
        writer.flush(PATIENCE)

    sink = KafkaDeadLetters(settings)
    source = lab.source(settings, sink)
    seen = invalid = 0

    def poll() -> None:
        nonlocal seen, invalid
        for batch in source.poll(0.6):
            seen += len(batch)
            invalid += sum(batch.invalid.values())

    begin = time.monotonic()
    number = 0
    while time.monotonic() < begin + 1.5 * fake_signer.LIFE:  # so that the first token expires in between
        write(number)
        number += 1
        poll()
        time.sleep(0.2)
    while seen + invalid < number and time.monotonic() < begin + PATIENCE:
        poll()
    assert (seen, invalid) == (number - 1, 1)
    sink.flush(PATIENCE)
    later = KafkaWriter(guarded, options, client, OAUTH)  # type: ignore[arg-type]
    later.create_topics([f"{lab.dead}-later"], 1)  # kafka-python asks for a token where it connects anew
    assert fake_signer.asked > before  # the first one has expired
    later.close()
    sink.close()
    writer.close()


def test_what_is_no_signer_is_said() -> None:
    for path, words in (
        ("no_such_module:token", "cannot be imported"),
        ("json:no_such", "cannot be imported"),
        ("json:__name__", "not callable"),
    ):
        with pytest.raises(SourceError, match=words):
            token_source(path)
    with pytest.raises(SourceError, match="must return"):
        token_source("builtins:dict")()
