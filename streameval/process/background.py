"""Background work, done in order on one other thread.

Counting is where a batch ends: nothing in the loop reads it before the next snapshot. So while this thread counts a
batch (in kernels that release the interpreter lock), the loop joins, scores and learns the next one. One thread and
one queue keep the order, so the state after `wait` is the same as without it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, ParamSpec, TypeVar

_P = ParamSpec("_P")
_T = TypeVar("_T")
_MOST = 16  # calls that may wait: bounds the memory of what they hold, and evens out slow ones


class Background:
    """Calls under way. Used by one thread; its own thread ends with it."""

    def __init__(self) -> None:
        self._executor = ThreadPoolExecutor(1, thread_name_prefix="counting")
        self._calls: deque[Future[Any]] = deque()

    def call(self, function: Callable[_P, _T], *args: _P.args, **kwargs: _P.kwargs) -> Future[_T]:
        """Calls later, after those before; the result comes in the future. Raises what an earlier call raised."""
        while self._calls and (len(self._calls) >= _MOST or self._calls[0].done()):
            self._calls.popleft().result()
        future = self._executor.submit(function, *args, **kwargs)
        self._calls.append(future)
        return future

    def call_little(self, function: Callable[_P, object], *args: _P.args, **kwargs: _P.kwargs) -> None:
        """Like `call`, but if none is under way, at once: waking the other thread takes longer than a little work."""
        while self._calls and self._calls[0].done():
            self._calls.popleft().result()
        if self._calls:
            self.call(function, *args, **kwargs)
        else:
            function(*args, **kwargs)

    def wait(self) -> None:
        """Returns when every call is done. Raises what one of them raised."""
        while self._calls:
            self._calls.popleft().result()
