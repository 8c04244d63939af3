"""Columns of text as the decoder needs them: ids as hashes, repeated words (versions, slice values) as codes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numba
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from streameval.events.hashing import hash_strings


@dataclass(frozen=True, slots=True)
class Ids:
    """n ids. `texts`: as they were written, null or "" if there is none; None: not needed."""

    hashes: NDArray[np.uint64]  # 0: none
    texts: pa.Array | None

    @staticmethod
    def of(column: pa.Array) -> Ids:
        """Returns the ids of an Arrow column of strings."""
        blank = column
        if column.null_count < len(column):
            blank = pc.if_else(pc.equal(column, ""), pa.scalar(None, column.type), column)
        return Ids(hash_strings(blank), column)

    @staticmethod
    def concat(parts: Sequence[Ids]) -> Ids:
        """Joins several columns; with texts if every part has them."""
        texts = [one.texts.cast(pa.string()) for one in parts if one.texts is not None]
        whole = pa.concat_arrays(texts) if len(texts) == len(parts) else None
        return Ids(np.concatenate([one.hashes for one in parts]), whole)

    def take(self, rows: NDArray[np.int64]) -> Ids:
        """Returns the ids of some rows."""
        return Ids(self.hashes[rows], None if self.texts is None else self.texts.take(pa.array(rows)))

    def written(self, rows: NDArray[np.int64]) -> NDArray[np.object_]:
        """Returns some of the ids as text."""
        assert self.texts is not None, "ids that are kept as text come with it"
        column = self.texts.take(pa.array(rows)).fill_null("")
        return np.asarray(column.to_numpy(zero_copy_only=False), object)


@dataclass(frozen=True, slots=True)
class Words:
    """n words as codes of `values`, which are all different; some may not occur."""

    codes: NDArray[np.int32]  # -1: none
    values: Sequence[str]

    @staticmethod
    def of(column: pa.Array) -> Words:
        """Returns the words of an Arrow column of strings."""
        if column.null_count == len(column):
            return Words(np.full(len(column), -1, np.int32), [])
        encoded = column.dictionary_encode()
        codes = encoded.indices.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int32)
        return Words(codes, encoded.dictionary.to_pylist())

    @staticmethod
    def concat(parts: Sequence[Words]) -> Words:
        """Joins several columns, with a common list of values."""
        number: dict[str, int] = {}
        codes = []
        for one in parts:
            # the last one: for code -1
            new = np.array([number.setdefault(value, len(number)) for value in one.values] + [-1], np.int32)
            codes.append(new[one.codes])
        return Words(np.concatenate(codes), list(number))

    def take(self, rows: NDArray[np.int64]) -> Words:
        """Returns the words of some rows, with the values that occur, in order of appearance."""
        codes, order = compacted(self.codes[rows], len(self.values))
        return Words(codes, [self.values[k] for k in order.tolist()])

    def are(self, word: str) -> NDArray[np.bool_]:
        """Returns which ones equal the word."""
        return self.codes == (self.values.index(word) if word in self.values else -2)

    @property
    def absent(self) -> bool:
        """Whether there are no words at all."""
        return not len(self.values)


@numba.njit(cache=True, nogil=True)
def compacted(codes: NDArray[np.int32], size: int) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Returns (codes numbered by first appearance, the old code of each); -1 stays. Codes are below `size`."""
    new = np.full(size, -1, np.int32)
    order = np.empty(min(size, codes.size), np.int32)
    out = np.empty_like(codes)
    used = 0
    for i in range(codes.size):
        code = codes[i]
        if code < 0:
            out[i] = -1
            continue
        if new[code] < 0:
            new[code] = used
            order[used] = code
            used += 1
        out[i] = new[code]
    return out, order[:used]
