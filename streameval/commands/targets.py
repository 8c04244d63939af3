"""Arguments that name what a command writes."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click


class OutFile(click.Path):
    """A file that is written at the end of long work: its folder is checked before the work begins."""

    def __init__(self, *, remote: bool = True, only_file: bool = False) -> None:
        """`remote`: it may be in an object store. `only_file`: it is put in place as a whole, which would replace a
        device or a pipe.
        """
        super().__init__(path_type=Path, dir_okay=False)
        self._remote = remote
        self._only_file = only_file

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The path."""
        from streameval.sources.object_store import is_remote

        if is_remote(str(value)):
            return self._stored(str(value), param, ctx)
        path = Path(os.fsdecode(super().convert(value, param, ctx)))
        trouble = self._trouble(path)
        if trouble:
            self.fail(f"{path}: {trouble}", param, ctx)
        return path

    def _trouble(self, path: Path) -> str:
        """What would keep the file from being written, and the fix."""
        if os.path.exists(path):
            is_file = os.path.isfile(path)
            if self._only_file and not is_file:
                return "is a device or a pipe, and this can only be written to a file; name a file"
            if not self._only_file and (not is_file or os.path.islink(path)):  # is written to, not replaced
                return "" if os.access(path, os.W_OK) else "is not writable; name another file"
        place = Path(os.path.realpath(path)) if os.path.islink(path) else path
        if not os.path.isdir(place.parent):
            return f"the folder {place.parent} does not exist; create it first"
        if not os.access(place.parent, os.W_OK):
            return f"the folder {place.parent} is not writable; name a file in another one"
        try:
            os.lstat(f"{place}.partial")  # its name until it is complete
        except OSError as error:
            if error.errno == errno.ENAMETOOLONG:
                return "the name is too long; choose a shorter one"
        return ""

    def _stored(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> Path:
        from streameval.sources.object_store import address, need_bucket
        from streameval.sources.protocol import SourceError

        if not self._remote:
            self.fail(f"{address(value)}: is written on this machine only; name a file", param, ctx)
        try:
            need_bucket(value)
        except SourceError as error:
            self.fail(str(error), param, ctx)
        return Path(value)


class TrafficTarget(OutFile):
    """A file, or `kafka` (whatever file or folder has that name)."""

    def __init__(self) -> None:
        super().__init__(remote=False)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The path."""
        if str(value) == "kafka":
            return Path("kafka")
        from streameval.simulate.files import format_of

        path = super().convert(value, param, ctx)
        try:
            format_of(path)
        except ValueError as error:
            self.fail(str(error), param, ctx)
        return path


def write_report(report: Mapping[str, Any], path: Path) -> None:
    """Writes a report as JSON. Raises ClickException, and SourceError for an object store."""
    text = json.dumps(report, indent=1, allow_nan=False)
    from streameval.sources import object_store

    try:
        object_store.write(path, text + "\n")
    except OSError as error:
        reason = error.strerror or str(error)
        raise click.ClickException(
            f"report {path}: cannot be written: {reason}; make room for it, or name another file with --report"
        ) from None


def keep_apart(read: Mapping[str, Sequence[Path | None]], written: Mapping[str, str | Path | None]) -> None:
    """Raises UsageError if a file would be written that is also read, or is written as something else, too. The keys
    say which argument or setting names the files.
    """
    from streameval.sources.object_store import address

    taken = [(name, path) for name, paths in read.items() for path in paths if path]
    for name, path in written.items():
        if not path:
            continue
        for other, there in taken:
            if _are_one(path, there):
                raise click.UsageError(
                    f"{name} {address(path)} and {other} {address(there)} are the same file, whose contents would be lost; "
                    f"name another file for {name}"
                )
        taken.append((name, Path(path)))


def _are_one(one: str | Path, other: str | Path) -> bool:
    """Whether two paths lead to one file; several may write to one device or pipe."""
    from streameval.sources.object_store import address, is_remote

    if is_remote(one) or is_remote(other):
        return address(one) == address(other)
    try:
        return os.path.samefile(one, other) and os.path.isfile(one)
    except OSError:  # one of them does not exist yet
        return os.path.realpath(one) == os.path.realpath(other)
