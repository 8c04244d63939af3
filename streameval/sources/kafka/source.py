"""Impressions and clicks from Kafka, through either client library.

`KafkaSource` turns what a reader (see `reader`) delivers into batches: partition p of the impressions topic and
partition p of the clicks topic make one batch, so the topics must have equal partition counts and be keyed by the same
user id.

Where reading starts, for each topic partition: at this source's own position, if a rebalance gives the partition back
and it was not lost in the meantime; else where its keeper says, which has the state belonging to it; else at
`kafka.start`, or at its beginning if it was added since this process or its group began. Without a keeper, the group's
committed offset comes before `kafka.start`; with one, offsets are committed for lag tools, and read only to see whether
there are any, which identifies added partitions. A batch without events reports where reading starts. A topic that was
deleted and recreated has another id (see `topics`), which is stored in the checkpoint with the offsets: it is read from
where `kafka.on_recreated_topic` says. Partitions that only one of the topics has are not read. One without a leader is no
obstacle to the others: at a known offset it begins with them, and else, at the same place, once it has one (see `starts`).

The keeper is notified of rebalances inside `poll`, in the thread that polls: `release` if the group revokes partitions
(under the classic protocol all of them, at every rebalance), `drop` if they were assigned to others or lost, `take` if
new ones have come. Nothing of a partition is delivered between its release or loss and its next beginning.

Brokers and topics are waited for first (see `awaited`). A broker that goes away later is no error: polls stay empty, the
client reconnects, and `connected` is false in the meantime. Messages that Kafka has deleted before they were read are an
error in the log and counted by `lost`; reading continues after them. A position beyond the end is an error that ends
`poll`.
"""

from __future__ import annotations

import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from streameval.events.batch import Batch
from streameval.settings.tree import Kafka
from streameval.sources.ahead import Lookahead
from streameval.sources.formats.decode import Decoder
from streameval.sources.kafka import linger
from streameval.sources.kafka.awaited import AwaitedTopics
from streameval.sources.kafka.budget import Budget
from streameval.sources.kafka.clients import open_describer, open_reader
from streameval.sources.kafka.formats import open_format
from streameval.sources.kafka.options import START_TIMEOUT
from streameval.sources.kafka.owner import PartitionOwner
from streameval.sources.kafka.pacing import Pacing
from streameval.sources.kafka.reader import QUIET, Beginning, MessageRun, joined
from streameval.sources.kafka.topics import TopicWatch
from streameval.sources.protocol import DeadLetter, DeadLetterSink, Keeper, Place, Source, SourceError

ASK_SECONDS = 1.0  # that a broker may take to report the ends

_Decoded = tuple[Batch, Sequence[DeadLetter]]


@dataclass(slots=True)
class _Polled:
    """The messages of one poll, and its batches."""

    runs: list[MessageRun]
    decoding: list[Future[_Decoded]]


