"""Waits until a deploy is certified not worse, or found worse: the gate of a delivery pipeline."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Protocol

from streameval.commands.client import MonitorError
from streameval.commands.columns import printable

NOT_WORSE, WORSE, UNDECIDED = 0, 3, 4  # exit statuses; 1: the monitor is unreachable, or another error
LONGEST_PAUSE = 30.0  # seconds between two attempts to reach it
MOST_NAMED = 20  # versions, the last ones of their order


class Asked(Protocol):
    """The part of a monitor that the gate needs; see `client.MonitorClient`."""

    def only_model(self) -> str:
        """The one model there is."""

    def versions(self, model: str) -> list[str]:
        """The versions of a model that have been seen."""

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
    watch: Callable[[dict[str, Any]], None] = lambda answer: None,
) -> int:
    """The exit status: polls every so many seconds until there is a verdict, for at most `within` seconds.

    `worse` counts at once, even when current data no longer support it, which the words then say. `not_worse` counts only
    while the labels are reliable. Transient errors are retried with growing pauses; MonitorError is raised for all others,
    and when the last attempt failed. `watch` gets every answer.
    """
    deadline, failures = clock() + within, 0
    state: tuple[str, ...] = ()
    last: tuple[str, ...] = ()
    while True:
        error: MonitorError | None = None
        try:
            asked = model or monitor.only_model()
            answer = monitor.verdict(asked, candidate)
            watch(answer)
            state, line = _state(answer), _line(answer)
            unseen = answer.get("deploy", "") is None or answer.get("reason") == "no_traffic_yet"
            if state != last and unseen:
                line = _unseen(asked, candidate, monitor.versions(asked)) or line
        except MonitorError as failed:
            if not failed.passing:
                raise
            error, failures = failed, failures + 1
            line = f"{failed}; retrying"
            state = (line,)
        else:
            failures = 0
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
    """The fields whose change prints a new line; growing counts do not."""
    return tuple(
        str(answer.get(name))
        for name in ("verdict", "supported_now", "reliable", "reason", "setup", "deploy", "comparison")
    )


def _unseen(model: str, candidate: str, versions: list[str]) -> str | None:
    """That a version has not been seen, and which have: it may be misspelt. None when it has been."""
    if candidate in versions:
        return None
    known = ", ".join(map(printable, versions[-MOST_NAMED:])) or "none"
    more = f" and {len(versions) - MOST_NAMED} more" if len(versions) > MOST_NAMED else ""
    return f"{printable(model)} has no version {printable(candidate)} yet; versions seen: {known}{more}; waiting for it"


def _line(answer: dict[str, Any]) -> str:
    line = printable(answer["words"][:1000])
    return line if answer["reliable"] else f"{line} (not reliable: {answer.get('reason') or 'the join is unhealthy'})"
