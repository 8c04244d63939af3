"""Files on disk or in an object store, by their path: `s3://`, `gs://` and `abfs://` go through Arrow's file systems.

Credentials, region and endpoint are found as by the stores' own tools (environment, profile, the machine's role), or
given in the path: `s3://bucket/events.parquet?region=eu-west-1`, `?endpoint_override=localhost:9000&scheme=http`.
"""

from __future__ import annotations

import io
import os
import re
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO, cast

import pyarrow as pa
import pyarrow.fs

from streameval.sources.protocol import SourceError

# a `Path` has one slash where an address has two
_REMOTE = re.compile(r"^(s3|gs|gcs|abfs|abfss):/{1,2}(?=[^/])")
_WHO = re.compile(r"(?<=://)[^/@:]*:[^@]*@")  # a key and its secret
_BUFFER = 8 << 20  # bytes requested from a store at a time


def is_remote(path: str | Path) -> bool:
    """Whether it is an address in an object store."""
    return _REMOTE.match(str(path)) is not None


def address(path: str | Path) -> str:
    """Returns the path as people write it, without an address's connection options and credentials."""
    return _WHO.sub("", _REMOTE.sub(r"\1://", str(path)).partition("?")[0]) if is_remote(path) else str(path)


def named(path: str | Path) -> Path:
    """Returns the name that determines the format, without options after it."""
    return Path(address(path))


def size(path: str | Path) -> int:
    """Returns the size of a file in bytes. Raises SourceError if it is not a file."""
    if not is_remote(path):
        local = Path(path)
        if local.is_dir():
            raise SourceError(f"{path}: is a directory; name the files in it")
        if local.is_fifo():
            raise SourceError(f"{path}: is a pipe, and only files can be read; write it to a file first")
        if local.exists() and not local.is_file():
            raise SourceError(f"{path}: is a device or a socket, and only files can be read; name a file")
        if not local.is_file():
            raise SourceError(f"{path}: no such file")
        return local.stat().st_size
    store, inside = _store(path)
    try:
        info = store.get_file_info(inside)
    except (pa.ArrowException, OSError) as error:
        raise _unreachable(path, error) from None
    if info.type == pyarrow.fs.FileType.NotFound:
        raise SourceError(f"{address(path)}: no such file")
    if info.type != pyarrow.fs.FileType.File:
        raise SourceError(f"{address(path)}: is a directory; name the files in it")
    return int(info.size)


def opened(path: str | Path) -> BinaryIO:
    """Opens a file for reading. Raises SourceError, OSError."""
    if not is_remote(path):
        return open(path, "rb")
    store, inside = _store(path)
    return cast(BinaryIO, io.BufferedReader(cast(Any, store.open_input_file(inside)), _BUFFER))


def write(path: str | Path, text: str) -> None:
    """Writes a file completely or not at all; a device, a pipe or a link such as /dev/stdout is written to, not replaced.
    Raises SourceError, OSError.
    """
    if not is_remote(path):
        _write_here(Path(path), text)
        return
    store, inside = _store(path)
    try:
        with store.open_output_stream(inside) as stream:  # a store shows an object once it is complete
            stream.write(text.encode())
    except (pa.ArrowException, OSError) as error:
        raise _unreachable(path, error) from None


def need_bucket(path: str | Path) -> None:
    """Raises SourceError if an address cannot be right or its bucket does not exist; an unavailable store may come
    back.
    """
    try:
        store, inside = _opened(path)
        bucket = inside.partition("/")[0]
        missing = store.get_file_info(bucket).type == pyarrow.fs.FileType.NotFound
    except OSError:  # also if this user may write but not list
        return
    except (pa.ArrowException, ValueError) as error:
        raise _unreachable(path, error) from None
    if missing:
        raise SourceError(f"{address(path)}: bucket {bucket} does not exist; check the address, or create it")


def _write_here(path: Path, text: str) -> None:
    as_it_is = path.is_symlink() or (path.exists() and not path.is_file())
    partial = path if as_it_is else path.with_name(path.name + ".partial")
    try:
        partial.write_text(text, encoding="utf-8")
        if not as_it_is:
            os.replace(partial, path)
    except OSError as error:
        error.filename = str(path)  # the error of a full disk has none
        if not as_it_is:
            with suppress(OSError):
                partial.unlink(missing_ok=True)
        raise


def _store(path: str | Path) -> tuple[pyarrow.fs.FileSystem, str]:
    try:
        return _opened(path)
    except (pa.ArrowException, OSError, ValueError) as error:
        raise _unreachable(path, error) from None


def _opened(path: str | Path) -> tuple[pyarrow.fs.FileSystem, str]:
    store, inside = pyarrow.fs.FileSystem.from_uri(_REMOTE.sub(r"\1://", str(path)))
    return store, str(inside)


def _unreachable(path: str | Path, error: Exception) -> SourceError:
    return SourceError(refused(path, error))


def refused(path: str | Path, error: Exception) -> str:
    """Returns a store's error, in one line with what to do, without credentials, which it may have quoted."""
    said = " ".join(_WHO.sub("", str(error)).split())[:300]
    return f"{address(path)}: {said}; check the address, credentials and region"
