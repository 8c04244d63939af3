"""One thread that does work in order. The end of the process does not wait for it: a disk may hang forever."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from queue import SimpleQueue
from typing import Any, ParamSpec, TypeVar

_P = ParamSpec("_P")
_T = TypeVar("_T")


class WorkThread:
    """Used by one other thread."""

    def __init__(self, name: str) -> None:
        self._queue: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def submit(self, function: Callable[_P, _T], *args: _P.args, **kwargs: _P.kwargs) -> Future[_T]:
        """Calls later, after those before; what it returns or raises comes in the future."""
        future: Future[Any] = Future()

        def call() -> None:
            try:
                future.set_result(function(*args, **kwargs))
            except BaseException as error:
                future.set_exception(error)

        self._queue.put(call)
        return future

    def close(self, timeout: float) -> None:
        """No more calls; waits up to `timeout` seconds for those made."""
        self._queue.put(None)
        self._thread.join(timeout)

    def _run(self) -> None:
        while (call := self._queue.get()) is not None:
            call()
