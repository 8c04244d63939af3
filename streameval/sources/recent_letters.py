"""The latest dead letters in memory, shortened, for display: 10 per reason, about 0.1 MB in total."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from streameval.sources.protocol import DeadLetter, DeadLetterSink

KEPT = 10  # per reason
VALUE_SHOWN = 200  # characters of an event
_SHOWN = 500  # characters of an explanation, a field or a path


@dataclass(frozen=True, slots=True)
class LetterSample:
    """A dead letter, as users see it. `value`: the beginning of the event; bytes that are not UTF-8 are U+FFFD."""

    number: int  # increases with every letter
    at: float  # when it was rejected, wall clock, seconds since the epoch
    reason: str
    field: str
    message: str
    topic: str
    partition: int
    offset: int
    value: str
    value_bytes: int  # size of the complete event


class RecentLetters(DeadLetterSink):
    """A sink before another one: samples the letters and passes them on. Thread-safe as far as that one is."""

    def __init__(self, sink: DeadLetterSink, clock: Callable[[], float]) -> None:
        """`clock`: wall-clock seconds."""
        self._sink = sink
        self._clock = clock
        self._lock = threading.Lock()
        self._kept: dict[str, deque[LetterSample]] = {}
        self._number = 0

    def samples(self) -> list[LetterSample]:
        """Returns the latest samples of every reason, newest first."""
        with self._lock:
            kept = [sample for of_reason in self._kept.values() for sample in of_reason]
        return sorted(kept, key=lambda sample: sample.number, reverse=True)

    def write(self, letters: Sequence[DeadLetter]) -> None:
        now = self._clock()
        with self._lock:
            latest: dict[str, deque[tuple[int, DeadLetter]]] = {}  # the others of a batch are not even looked at
            for letter in letters:
                self._number += 1
                latest.setdefault(letter.reason, deque(maxlen=KEPT)).append((self._number, letter))
            for reason, numbered in latest.items():
                kept = self._kept.setdefault(reason, deque(maxlen=KEPT))
                kept.extend(_sample(number, now, letter) for number, letter in numbered)
        self._sink.write(letters)

    def flush(self, timeout: float) -> None:
        self._sink.flush(timeout)

    def close(self) -> None:
        self._sink.close()


def _sample(number: int, at: float, letter: DeadLetter) -> LetterSample:
    return LetterSample(
        number=number,
        at=at,
        reason=letter.reason,
        field=letter.field[:_SHOWN],
        message=letter.message[:_SHOWN],
        topic=letter.topic[:_SHOWN],
        partition=letter.partition,
        offset=letter.offset,
        # a character has up to four bytes
        value=letter.value[: 4 * VALUE_SHOWN].decode("utf-8", "replace")[:VALUE_SHOWN],
        value_bytes=len(letter.value),
    )