class KafkaSource(Source):
    """Batches from Kafka: of every poll, the messages of one partition after those of another.

    A batch has as many messages as contain about `max_events` events, judging by the last ones; see `Budget`.
    """

    def __init__(
        self,
        settings: Kafka,
        decoder: Decoder,
        sink: DeadLetterSink,
        max_events: int,
        *,
        keeper: Keeper | None = None,
        start_timeout: float = START_TIMEOUT,
        pacing: Pacing | None = None,
    ) -> None:
        self._settings = settings
        self._decoder = decoder
        self._sink = sink
        self._keeper = keeper
        self._start_timeout = start_timeout
        self._pacing = pacing or Pacing()
        self._shared = settings.impressions_topic == settings.clicks_topic
        self._topics = tuple(dict.fromkeys((settings.impressions_topic, settings.clicks_topic)))
        self._kinds = {settings.impressions_topic: 0} if self._shared else dict(zip(self._topics, (1, 2), strict=True))
        self._reader = open_reader(settings)
        self._gate = open_format(settings, decoder)
        if self._gate is not None:
            self._reader.gate = self._gate.ready
        self._format: Literal["json", "arrow", "own"] = "own" if decoder.own is not None else _of_files(settings.format)
        self._awaited = AwaitedTopics(self._reader, self._topics, settings.bootstrap_servers, start_timeout)
        self._owner = PartitionOwner(self._topics, settings.group_id, keeper, self._began, finish=self._hand_over)
        self._watch: TopicWatch | None = None  # from the subscription on
        self._subscribed = self._closed = self._rests = False
        self._paused: frozenset[Place] = frozenset()
        self._budget = Budget(self._topics, max_events)
        self._lookahead = Lookahead()
        self._decoding = ThreadPoolExecutor(1, "decoding")
        self._polled: deque[_Polled] = deque()  # being decoded, oldest first; none between two calls
        self._take: Callable[[Batch], None] = lambda batch: None
        self._busy = 0.0  # seconds that batches took in this call of `deliver`

    @property
    def inputs(self) -> tuple[str, ...]:
        """The topics."""
        return self._topics

    def poll(self, timeout: float) -> list[Batch]:
        """See `Source.poll`. The very first calls wait for brokers and topics, up to 2 seconds more than `timeout`."""
        batches: list[Batch] = []
        self._polls(timeout, batches.append, 1)
        return batches

    def deliver(self, timeout: float, take: Callable[[Batch], None]) -> None:
        """See `Source.deliver`: of a backlog several polls, each read and decoded while the previous one is counted."""
        begin, self._busy = time.monotonic(), 0.0
        full = self._polls(timeout, take, self._lookahead.batches)
        self._lookahead.took(time.monotonic() - begin, full)
        self._reader.linger = linger.after(self._busy)

    def rest(self, timeout: float, take: Callable[[Batch], None]) -> None:
        """See `Source.rest`: remains a member of the group, and notices when brokers are away."""
        self._rests = True
        try:
            self._polls(timeout, take, 1)
        finally:
            self._rests = False

    def connect(self, stop: threading.Event) -> None:
        """Waits until a broker answers, or `stop` is set: before anything slow, so that a wrong address is reported
        soon. Then joins the group if it has no members: brokers have a new group wait for further ones, 3 s by default,
        in which this process can prepare its kernels (librdkafka joins in a thread of its own, kafka-python when it
        polls). Partitions that others read are not taken before this process can read them.

        Raises SourceError if no broker answers within `start_timeout` of the first request.
        """
        while not (stop.is_set() or self._awaited.answered(1.0)):
            stop.wait(0.1)
        if self._gate is not None:
            self._gate.connect(stop, self._start_timeout)
        if not (stop.is_set() or self._awaited.missing() or self._group_has_members()):
            self._subscribe(0.0)

    def begin(self, keeper: Keeper | None) -> None:
        """Does nothing: the group assigns partitions inside `poll`."""

    def partitions(self) -> frozenset[int]:
        """Returns the partitions assigned to this member; kept during a rebalance until the new assignment is known."""
        return frozenset(partition for _, partition in self._reader.assignment)

    def partition_count(self) -> int | None:
        return None if self._watch is None else self._watch.in_common()

    def lag(self) -> Mapping[Place, int]:
        return self._reader.lag()

    def caught_up(self) -> frozenset[Place]:
        """Returns the (topic, partition) at whose end this source is, as the brokers report when they are asked now.

        That is: at some moment after this call began, every message was delivered, except those of transactions that were
        aborted; one that goes on (`in_transaction`) may be committed, so a place of it is not at its end. Without an answer
        within a second, nothing counts as caught up. Waits for the answer, so call it only when it matters.
        """
        return self._reader.caught_up(ASK_SECONDS) if self.connected() else frozenset()

    def in_transaction(self) -> Mapping[Place, int]:
        return self._reader.in_transaction if self.connected() else {}

    def lost(self) -> Mapping[Place, int]:
        return self._reader.lost

    def empty(self) -> Mapping[Place, int]:
        return self._reader.empty

    def recreated(self) -> Mapping[str, int]:
        return self._reader.recreated

    def unpaired(self) -> Mapping[str, int]:
        return {} if self._watch is None else self._watch.unpaired()

    def missing(self) -> frozenset[str]:
        """Returns the topics that did not exist when a broker last answered."""
        if self._watch is None:
            return self._awaited.missing() if self.connected() else frozenset()
        return self._watch.missing()

    def held(self) -> frozenset[Place]:
        return self._paused

    def schemas(self) -> str:
        return "" if self._gate is None else self._gate.trouble()

    def strangers(self) -> Mapping[str, int]:
        return {} if self._watch is None else self._watch.strangers

    def is_out(self) -> bool:
        return self._owner.is_out

    def connected(self) -> bool:
        """False before a broker has answered, and if none has for some seconds (they are asked when nothing
        arrives). About topics that are gone the reader cannot ask: then the answer that they are counts.
        """
        if self._watch is not None and self.missing() and self._watch.silence < QUIET:
            return True
        return self._reader.silence < QUIET

    def commit(self, offsets: Mapping[Place, int]) -> None:
        """Commits the next offsets to read (`Batch.offsets`) to the group, without waiting; call it from time
        to time.
        """
        self._reader.commit(offsets)

    def close(self) -> None:
        """See `Source.close`. The keeper is not called: the owner of the state writes it before.

        The dead-letter sink stays open, because it is not ours.
        """
        self._closed = True
        if self._watch is not None:
            self._watch.close()
        self._decoding.shutdown()
        self._reader.close()

    def _polls(self, timeout: float, take: Callable[[Batch], None], most: int) -> bool:
        """Delivers up to `most` polls; returns whether each of them brought about as much as it could."""
        if self._closed:
            raise SourceError(f"kafka source of {self._topics}: polled after it was closed")
        if not self._subscribed and not self._subscribe(timeout):
            return False
        self._take, full = take, True
        for number in range(most):
            wanted = self._budget.messages
            runs = self._read(0.0 if number else timeout, wanted)
            decoding = [self._decoding.submit(self._decode, *ours) for ours in self._batches(runs)]
            self._polled.append(_Polled(runs, decoding))
            self._hand_over(all_but=1)
            self._pace()
            full = sum(len(run.values) for run in runs) >= wanted // 2
            if not full:
                break
        self._hand_over()
        self._pace()
        if self._watch is not None:
            self._watch.say_unread()
        return full

    def _batches(self, runs: Sequence[MessageRun]) -> list[tuple[int, list[MessageRun], list[Beginning]]]:
        """Divides the messages of a poll into batches: (partition, its runs, where reading had begun before them)."""
        found: dict[int, tuple[list[MessageRun], list[Beginning]]] = {}
        for run in runs:
            found.setdefault(run.partition, ([], []))[0].append(run)
        for one in self._reader.beginnings():
            found.setdefault(one.place[1], ([], []))[1].append(one)
        out: list[tuple[int, list[MessageRun], list[Beginning]]] = []
        for partition, (ours, begun) in sorted(found.items()):
            first, *others = self._budget.split(ours)
            out += [(partition, first, begun), *((partition, some, []) for some in others)]
        return out

    def _hand_over(self, all_but: int = 0) -> None:
        """Passes on the batches of the polls, except the last `all_but`, after writing their dead letters."""
        begin = time.monotonic()
        while len(self._polled) > all_but:
            polled = self._polled.popleft()
            events = Counter[str]()
            for decoding in polled.decoding:
                batch, letters = decoding.result()
                if letters:
                    self._sink.write(letters)
                events[self._topics[-1]] += len(batch.clicks)
                events[self._topics[0]] += len(batch.impressions) + len(batch.candidates)
                if not self._shared:
                    self._note_times(batch)
                self._take(batch)
            self._budget.learn(polled.runs, events)
        self._busy += time.monotonic() - begin

    def _group_has_members(self) -> bool:
        describer = open_describer(self._settings)
        try:
            describer.describe(self._topics)
            return any(describer.members(self._settings.group_id))
        finally:
            describer.close()

    def _subscribe(self, timeout: float) -> bool:
        """Joins the group once a broker answers and the topics exist; returns False if not yet."""
        if not self._awaited.can_be_read(timeout):
            return False
        self._watch = TopicWatch(open_describer(self._settings), self._topics, group=self._settings.group_id)
        self._reader.subscribe(self._topics, self._owner, committed=self._keeper is None, watch=self._watch)
        self._subscribed = True
        return True

    def _began(self, partitions: frozenset[int]) -> None:
        """Handles a new assignment, at which the reader forgets its pauses."""
        self._paused = frozenset()
        if not self._shared:
            self._pacing.assign(((self._topics[0], p), (self._topics[1], p)) for p in partitions)

    def _decode(self, partition: int, runs: Sequence[MessageRun], begun: Sequence[Beginning]) -> _Decoded:
        """Returns the batch of a partition's messages, with where reading had begun before them."""
        values, offsets = joined(runs)
        kinds = [self._kinds[run.topic] for run in runs]
        batch, letters = self._decoder.messages(
            values,
            np.repeat(np.array(kinds, np.int8), [len(run.values) for run in runs]),
            topic=self._topics,
            partition=partition,
            offsets=offsets,
            format=self._format,
            shared=self._shared,
            next_offsets={one.place: one.offset for one in begun} | {run.place: run.end for run in runs},
        )
        ids = {one.place: one.topic_id for one in begun if one.topic_id}
        gaps = {one.place: one.gap for one in begun if one.gap}
        return replace(batch, topic_ids=ids, gaps=gaps) if begun else batch, letters

    def _read(self, timeout: float, messages: int) -> list[MessageRun]:
        """Returns what the reader delivers; in `rest`, and while the schema registry does not answer, nothing is fetched."""
        waiting = self._gate.waiting() if self._gate is not None else 0.0
        if not waiting and not self._rests:
            begin = time.monotonic()
            runs = self._reader.poll(timeout, messages)
            self._pacing.listened(time.monotonic() - begin)
            return runs
        still = self._reader.assignment - self._paused
        self._reader.pause(still)
        runs = self._reader.poll(min(timeout, waiting) if waiting else timeout, messages)
        self._reader.resume(still - self._paused)
        return runs

    def _note_times(self, batch: Batch) -> None:
        """Records how far in event time a batch has brought its inputs."""
        impressions, clicks = self._topics
        if len(batch.impressions):
            self._pacing.delivered((impressions, batch.partition), int(batch.impressions.ts.max()))
        if len(batch.clicks):
            self._pacing.delivered((clicks, batch.partition), int(batch.clicks.ts.max()))

    def _pace(self) -> None:
        """Pauses the inputs that run ahead of their partner in event time, resumes those that have waited long
        enough.
        """
        if self._shared:
            return
        held = self._pacing.held(self._reader.lag())
        if held != self._paused:
            self._reader.resume(self._paused - held)
            self._reader.pause(held - self._paused)
            self._paused = held


def _of_files(format: str) -> Literal["json", "arrow"]:
    return "arrow" if format == "arrow" else "json"
