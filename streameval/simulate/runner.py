"""Sends simulated traffic as time passes."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from streameval.simulate.encode import Message, events
from streameval.simulate.traffic import Traffic

SLICE_MS = 100.0  # events of a tenth of a second are sent together


def run(
    traffic: Traffic,
    send: Callable[[str, list[bytes], list[bytes]], None],
    *,
    speed: float | None,
    stop: threading.Event,
    clock: Callable[[], float] = time.monotonic,
) -> None:
    """Calls `send(kind, keys, values)` in order of arrival until the traffic ends or `stop` is set.

    `speed`: seconds of event time a second of `clock` (1: as it happens); None: flat out. No slice is sent before its
    first event is due. Raises ValueError for a speed that is not positive.
    """
    if speed is not None and not speed > 0:
        raise ValueError(f"speed = {speed}: must be positive, for example 1 for real time; leave it out for flat out")
    begin = clock()
    start = traffic.scenario.start_ms
    part: list[Message] = []
    for event in events(traffic):
        if part and event.arrives - part[0].arrives > SLICE_MS:
            _send(part, send)
            part = []
        if not part and speed is not None:
            ahead = (event.arrives - start) / 1000.0 / speed - (clock() - begin)
            if ahead > 0:
                stop.wait(ahead)
        if stop.is_set():
            return
        part.append(event)
    _send(part, send)


def _send(part: list[Message], send: Callable[[str, list[bytes], list[bytes]], None]) -> None:
    """Impressions first: within a tenth of a second the order of the two topics means nothing."""
    for kind in ("impression", "click"):
        some = [event for event in part if event.kind == kind]
        if some:
            send(kind, [event.key for event in some], [event.json() for event in some])
