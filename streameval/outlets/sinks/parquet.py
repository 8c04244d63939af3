"""Parquet files: `results/date=2024-05-01/<pane>.parquet`, `verdicts/date=.../<time>-<key>.parquet`.

File names are derived from the content, so writing a file again replaces it. On disk files appear atomically (written
under a temporary name, fsynced, renamed); an object store shows an object once it is uploaded.
"""

from __future__ import annotations

import contextlib
import io
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq

from streameval.outlets.sinks.protocol import Sink, SinkError, time_of
from streameval.outlets.sinks.rows import RESULT_TIMES, VERDICT_KEYS, VERDICT_TIMES, SinkPane, SinkVerdict
from streameval.settings.outlets import ParquetSink
from streameval.settings.tree import ConfigError
from streameval.sources import object_store

_WHOLE = ("impressions", "clicks", "corrected")
_NUMBERS = ("log_e_worse", "log_e_not_worse")
_TIME = pa.timestamp("ms", tz="UTC")


class ParquetFiles(Sink):
    """See the module."""

    def __init__(self, settings: ParquetSink) -> None:
        """Raises ConfigError when the address leads nowhere."""
        self._to = settings.to
        self._put = _to_folder(Path(settings.to)) if "://" not in settings.to else _to_store(settings.to)

    def write(self, panes: Sequence[SinkPane], verdicts: Sequence[SinkVerdict]) -> None:
        """Writes one file for each."""
        try:
            for pane in panes:
                when = time_of(pane.start)
                name = f"results/date={when:%Y-%m-%d}/{when:%Y%m%dT%H%M%S}.{pane.start % 1000:03}Z.parquet"
                self._put(name, _encoded(pane.rows, RESULT_TIMES))
            for one in verdicts:
                when = time_of(one.row["at"])
                name = f"verdicts/date={when:%Y-%m-%d}/{when:%Y%m%dT%H%M%S}Z-{one.key}.parquet"
                self._put(name, _encoded([one.row], VERDICT_TIMES))
        except (OSError, pa.ArrowException) as error:
            remote = object_store.is_remote(self._to)
            said = object_store.refused(self._to, error) if remote else f"{type(error).__name__}: {error}"
            raise SinkError(said) from error

    def close(self) -> None:
        """There is nothing to close."""


def _encoded(rows: Sequence[Mapping[str, Any]], times: tuple[str, ...]) -> bytes:
    names = [name for name in VERDICT_KEYS if name in rows[0]] if times == VERDICT_TIMES else list(rows[0])
    for row in rows:
        names += [name for name in row if name not in names]
    arrays = [pa.array([row.get(name) for row in rows], _type(name, times)) for name in names]
    out = io.BytesIO()
    pq.write_table(pa.table(arrays, names=names), out, compression="zstd")
    return out.getvalue()


def _type(name: str, times: tuple[str, ...]) -> Any:
    if name in times:
        return _TIME
    if name in _WHOLE:
        return pa.int64()
    if times == VERDICT_TIMES and name not in _NUMBERS:
        return pa.string()
    return pa.string() if name in ("model", "version", "source", "objective") else pa.float64()


def _to_folder(folder: Path) -> Callable[[str, bytes], None]:
    def put(name: str, data: bytes) -> None:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = path.with_name(f".{path.name}.partial")  # one writer: its own name is not needed
        with partial.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(partial, path)
        place = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(place)  # before the outbox says that it is there
        finally:
            os.close(place)

    return put


def _to_store(address: str) -> Callable[[str, bytes], None]:
    """Opened at the first write if it cannot be now: an unavailable store does not keep a monitor from starting."""
    opened: list[tuple[Any, str]] = []
    with contextlib.suppress(OSError):
        opened.append(_file_system(address))

    def put(name: str, data: bytes) -> None:
        if not opened:
            opened.append(_file_system(address))
        files, root = opened[0]
        path = f"{root.rstrip('/')}/{name}"
        files.create_dir(path.rpartition("/")[0], recursive=True)
        with files.open_output_stream(path) as stream:
            stream.write(data)

    return put


def _file_system(address: str) -> tuple[Any, str]:
    """One of pyarrow's own, else of fsspec's, if that is installed; and the path in it. Raises ConfigError, OSError."""
    try:
        found: tuple[Any, str] = pafs.FileSystem.from_uri(address)
        return found
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:  # the latter of schemes that it does not know
        why = error
    if isinstance(why, pa.ArrowInvalid) and address.startswith(
        "s3://"
    ):  # the scheme is known, and something in the address is wrong
        raise ConfigError(f"sinks: {object_store.refused(address, why)}")
    try:
        import fsspec
    except ImportError:
        raise ConfigError(
            f"sinks: {address}: pyarrow has no file system for it ({why}); install fsspec and the package for it"
        ) from None
    try:
        files, root = fsspec.core.url_to_fs(address)
    except (ValueError, ImportError) as problem:
        raise ConfigError(f"sinks: {address}: {problem}") from None
    return pafs.PyFileSystem(pafs.FSSpecHandler(files)), root
