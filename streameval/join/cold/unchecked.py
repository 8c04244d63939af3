"""Files that were mapped at a restart, and whose bytes nobody has compared with their checksums yet.

That is done in the background, one file after another. A file whose rows or ids are needed earlier is compared at once: a
changed bit would correct another impression's label, or end the process, and the next one, too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from streameval.join.cold.index import Index
from streameval.join.cold.segment import RowsFile

OnDisk = RowsFile | Index


class Unchecked:
    """The files of one partition. False: there are none."""

    def __init__(self) -> None:
        self._files: dict[OnDisk, None] = {}  # the last one is the next
        self._check: Callable[[OnDisk], None] | None = None  # None, as it holds the joiner, once there are no files

    def put(self, files: Iterable[OnDisk], check: Callable[[OnDisk], None]) -> None:
        """Adds files; `check` compares one, and has the joiner put it aside if it is damaged."""
        self._files |= dict.fromkeys(files)
        self._check = check if self._files else None

    def __len__(self) -> int:
        return len(self._files)

    def __contains__(self, file: OnDisk) -> bool:
        return file in self._files

    @property
    def next(self) -> OnDisk | None:
        """The one to be compared next in the background; None: there are none."""
        return next(reversed(self._files), None)

    def remove(self, file: OnDisk) -> None:
        """A file has been compared."""
        self._files.pop(file, None)
        if not self._files:
            self._check = None

    def check(self, files: Iterable[OnDisk]) -> None:
        """Compares those of some files that have not been compared."""
        for file in [file for file in files if file in self._files]:
            if self._check is not None:
                self._check(file)
            self.remove(file)
