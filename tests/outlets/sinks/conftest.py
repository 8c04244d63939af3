"""A feed on a store of the test's own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from streameval.outlets.sinks import feed as module
from streameval.outlets.sinks.feed import Feed
from streameval.outlets.sinks.protocol import Sink
from streameval.results.snapshot import Snapshot, empty_snapshot
from streameval.store.outbox import Outbox


@pytest.fixture
def feeding(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[Sink], Any]]:
    """`feeding(sink)`: a feed on the test's store, and the list whose last snapshot it sees."""
    monkeypatch.setattr(module, "_LONGEST_BACKOFF", 0.05)
    monkeypatch.setattr(module, "AGAIN_SECONDS", 0.0)
    outboxes, feeds = [], []

    def begin(sink: Sink) -> tuple[Feed, list[Snapshot]]:
        outboxes.append(Outbox(tmp_path))
        seen = [empty_snapshot(0.0)]
        feed = Feed("it", "parquet", sink, outboxes[-1], lambda: seen[-1])
        feed.start()
        feeds.append(feed)
        return feed, seen

    yield begin
    for feed in feeds:
        feed.close(60.0)
    for outbox in outboxes:
        outbox.close()
