"""Waits until a deploy is certified or found worse: what a delivery pipeline stands at."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Protocol

from streameval.client import MonitorError

NOT_WORSE, WORSE, UNDECIDED = 0, 3, 4  # exit statuses; 1: the monitor could not be asked
LONGEST_PAUSE = 30.0  # seconds between two attempts to reach it


class Asked(Protocol):
    """What the gate needs of a monitor; see `client.Monitor`."""

    def only_model(self) -> str:
        """The one model there is."""

    def verdict(self, model: str, candidate: str) -> dict[str, Any]:
        """The verdict on a version."""


def wait(
    monitor: Asked,
    model: str | None,
    candidate: str,
    within: float,
    say: Callable[[str], None],
    *,
    every: float = 5.0,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> int:
    """The exit status: asks every so many seconds until there is a verdict, at most `within` seconds.

    `worse` counts at once, also when what is known now no longer shows it, which the words then say. `not_worse` counts while
    the labels can be believed. Errors that time may cure are tried again, less and less often; MonitorError comes from all
    others, and when the last attempt failed, too.
    """
    deadline, failures = clock() + within, 0
    last: tuple[str, ...] = ()
    while True:
        error: MonitorError | None = None
        try:
            answer = monitor.verdict(model or monitor.only_model(), candidate)
        except MonitorError as failed:
            if not failed.passing:
                raise
            error, failures = failed, failures + 1
            line = f"{failed}; trying again"
            state: tuple[str, ...] = (line,)
        else:
            failures = 0
            state, line = _state(answer), _line(answer)
        if state != last:
            say(line)
            last = state
        if error is None and answer["worse"]:
            return WORSE
        if error is None and answer["not_worse"] and answer["reliable"]:
            return NOT_WORSE
        left = deadline - clock()
        if left <= 0:
            if error is not None:
                raise error
            say(f"no verdict within {within:g} s")
            return UNDECIDED
        sleep(min(left, every if not failures else max(every, min(LONGEST_PAUSE, every * 2**failures))))


def _state(answer: dict[str, Any]) -> tuple[str, ...]:
    """What makes a new line worth saying: counts that grow do not."""
    return tuple(
        str(answer.get(name))
        for name in ("verdict", "supported_now", "reliable", "reason", "setup", "deploy", "comparison")
    )


def _line(answer: dict[str, Any]) -> str:
    line = "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in answer["words"][:1000])
    return line if answer["reliable"] else f"{line} (not believed: {answer.get('reason') or 'the join is unhealthy'})"
