"""The format of an event file, as set or by its name."""

from __future__ import annotations

from pathlib import Path

from streameval.sources import object_store
from streameval.sources.protocol import SourceError

_FORMATS = {".jsonl": "jsonl", ".ndjson": "jsonl", ".json": "jsonl", ".csv": "csv", ".tsv": "csv", ".parquet": "parquet", ".arrow": "arrow", ".feather": "arrow"}  # fmt: skip


def format_of_file(path: Path, asked: str) -> str:
    """Returns "jsonl", "csv", "parquet" or "arrow"; `asked`: the setting. Raises SourceError."""
    if object_store.size(path) == 0:
        raise SourceError(f"{object_store.address(path)}: is empty")
    if asked != "auto":
        return asked
    suffixes = [s.lower() for s in object_store.named(path).suffixes if s not in (".gz", ".zst")]
    found = _FORMATS.get(suffixes[-1]) if suffixes else None
    if found is None:
        raise SourceError(
            f'{path}: the format cannot be told from the name; set files.format to "jsonl", "csv", "parquet" or "arrow"'
        )
    return found
