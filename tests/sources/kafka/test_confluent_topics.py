"""How the group and the topics are asked for with confluent-kafka; tests/integration asks a real one."""

from __future__ import annotations

from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

from streameval.sources.kafka.confluent_topics import ConfluentDescriber
from streameval.sources.kafka.topics import NO_LEADER, Topic

# ConsumerProtocolAssignment, version 3: partitions 0 and 2 of "shown", 7 of "t"; then the length of the user's data
GIVEN = b"\x00\x03\x00\x00\x00\x02\x00\x05shown\x00\x00\x00\x02\x00\x00\x00\x00\x00\x00\x00\x02\x00\x01t\x00\x00\x00\x01\x00\x00\x00\x07"
GIVEN += b"\xff\xff\xff\xff"


def test_members_come_by_the_request_whose_timeout_does_not_end_the_process() -> None:
    """After describe_consumer_groups has timed out librdkafka 2.16 may use freed memory: an assertion, once in a while."""

    def refused(*_: Any, **__: Any) -> None:
        raise AssertionError("describe_consumer_groups")

    members = [
        SimpleNamespace(client_id="etl", client_host="/10.0.0.7", assignment=GIVEN),
        SimpleNamespace(client_id="joining", client_host="/10.0.0.8", assignment=b""),
    ]
    groups = [SimpleNamespace(members=members)]
    describer = ConfluentDescriber("localhost:1", {})
    made: Any = SimpleNamespace(
        list_groups=lambda group, timeout: groups if group == "g" else [], describe_consumer_groups=refused
    )
    describer._made = made  # no broker is needed for this
    describer._tells_ids = True
    found = {one.client_id: one.places for one in describer.members("g")}
    assert found == {"etl": {("shown", 0), ("shown", 2), ("t", 7)}, "joining": frozenset()}
    assert describer.strangers("g", ["shown"]) == {"etl at 10.0.0.7": 2}


def test_who_leads_a_partition_is_told_and_that_nobody_does() -> None:
    broker = SimpleNamespace(id=7)
    partitions = [SimpleNamespace(id=0, leader=broker), SimpleNamespace(id=1, leader=None)]
    answer: Future[Any] = Future()
    answer.set_result(SimpleNamespace(topic_id="AAAAAAAAAAAAAAAAAAAAAA", partitions=partitions))
    describer = ConfluentDescriber("localhost:1", {})
    made: Any = SimpleNamespace(describe_topics=lambda names, request_timeout: {"shown": answer})
    describer._made = made
    describer._tells_ids = True
    assert describer.describe(["shown"]) == {"shown": Topic(None, 2, {0: 7, 1: NO_LEADER})}
