"""A process that describes a topic and, when told, the members of a group; one of them is its own.

    group_watcher.py ADDRESS TOPIC

For every line that it reads it answers with a line of JSON: of "topics" the partitions of each, of "members" their names.
"""

from __future__ import annotations

import json
import sys

from confluent_kafka import Consumer

from streameval.sources.kafka.confluent_topics import ConfluentDescriber

GROUP, MEMBER = "watched", "etl"


def main(address: str, topic: str) -> None:
    options = {"bootstrap.servers": address, "group.id": GROUP, "client.id": MEMBER, "log_level": 0}
    consumer = Consumer(options, error_cb=lambda _: None)
    consumer.subscribe([topic])
    describer = ConfluentDescriber(address, {})
    for line in sys.stdin:
        consumer.poll(0.2)
        found = describer.describe([topic])
        if line.strip() == "topics":
            answer = None if found is None else {name: of.partitions for name, of in found.items()}
        else:
            answer = sorted(one.client_id for one in describer.members(GROUP))
        print(json.dumps(answer), flush=True)
    describer.close()
    consumer.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
