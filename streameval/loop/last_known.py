"""What readers see while what this process had counted is void: all its partitions were taken from it without notice, as when
the brokers are away for longer than the group's session. It is the best that is known until the partitions are assigned again,
restored, and have been read as far as before.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from streameval.results.snapshot import Snapshot, Surroundings
from streameval.sources.protocol import Place

_LONGEST = 60.0  # seconds that reading may take; a topic that was recreated never comes as far as it was
_AROUND = tuple(name for name in Surroundings.__dataclass_fields__ if name not in ("lag", "whole", "ready"))


class LastKnown:
    """The last results before, as of then."""

    def __init__(self) -> None:
        self._kept: Snapshot | None = None
        self._whole_at: float | None = None  # s: when all partitions were there again

    def shown(self, before: Snapshot, now: Snapshot, *, is_out: bool) -> Snapshot:
        """What to publish instead of `now`, maybe itself. `before`: published last; `is_out`: see `Source.is_out`."""
        if is_out:
            self._whole_at = None
            if self._kept is None and before.partitions:
                self._kept = before
        elif self._kept is not None and self._is_as_far(self._kept, now):
            self._kept = None
        if self._kept is None:
            return now
        around = {name: getattr(now, name) for name in _AROUND}
        ready = {**now.ready, "caught_up": False}
        return replace(self._kept, number=now.number, stands_still=True, whole=False, ready=ready, **around)

    def _is_as_far(self, kept: Snapshot, now: Snapshot) -> bool:
        if not now.whole:
            return False
        if self._whole_at is None:
            self._whole_at = now.taken_at
        then, offsets = _offsets(kept), _offsets(now)
        has_read = all(offset >= then.get(place, 0) for place, offset in offsets.items())
        return has_read or now.taken_at >= self._whole_at + _LONGEST


def _offsets(snapshot: Snapshot) -> Mapping[Place, int]:
    return {place: offset for state in snapshot.partitions for place, offset in state.offsets.items()}
