"""Writing traffic to Kafka."""

from __future__ import annotations

import pytest

from streameval.sources.kafka.writer import KafkaWriter


@pytest.mark.kafka
def test_equal_keys_meet_in_equal_partitions_of_both_topics_whichever_client_wrote_them(real_kafka, laboratory):
    lab = laboratory(real_kafka, "confluent")
    keys = [f"user-{i}".encode() for i in range(500)]
    for topic, client in ((lab.impressions, "confluent"), (lab.clicks, "kafka-python")):
        writer = KafkaWriter(real_kafka, client=client)
        writer.create_topics([topic], 7)
        writer.create_topics([topic], 7)  # is there already
        writer.write(topic, keys, keys)
        writer.close()
        writer.close()
    places = [{value: p for value, _, p in lab.read(topic, 500)} for topic in (lab.impressions, lab.clicks)]
    assert places[0] == places[1]
    assert set(places[0].values()) == set(range(7))


def test_messages_keep_their_order_in_the_partition_that_was_asked_for(lab):
    lab.create(lab.impressions)
    writer = KafkaWriter(lab.address, lab.options, lab.client)
    values = [str(i).encode() for i in range(3_000)]
    writer.write(lab.impressions, [b"k"] * 3_000, values, partition=2)
    writer.flush()
    stored = lab.read(lab.impressions, 3_000)
    assert [value for value, _, _ in stored] == values
    assert {partition for _, _, partition in stored} == {2}
    writer.close()


def test_keys_and_values_must_pair(lab):
    writer = KafkaWriter(lab.address, lab.options, lab.client)
    with pytest.raises(ValueError, match="zip"):
        writer.write(lab.impressions, [b"k"], [b"1", b"2"])
    writer.close()
