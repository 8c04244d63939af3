"""A page over a snapshot made by hand, published again every second as a running monitor would."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from streameval.results.publish import Publisher
from streameval.results.snapshot import Snapshot
from streameval.server import create_app
from streameval.server.http.serve import serve
from streameval.settings.server import Server


class Serving:
    """Serves a snapshot, always as of now, until `stop`; `url` is where."""

    def __init__(self, snapshot: Snapshot, **app: Any) -> None:
        """`app`: more for `create_app`."""
        self._snapshot = replace(snapshot, taken_at=time.time())
        self._publisher = Publisher(self._snapshot)
        self._ended = threading.Event()
        self._server = serve(create_app(self._publisher, Server(), version="test", **app), "127.0.0.1", 0)
        self.url = self._server.url
        self._thread = threading.Thread(target=self._go_on, daemon=True)
        self._thread.start()

    def show(self, change: Callable[[Snapshot], Snapshot]) -> None:
        """From the next snapshot on."""
        self._snapshot = change(self._snapshot)

    def stop(self) -> None:
        """Ends it."""
        self._ended.set()
        self._thread.join()
        self._server.stop()

    def _go_on(self) -> None:
        number = self._snapshot.number
        while not self._ended.wait(1.0):
            number += 1
            self._publisher.publish(replace(self._snapshot, number=number, taken_at=time.time()))
