"""Features in the forms of online models: hashed columns, and dicts for River.

A string is one-hot (`name=value`, weight 1), a boolean or number keeps its value under its name, a list of strings is
one `name=value` each; null is absent.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from streameval.events.batch import Features
from streameval.events.hashing import hash_strings


def from_objects(rows: Sequence[dict[str, Any] | None], want_dicts: bool) -> tuple[Features, dict[int, str]]:
    """Returns (features of n rows, message by bad row) from decoded JSON objects."""
    names: list[str] = []
    values: list[float] = []
    ends = [0]
    dicts: list[dict[str, float]] = []
    problems: dict[int, str] = {}
    add_name, add_value, end_row = names.append, values.append, ends.append
    for row, features in enumerate(rows):
        begin = len(names)
        if features:
            for name, value in features.items():
                kind = type(value)
                if kind is str:
                    add_name(f"{name}={value}")
                    add_value(1.0)
                elif kind is float or kind is int or kind is bool:
                    add_name(name)
                    try:
                        add_value(float(value))
                    except OverflowError:
                        add_value(math.inf)
                    if not math.isfinite(values[-1]):
                        problems[row] = f'features["{name[:50]}"]: must be a finite number'
                elif kind is list and all(type(v) is str for v in value):
                    for text in value:
                        add_name(f"{name}={text}")
                        add_value(1.0)
                elif value is not None:
                    problems[row] = (
                        f'features["{name[:50]}"] is {kind.__name__}: must be a string, a number, a boolean or a list of strings'
                    )
        end_row(len(names))
        if want_dicts:
            dicts.append(dict(zip(names[begin:], values[begin:], strict=True)))
    out = Features(
        np.array(ends, np.int64),
        hash_strings(names),
        np.array(values, np.float64),
        tuple(dicts) if want_dicts else None,
    )
    return out, problems


def from_columns(columns: Sequence[tuple[str, pa.Array]], n: int, want_dicts: bool) -> Features:
    """Returns the features of n rows from one typed Arrow column per feature."""
    parts: list[tuple[NDArray[np.int64], NDArray[np.uint64], NDArray[np.float64]]] = []
    for name, column in columns:
        rows, texts, value = _column(name, column)
        index = texts if isinstance(texts, np.ndarray) else hash_strings(texts)
        parts.append((rows, index, value))
    if not parts:
        return Features(np.zeros(n + 1, np.int64), np.empty(0, np.uint64), np.empty(0), _dicts(columns, n, want_dicts))
    row = np.concatenate([p[0] for p in parts])
    order = np.argsort(row, kind="stable")
    indptr = np.concatenate((np.zeros(1, np.int64), np.cumsum(np.bincount(row, minlength=n))))
    return Features(
        indptr,
        np.concatenate([p[1] for p in parts])[order],
        np.concatenate([p[2] for p in parts])[order],
        _dicts(columns, n, want_dicts),
    )


def _column(name: str, column: pa.Array) -> tuple[NDArray[np.int64], NDArray[np.uint64], NDArray[np.float64]]:
    """Returns (rows, hashes, values) of one column's entries that are not null."""
    on = np.flatnonzero(column.is_valid().to_numpy(zero_copy_only=False)).astype(np.int64)
    kind = column.type
    if pa.types.is_dictionary(kind):
        hashes = _one_hot(name, column.dictionary.to_pylist())
        codes = column.indices.take(pa.array(on)).to_numpy(zero_copy_only=False).astype(np.int64)
        return on, hashes[codes], np.ones(on.size)
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        encoded = column.take(pa.array(on)).dictionary_encode()
        return _dictionary(name, on, encoded)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        lengths = column.value_lengths().take(pa.array(on)).to_numpy(zero_copy_only=False).astype(np.int64)
        flat = column.flatten()
        texts = [str(v) for v in flat.to_pylist()]
        return np.repeat(on, lengths), _one_hot(name, texts), np.ones(len(texts))
    numbers = column.cast(pa.float64(), safe=False).take(pa.array(on)).to_numpy(zero_copy_only=False)
    finite = np.isfinite(numbers)
    return on[finite], np.full(int(finite.sum()), hash_strings([name])[0], np.uint64), numbers[finite]


def _dictionary(
    name: str, rows: NDArray[np.int64], encoded: pa.DictionaryArray
) -> tuple[NDArray[np.int64], NDArray[np.uint64], NDArray[np.float64]]:
    hashes = _one_hot(name, encoded.dictionary.to_pylist())
    if not rows.size:
        return rows, hashes[:0], np.empty(0)
    return rows, hashes[encoded.indices.to_numpy().astype(np.int64)], np.ones(rows.size)


def _one_hot(name: str, values: Sequence[str]) -> NDArray[np.uint64]:
    return hash_strings([f"{name}={value}" for value in values])


def _dicts(columns: Sequence[tuple[str, pa.Array]], n: int, want: bool) -> tuple[dict[str, float], ...] | None:
    if not want:
        return None
    out: list[dict[str, float]] = [{} for _ in range(n)]
    for name, column in columns:
        for row, value in zip(out, column.to_pylist(), strict=True):
            if value is None:
                continue
            if isinstance(value, str):
                row[f"{name}={value}"] = 1.0
            elif isinstance(value, list):
                row.update({f"{name}={v}": 1.0 for v in value})
            elif math.isfinite(value):
                row[name] = float(value)
    return tuple(out)
