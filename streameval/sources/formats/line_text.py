"""Lines as one text with the start and end of each: for kernels, without an object per line."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import cast, overload

import numpy as np
from numpy.typing import NDArray

from streameval.events.words64 import PADDING


@dataclass(frozen=True, slots=True, eq=False)
class Lines(Sequence[bytes]):
    """n lines, in order, with anything between them."""

    text: bytes
    bounds: NDArray[np.int64]  # [n, 2]

    @staticmethod
    def of(text: bytes, end: int) -> Lines:
        """Returns the lines separated by line feeds in the first `end` bytes, without their ends: LF or CR LF."""
        data = np.frombuffer(text, np.uint8)[:end]
        ends = np.append(np.flatnonzero(data == 10), end)
        bounds = np.empty((ends.size, 2), np.int64)
        bounds[0, 0], bounds[1:, 0], bounds[:, 1] = 0, ends[:-1] + 1, ends
        if b"\r" in text:
            some = np.flatnonzero(bounds[:, 1] > bounds[:, 0])
            bounds[some, 1] -= data[bounds[some, 1] - 1] == 13
        return Lines(text, bounds)

    @staticmethod
    def one(text: bytes) -> Lines:
        """Returns a single line."""
        return Lines(text, np.array([[0, len(text)]]))

    @staticmethod
    def packed(values: Sequence[bytes | None]) -> Lines | None:
        """Returns values of single objects, which may contain line ends, as lines; None if one is missing."""
        try:
            text = b"".join(cast(Sequence[bytes], values))
        except TypeError:
            return None
        sizes = np.fromiter(map(len, cast(Sequence[bytes], values)), np.int64, len(values))
        ends = np.cumsum(sizes)
        return Lines(text, np.column_stack((ends - sizes, ends)))

    @staticmethod
    def joined(parts: Sequence[Lines]) -> Lines:
        """Returns the lines of several texts as those of a single one, followed by `words64.PADDING`."""
        texts: list[bytes | memoryview] = []
        bounds, size = [], 0
        for part in parts:
            if len(part):
                first, last = int(part.bounds[0, 0]), int(part.bounds[-1, 1])
                texts.append(memoryview(part.text)[first:last])
                bounds.append(part.bounds + (size - first))
                size += last - first
        return Lines(b"".join([*texts, PADDING]), np.concatenate(bounds) if bounds else np.empty((0, 2), np.int64))

    def __len__(self) -> int:
        return len(self.bounds)

    @overload
    def __getitem__(self, index: int) -> bytes: ...

    @overload
    def __getitem__(self, index: slice) -> Lines: ...

    def __getitem__(self, index: int | slice) -> bytes | Lines:
        if isinstance(index, slice):
            return Lines(self.text, self.bounds[index])
        begin, end = self.bounds[index].tolist()
        return self.text[begin:end]

    def take(self, places: NDArray[np.int64]) -> Lines:
        """Returns some of the lines, in order."""
        return Lines(self.text, self.bounds[places])

    def __iter__(self) -> Iterator[bytes]:
        return (self.text[begin:end] for begin, end in self.bounds.tolist())

    @property
    def sizes(self) -> NDArray[np.int64]:
        """Size of each line in bytes."""
        return self.bounds[:, 1] - self.bounds[:, 0]

    def blank(self) -> NDArray[np.bool_]:
        """Returns which lines are empty, or only white space, bool[n]."""
        out = self.sizes == 0
        # white space begins with no other byte than these, and few lines begin with one
        begins = np.frombuffer(self.text, np.uint8)[np.where(out, 0, self.bounds[:, 0])] if len(self.text) else out
        for k in np.flatnonzero(~out & (begins <= 32)).tolist():
            out[k] = not self[k].strip()
        return out
