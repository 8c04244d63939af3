"""What counters have shown, so that none goes down where nothing was lost: PromQL reads any decrease as a restart, and counts
the whole sum again.

After a kill a partition goes on from its last checkpoint, with fewer events than the last scrape showed, and reads the rest
again. So what was shown is kept in the store, and lower counts wait until they have grown past it. Once the monitor has been
caught up for a minute and they are still lower, state was really lost, and the decrease is passed on.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Hashable
from contextlib import suppress
from pathlib import Path

from streameval.results.snapshot import Snapshot

log = logging.getLogger(__name__)

_Counts = tuple[float, ...]
_Key = tuple[Hashable, ...]
READ_AGAIN_SECONDS = 60.0  # caught up for so long, everything since the last checkpoint has been read again


class HeldCounts:
    """Of one process. Used by one scrape at a time."""

    def __init__(self, path: Path | None) -> None:
        """`path`: where they outlive the process; None: nowhere."""
        self._path = path
        self._shown: dict[_Key, _Counts] = {}  # at the last scrape
        self._now: dict[_Key, _Counts] = {}
        self._before = {} if path is None else _read(path)  # by an earlier process, by the `repr` of the key
        self._catching_up = True
        self._caught_up_at: float | None = None

    def begin(self, snapshot: Snapshot) -> None:
        """A scrape of this snapshot begins."""
        if not snapshot.ready.get("caught_up", True):
            self._caught_up_at = None
        elif self._caught_up_at is None:
            self._caught_up_at = snapshot.taken_at
        at = self._caught_up_at
        self._catching_up = at is None or (bool(snapshot.ready) and snapshot.taken_at < at + READ_AGAIN_SECONDS)
        if not self._catching_up:
            self._before.clear()

    def hold(self, key: _Key, counts: _Counts) -> _Counts:
        """The counts, none of them below what was shown before.

        Besides, a corrected label can lower a sum of losses, which then waits, too. The first count is one that no correction
        lowers.
        """
        before = self._shown.get(key) or self._before.pop(repr(key), None)
        if before is not None and (self._catching_up or counts[0] >= before[0]):
            counts = tuple(max(pair) for pair in zip(counts, before, strict=True))
        self._now[key] = counts
        return counts

    def end(self) -> None:
        """The scrape is over: it has been shown."""
        self._shown, self._now = self._now, {}
        if self._path is None or not self._shown:
            return
        text = json.dumps({**self._before, **{repr(key): counts for key, counts in self._shown.items()}})
        new = self._path.with_suffix(".new")
        try:
            new.write_text(text)
            os.replace(new, self._path)
        except OSError as error:
            log.warning("%s: %s; after a kill counters may go down", self._path, error.strerror)


def _read(path: Path) -> dict[str, _Counts]:
    with suppress(OSError, ValueError, TypeError, AttributeError):
        return {str(key): tuple(map(float, counts)) for key, counts in json.loads(path.read_text()).items()}
    return {}
