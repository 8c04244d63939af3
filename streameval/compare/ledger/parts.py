"""Sums by part of the traffic: by pane until its look, then by segment, like the ledger's rows (see `ledger`)."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Mapping, MutableMapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streameval.compare.ledger.exposure import EXPOSED
from streameval.compare.ledger.numbering import LEVELS, PAIRS, SERVED, Numbering, TrafficPart
from streameval.compare.ledger.packed import ByKind, PackedParts, restored, saved
from streameval.compare.ledger.sums import LEVEL_WIDTH, PART_WIDTH, SERVED_WIDTH, WIDTH, Matrix

Value = tuple[int, int]  # (dimension, value) of a part
ServedSums = tuple[list[Value], dict[int, Matrix]]  # K values, and their sums [K, width] by segment
_WIDTHS = (PART_WIDTH, SERVED_WIDTH, LEVEL_WIDTH)
_EMPTY: ByKind = (
    np.zeros((0, PART_WIDTH), np.int64),
    np.zeros((0, SERVED_WIDTH), np.int64),
    np.zeros((0, LEVEL_WIDTH), np.int64),
)


class PartSums:
    """The sums of one partition."""

    def __init__(self, numbers: Numbering) -> None:
        self._numbers = numbers
        self._waiting: tuple[dict[int, ByKind], PackedParts] = ({}, PackedParts())  # by pane, late ones separately
        self._segments: dict[int, ByKind] = {}  # by first pane

    def of_pane(self, pane: int, late: int) -> ByKind:
        """Returns the sums of a pane, with room for every part, to be added to."""
        return self._room(self._waiting[late], pane)

    def advance(self, pane: int, late: int, segment: int) -> None:
        """Adds a waiting pane to its segment."""
        gained = self._waiting[late].pop(pane, None)
        if gained is not None:
            self._add(self._segments, segment, gained)

    # -- reading -------------------------------------------------------------------------------------------------

    def totals(self, kind: int, start: int) -> dict[TrafficPart, NDArray[np.int64]]:
        """Returns the sums of one kind over the segments from pane `start` on."""
        out: dict[TrafficPart, NDArray[np.int64]] = {}
        for number in sorted(self._segments):
            if number < start:
                continue
            for key, sums in zip(self._numbers.parts[kind], self._segments[number][kind], strict=False):
                if key in out:
                    out[key] = out[key] + sums
                elif sums.any():
                    out[key] = sums.copy()
        return out

    def of_pair(self, served: int, other: int, segments: Container[int]) -> tuple[list[Value], Matrix]:
        """Returns (values, sums int64[K, PART_WIDTH]) of a pair, over some segments, by first pane."""
        values, by_segment = self._of(PAIRS, served, other, segments)
        out = np.zeros((len(values), PART_WIDTH), np.int64)
        for _, sums in by_segment:
            out += sums
        return values, out

    def of_served(self, served: int, segments: Container[int]) -> ServedSums:
        """Returns (values, int64[K, SERVED_WIDTH] by segment) for what a version served in some of them."""
        values, by_segment = self._of(SERVED, served, -1, segments)
        return values, dict(by_segment)

    def levels(self, served: int, segments: Container[int]) -> ServedSums:
        """Returns (values, int64[K, LEVEL_WIDTH] by segment) for what a version served in some of them, by bucket of its
        pClick.
        """
        values, by_segment = self._of(LEVELS, served, -1, segments)
        return values, dict(by_segment)

    def _of(
        self, kind: int, served: int, other: int, segments: Container[int]
    ) -> tuple[list[Value], Iterator[tuple[int, Matrix]]]:
        names = self._numbers.parts[kind]
        at = self._numbers.parts_of(kind, (served, other))

        def by_segment() -> Iterator[tuple[int, Matrix]]:
            for number, parts in self._segments.items():
                if number in segments:
                    have = int(np.searchsorted(at, len(parts[kind])))
                    out = np.zeros((at.size, _WIDTHS[kind]), np.int64)
                    out[:have] = parts[kind][at[:have]]
                    yield number, out

        return [names[i][2:] for i in at.tolist()], by_segment()

    @property
    def nbytes(self) -> int:
        """Size of the sums in bytes."""
        on_time, late = self._waiting
        return late.nbytes + sum(
            matrix.nbytes for kept in (on_time, self._segments) for parts in kept.values() for matrix in parts
        )

    # -- forgetting ----------------------------------------------------------------------------------------------

    def forget_before(self, segment: int) -> None:
        """Drops the segments before one."""
        for number in [n for n in self._segments if n < segment]:
            del self._segments[number]

    def clear(self, gone: Sequence[Sequence[int]]) -> None:
        """Sets parts to 0, given by kind."""
        for kept in self._kept():
            for parts in kept.values():
                for matrix, some in zip(parts, gone, strict=True):
                    matrix[[i for i in some if i < len(matrix)]] = 0

    def keep(self, parts: Sequence[Sequence[int]]) -> None:
        """Renumbers these parts, by kind, from 0 and drops all others."""
        for kept in self._kept():
            for number, matrices in kept.items():
                a, b, c = (
                    matrix[[i for i in some if i < len(matrix)]] for matrix, some in zip(matrices, parts, strict=True)
                )
                kept[number] = a, b, c

    # -- checkpoints ---------------------------------------------------------------------------------------------

    def state(self) -> dict[str, Any]:
        """Returns everything, for `restore`."""
        return {
            "waiting_parts": [
                [late, pane, *map(saved, self._waiting[late][pane])]
                for late in (0, 1)
                for pane in sorted(self._waiting[late])
            ],
            "parts": [[pane, *(matrix.copy() for matrix in parts)] for pane, parts in sorted(self._segments.items())],
        }

    def restore(self, state: Mapping[str, Any], look_of: Callable[[int], int]) -> None:
        """Restores what `state` returned. `look_of`: see `LookPanes.of`; older checkpoints have every pane."""
        for late, pane, *parts in state["waiting_parts"]:
            a, b, c = map(restored, parts)
            kept, look = self._waiting[late], look_of(pane)
            if look in kept:
                self._add(kept, look, (a, b, c))
            else:
                kept[look] = a, b, c
        self._segments = {pane: (a.copy(), b.copy(), c.copy()) for pane, a, b, c in state["parts"]}

    def _kept(self) -> tuple[MutableMapping[int, ByKind], ...]:
        return (*self._waiting, self._segments)

    def _add(self, kept: MutableMapping[int, ByKind], number: int, gained: ByKind) -> None:
        for whole, some in zip(self._room(kept, number), gained, strict=True):
            whole[: len(some)] += some

    def _room(self, kept: MutableMapping[int, ByKind], number: int) -> ByKind:
        n, m, k = map(len, self._numbers.parts)
        have = kept.get(number)
        if have is None:
            have = kept[number] = _EMPTY
        if (len(have[0]), len(have[1]), len(have[2])) != (n, m, k):
            have = kept[number] = grown(have[0], n), grown(have[1], m), grown(have[2], k)
        return have


def fitted(matrix: Matrix, width: int) -> Matrix:
    """Returns a copy of rows in the current width: the user cap, or sums by propensity, may have been switched on or
    off.
    """
    out = np.zeros((len(matrix), width), np.int64)
    both = WIDTH * min(width // WIDTH, matrix.shape[1] // WIDTH)
    out[:, :both] = matrix[:, :both]
    if width % WIDTH and matrix.shape[1] % WIDTH:
        out[:, -EXPOSED:] = matrix[:, -EXPOSED:]
    return out


def grown(matrix: Matrix, rows: int) -> Matrix:
    """Returns the matrix, extended by rows of 0 to at least `rows` rows."""
    if len(matrix) >= rows:
        return matrix
    if not len(matrix):
        return np.zeros((rows, matrix.shape[1]), np.int64)
    return np.concatenate((matrix, np.zeros((rows - len(matrix), matrix.shape[1]), np.int64)))
