"""Runs kafka-python's poll such that its callbacks are executed by the thread that polls.

kafka-python 3 calls a rebalance listener on its own thread, in the middle of `poll`. What a rebalance triggers here,
writing the state of partitions, must happen in the thread that owns this state, the one that polls, and may take longer
than the group waits for a heartbeat. So `poll` is called by a second thread, and the polling one waits for whichever
comes first: its end, or something to do. The two never run our code at the same time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent import futures
from queue import Empty, SimpleQueue
from typing import Any

from kafka import AsyncConsumerRebalanceListener
from kafka.future import Future


class Handover:
    """One poll at a time, with its callbacks."""

    def __init__(self) -> None:
        self._caller = futures.ThreadPoolExecutor(1, "kafka-poll")
        self._poll: futures.Future[Any] | None = None  # the current one, or the last
        self._todo: SimpleQueue[tuple[Callable[[], None], Future] | None] = SimpleQueue()  # None: check the poll
        self._closed = False

    def run(self, call: Callable[[], Any], wake: Callable[[], None]) -> Any:
        """Returns what `call` returns, or raises its exception; in the meantime executes requests in this thread.
        `wake`: called after each request, in this thread.

        Exceptions of requests are raised, too; the client continues.
        """
        self._poll = self._caller.submit(call)
        self._poll.add_done_callback(lambda _: self._todo.put(None))
        while not (self._poll.done() and self._todo.empty()):
            todo = self._todo.get()
            if todo is not None:
                do, answer = todo
                try:
                    do()
                finally:
                    answer.success(None)
                    wake()
        return self._poll.result()

    async def ask(self, do: Callable[[], None]) -> None:
        """Called by the client, on its own thread: has `do` executed by the thread that polls. Does nothing after
        `close`.
        """
        if not self._closed:
            answer = Future()
            self._todo.put((do, answer))
            await answer

    def close(self) -> None:
        """Ends: there are no more polls, and further requests are not executed."""
        self._closed = True
        while self._poll is not None and not self._poll.done():  # a poll was interrupted by an exception (Ctrl-C)
            try:
                todo = self._todo.get(timeout=0.1)
            except Empty:
                continue
            if todo is not None:
                todo[1].success(None)
        self._caller.shutdown()


class AssignmentListener(AsyncConsumerRebalanceListener):  # type: ignore[misc]  # kafka-python is untyped
    """Hands rebalances over to the thread that polls; the client's own thread continues its heartbeats in the
    meantime.
    """

    def __init__(self, handover: Handover, *words: Callable[[Iterable[Any]], None]) -> None:
        self._handover = handover
        self._assigned, self._revoked, self._lost = words

    async def on_partitions_assigned(self, assigned: Iterable[Any]) -> None:
        await self._handover.ask(lambda: self._assigned(assigned))

    async def on_partitions_revoked(self, revoked: Iterable[Any]) -> None:
        await self._handover.ask(lambda: self._revoked(revoked))

    async def on_partitions_lost(self, lost: Iterable[Any]) -> None:
        await self._handover.ask(lambda: self._lost(lost))
