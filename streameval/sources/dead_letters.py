"""Dead letters in a file: one JSON object per line, with the complete original bytes."""

from __future__ import annotations

import base64
import errno
import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

import msgspec

from streameval.sources.protocol import DeadLetter, SourceError


class JsonlDeadLetters:
    """Appends to `path`, which is created with the first letter; "" keeps none (they are still counted).

    `value` contains the original text; bytes that are not UTF-8 are in `value_base64` instead.
    """

    def __init__(self, path: str | Path) -> None:
        self._path = str(path)
        self._file: BinaryIO | None = None
        self._encode = msgspec.json.Encoder().encode

    def write(self, letters: Sequence[DeadLetter]) -> None:
        """Raises SourceError if the file cannot be written."""
        if not self._path or not letters:
            return
        try:
            if self._file is None:
                self._file = open(self._path, "ab")  # noqa: SIM115  (kept open until close)
            self._file.write(b"".join(self._encode(_as_json(letter)) + b"\n" for letter in letters))
        except OSError as error:
            raise self._unwritable(error) from None

    def flush(self, timeout: float = 0.0) -> None:
        """Returns once every letter is on disk, however long that takes."""
        file = self._file
        if file is not None:
            try:
                file.flush()
                os.fsync(file.fileno())
            except OSError as error:
                if error.errno != errno.EINVAL:  # a pipe or a device, such as /dev/stdout: nothing of it is on a disk
                    raise self._unwritable(error) from None

    def close(self) -> None:
        """Flushes and closes, even a file that can no longer be written (it then raises SourceError)."""
        if self._file is not None:
            try:
                self.flush()
            finally:
                with suppress(OSError):  # flush has raised already
                    self._file.close()
                self._file = None

    def _unwritable(self, error: OSError) -> SourceError:
        return SourceError(
            f"dead letters {self._path}: cannot be written: {error}; set files.dead_letters to a writable path, "
            'or to "" to keep none'
        )


def _as_json(letter: DeadLetter) -> dict[str, object]:
    out: dict[str, object] = {
        "reason": letter.reason,
        "field": letter.field,
        "message": letter.message.encode("utf-8", "replace").decode(),
        "topic": letter.topic.encode("utf-8", "replace").decode(),  # a path may hold any bytes
        "partition": letter.partition,
        "offset": letter.offset,
    }
    try:
        out["value"] = letter.value.decode("utf-8")
    except UnicodeDecodeError:
        out["value"] = None
        out["value_base64"] = base64.b64encode(letter.value).decode()
    return out
