"""A member of a group that counts: a keeper that checks what a source promises, and a process of its own around it.

    group_member.py CLIENT ADDRESS GROUP IMPRESSIONS CLICKS STORE OPTIONS

The process polls once for every line that it reads, and answers with a line of JSON; "stop" makes it stop itself
(SIGSTOP) before the poll, "close" ends it.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from streameval.events.batch import Batch, Catalog
from streameval.settings.tree import Kafka
from streameval.sources.formats.decode import Decoder
from streameval.sources.kafka.source import KafkaSource
from streameval.sources.protocol import DeadLetter

START_MS = 1_700_000_000_000


class CountingKeeper:
    """Its state of a partition is what it has counted, event by event; kept in a folder that all members share.

    `deliver` is to be given what every poll returned. Everything that a source must not do raises AssertionError.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.calls: list[tuple[str, list[int]]] = []
        self.counted: dict[int, list[str]] = {}  # by partition held: "i5" is the impression of START_MS + 5
        self.next: dict[tuple[str, int], int] = {}
        self.patience = 0.0  # seconds that a release takes
        self._touched: set[int] = set()  # released, lost or taken in the poll under way

    def take(self, partitions: frozenset[int]) -> Mapping[tuple[str, int], int]:
        assert partitions
        assert not partitions & self.counted.keys(), "taken twice"
        self.calls.append(("take", sorted(partitions)))
        self._touched |= partitions
        found: dict[tuple[str, int], int] = {}
        for partition in partitions:
            self.counted[partition] = []
            path = self.folder / f"{partition}.json"
            if path.exists():
                offsets, self.counted[partition] = json.loads(path.read_text())
                found |= {(topic, partition): offset for topic, offset in offsets.items()}
        self.next |= found
        return found

    def topic_ids(self, partitions: frozenset[int]) -> Mapping[tuple[str, int], str]:
        return {}

    def regain(self, partitions: frozenset[int]) -> None:
        assert partitions <= self.counted.keys(), "regained what it does not have"

    def release(self, partitions: frozenset[int]) -> None:
        assert partitions
        assert partitions <= self.counted.keys(), "released without being held"
        self.calls.append(("release", sorted(partitions)))
        self._touched |= partitions
        time.sleep(self.patience)
        self.write(partitions)

    def drop(self, partitions: frozenset[int]) -> None:
        assert partitions
        assert partitions <= self.counted.keys(), "dropped without being held"
        self.calls.append(("drop", sorted(partitions)))
        self._touched |= partitions
        for partition in partitions:
            del self.counted[partition]
        self.next = {place: offset for place, offset in self.next.items() if place[1] not in partitions}

    def deliver(self, batches: Sequence[Batch]) -> None:
        """What a poll returned: of partitions that nothing happened to in it, without a gap and without repetition."""
        touched, self._touched = self._touched, set()
        for batch in batches:
            assert batch.partition in self.counted, "delivered without being held"
            assert batch.partition not in touched, "delivered by a poll that took it away"
            for (topic, partition), offset in batch.offsets.items():
                events = batch.impressions if topic.startswith("i-") else batch.clicks
                first = offset - len(events)
                assert self.next.get((topic, partition), first) == first, "a gap or a repetition"
                self.next[topic, partition] = offset
            for kind, events in (("i", batch.impressions), ("c", batch.clicks)):
                self.counted[batch.partition] += [f"{kind}{ts}" for ts in (events.ts - START_MS).tolist()]

    def write(self, partitions: frozenset[int] | None = None) -> None:
        """Into the folder; of all partitions held by default."""
        for partition in self.counted if partitions is None else partitions:
            offsets = {topic: offset for (topic, p), offset in self.next.items() if p == partition}
            temporary = self.folder / f"{partition}.{os.getpid()}.{id(self)}"
            temporary.write_text(json.dumps([offsets, self.counted[partition]]))
            temporary.rename(self.folder / f"{partition}.json")


class Refuses:
    """A dead-letter sink for topics without bad events."""

    def write(self, letters: Sequence[DeadLetter]) -> None:
        raise AssertionError(letters)

    def flush(self, timeout: float) -> None: ...

    def close(self) -> None: ...


def resident_mb() -> float:
    """What this process has in memory now."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1_000_000


def main(client: str, address: str, group: str, impressions: str, clicks: str, store: str, options: str) -> None:
    keeper = CountingKeeper(Path(store))
    settings = Kafka(
        bootstrap_servers=address,
        client=client,
        group_id=group,
        impressions_topic=impressions,
        clicks_topic=clicks,
        start="earliest",
        client_options=json.loads(options),
    )
    decoder = Decoder(Catalog(), clock=lambda: int(time.time() * 1_000), max_future=3_600_000)
    source = KafkaSource(settings, decoder, Refuses(), 10, keeper=keeper)
    for line in sys.stdin:
        if line.strip() == "close":
            break
        if line.strip() == "stop":
            os.kill(os.getpid(), signal.SIGSTOP)
        before = len(keeper.calls)
        batches = source.poll(0.2)
        keeper.deliver(batches)
        counted: Counter[int] = Counter()
        for batch in batches:
            counted[batch.partition] += len(batch)
        lag = sum(source.lag().values())
        print(json.dumps({"calls": keeper.calls[before:], "counted": counted, "lag": lag, "rss_mb": resident_mb()}))
        sys.stdout.flush()
    keeper.write()
    source.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
