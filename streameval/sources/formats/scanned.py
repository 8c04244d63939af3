"""Inputs and outputs of the single-pass message kernels, whatever the format, and the raw columns built from them."""

from __future__ import annotations

from typing import Any, NamedTuple

import numba
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from streameval.sources.formats.event_layout import HAS_FEATURES, HAS_TS, HASHES, LENGTHS, TS, EventLayout
from streameval.sources.formats.feature_columns import FeatureColumns
from streameval.sources.formats.pool import Pool
from streameval.sources.formats.raw import ByVersion, RawEvents
from streameval.sources.formats.texts import Ids, Words

VERSIONS_AT_MOST = 256  # versions that one object may name


class Messages(NamedTuple):
    """n messages, one after the other."""

    data: NDArray[np.uint8]
    bounds: NDArray[np.int64]  # [n, 2]
    hard: NDArray[np.bool_]  # those not readable by the kernel, which adds to them
    ascii_only: bool  # the bytes are not valid UTF-8 (JSON)
    features: bool  # whether features are needed
    spans: bool  # whether positions of ids are needed


class ScannedColumns(NamedTuple):
    """The kernel's output."""

    whole: NDArray[np.int64]  # see `EventLayout`; [., n]
    real: NDArray[np.float64]  # [numbers, n]; NaN: absent
    versions: NDArray[np.int64]  # [by version, 2, k]: message, and code of the version
    version_numbers: NDArray[np.float64]  # [by version, k]
    used: NDArray[np.int64]  # [by version]: used part of the k

    @staticmethod
    def of(layout: EventLayout, messages: Messages, shortest: int) -> ScannedColumns:
        """Returns columns for messages in which the number of a version has at least `shortest` bytes; pages never
        written to take no memory.
        """
        n, room = len(messages.bounds), messages.data.size // shortest + 1
        whole = np.zeros((layout.spans + 2 * len(layout.ids) * messages.spans, n), np.int64)
        whole[layout.codes : layout.spans] = -1
        by = len(layout.by_version)
        real = np.full((len(layout.numbers), n), np.nan)
        return ScannedColumns(
            whole, real, np.empty((by, 2, room), np.int64), np.empty((by, room)), np.zeros(by, np.int64)
        )


@numba.njit(inline="always")
def give_back(row: int, codes: int, end: int, whole: NDArray[np.int64], real: NDArray[np.float64]) -> None:
    """Clears a row of `ScannedColumns`; rows [codes, end) of `whole` are codes."""
    whole[:codes, row] = 0
    whole[codes:end, row] = -1
    real[:, row] = np.nan


def raw_events(
    text: bytes,
    kind: NDArray[np.int8],
    layout: EventLayout,
    found: ScannedColumns,
    pool: Pool,
    entries: FeatureColumns,
    *,
    hashed: bool,
    names: bool,
) -> RawEvents:
    """Returns what a kernel has found in a text; rows that it left are empty. `hashed`: features are needed, `names`:
    ids as text.
    """
    whole = found.whole
    hashes, codes = whole[HASHES : layout.codes].view(np.uint64), whole[layout.codes : layout.spans]
    columns: dict[str, Any] = {}
    for slot, name in enumerate(layout.ids):
        at = layout.spans + 2 * slot
        columns[name] = Ids(hashes[slot], _texts(text, whole[at : at + 2].T) if names else None)
    every = [pool.column(column, number, text) for number, column in enumerate(codes)]
    columns |= zip(layout.words, every, strict=False)
    for slot, field in enumerate(layout.numbers):
        column = found.real[slot]
        columns[field.name] = np.nan_to_num(column, nan=-1.0).astype(np.int8) if field.type == "label" else column
    by_version = {}
    for slot, name in enumerate(layout.by_version):
        used = int(found.used[slot])
        message, version = found.versions[slot, :, :used]
        words = pool.column(version, len(codes) + slot, text)
        by_version[name] = ByVersion(message, words, found.version_numbers[slot, :used])
    features = None
    if hashed:
        features = entries.features(np.concatenate((np.zeros(1, np.int64), np.cumsum(whole[LENGTHS]))))
    has_ts, has_features = whole[HAS_TS] > 0, whole[HAS_FEATURES] > 0
    slices: list[pa.Array | Words] = [*every[len(layout.words) :]]
    return RawEvents(kind, whole[TS], has_ts, columns, by_version, slices, has_features, features)


def _texts(text: bytes, spans: NDArray[np.int64]) -> pa.Array:
    return pa.array([text[a:b].decode() for a, b in spans.tolist()], pa.string())
