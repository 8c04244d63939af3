"""A sample of users with their rank entries: what is kept of a pane's users, so that GAUC of a past range can be computed.

GAUC is no sum over panes: a user's scores of all panes are ranked together. So a part of the history (a pane, an hour,
a day of one series and partition) keeps the entries themselves of the users whose mixed hash begins with k zero bits,
a fraction 2**-k of them, the smallest k whose entries fit the part's limit. Who is in depends on the user's hash alone,
so the samples of any parts are one sample of users, whole ones, under the largest k among them.

Bytes (format 1, little-endian): b"SEUS", u8 version, u8 k, u32 users, u32 entries, u32 crc32 of the rest, then the zlib
stream of byte planes (all first bytes, all second bytes, ...) of: the users' hashes ascending, as differences (u64);
their numbers of entries (u32); the entries, key << 1 | label, ascending by user (u32). About 10 bytes an entry.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass

import numba
import numpy as np
from numpy.typing import NDArray

from streameval.metrics.view import Ranked
from streameval.sketches.codec import CodecError
from streameval.sketches.directory import mix
from streameval.sketches.ranks import GroupRanks, Weighting
from streameval.sketches.weightings import TERM_SCALE

_MAGIC = b"SEUS"
_VERSION = 1
_HEAD = struct.Struct("<4sBBIII")
_NO_ENTRIES = np.empty(0, np.uint64)


@dataclass(frozen=True, slots=True, eq=False)
class UserSample:
    """The entries of a fraction 2**-k of the users: entry i (key << 1 | label) is of user i; ascending by user, entry."""

    k: int
    users: NDArray[np.uint64]  # [n] hashes, repeated
    entries: NDArray[np.uint32]  # [n]

    def deeper(self, k: int) -> UserSample:
        """The sample under a larger k; the same one if k is not larger."""
        if k <= self.k:
            return self
        on = depth(self.users) >= k
        return UserSample(k, self.users[on], self.entries[on])

    def fitted(self, most: int) -> UserSample:
        """The largest sample of at most `most` entries."""
        if self.users.size <= most:
            return self
        by_depth = np.bincount(depth(self.users), minlength=66)
        left = by_depth[::-1].cumsum()[::-1]  # entries by k; none at 65
        return self.deeper(int(np.flatnonzero(left <= most)[0]))


@numba.njit(cache=True, nogil=True)
def depth(users: NDArray[np.uint64]) -> NDArray[np.uint8]:
    """How many zero bits each user's mixed hash begins with: a user is in a sample when that is at least its k."""
    out = np.zeros(users.size, np.uint8)
    for i in range(users.size):
        h = mix(users[i])
        n = 0
        while n < 64 and h >> np.uint64(63 - n) == 0:
            n += 1
        out[i] = n
    return out


def collect(
    added: Sequence[NDArray[np.uint64]],
    retracted: Sequence[NDArray[np.uint64]],
    ids: NDArray[np.uint64],
    k: int,
    most: int,
) -> UserSample:
    """At most `most` of the entries (slot << 32 | key << 1 | label) added and not retracted; `ids` are users by slot.

    `k`: what is already known to be missing.
    """
    entries, count = np.unique(np.concatenate([_NO_ENTRIES, *added]), return_counts=True)
    if retracted:
        gone, times = np.unique(np.concatenate([_NO_ENTRIES, *retracted]), return_counts=True)
        np.subtract.at(count, np.searchsorted(entries, gone), times)
    entries = np.repeat(entries, count)
    users = ids[(entries >> np.uint64(32)).astype(np.int64)]
    return _sorted(k, users, entries.astype(np.uint32)).fitted(most)


def together(samples: Sequence[UserSample], most: int) -> UserSample:
    """One sample of all of them, under their largest k, or a larger one so that at most `most` entries are in it."""
    k = max((sample.k for sample in samples), default=0)
    same = [sample.deeper(k) for sample in samples]
    users = np.concatenate([np.empty(0, np.uint64), *(s.users for s in same)])
    entries = np.concatenate([np.empty(0, np.uint32), *(s.entries for s in same)])
    return _sorted(k, users, entries).fitted(most)


def rank(sample: UserSample, weighting: Weighting) -> tuple[Ranked, float | None]:
    """GAUC's terms over the sampled users; when they are a sample, also GAUC's standard error.

    The standard error is that of live results: sqrt((1 - 2**-k) sum_u w_u^2 (AUC_u - GAUC)^2) / sum_u w_u.
    Weighting "value" has no values here: the terms are then 0, the users and impressions still right.
    """
    ids, slot = np.unique(sample.users, return_inverse=True)
    ranks = GroupRanks(weighting)
    packed = (slot.astype(np.uint64) << np.uint64(32)) | sample.entries.astype(np.uint64)
    packed.sort()
    ranks.apply(packed, _NO_ENTRIES, ids.size)
    weighted, weight = ranks.terms()
    error = None
    if sample.k and weight:
        auc_w, w = ranks.group_terms()
        spread = float(((auc_w - w * (weighted / weight)) ** 2).sum())
        error = (spread * (1.0 - 0.5**sample.k)) ** 0.5 / (weight / TERM_SCALE)
    found = Ranked(
        weighted,
        weight,
        ranks.eligible,
        ranks.eligible_impressions,
        ranks.squares(),
        others=(*ranks.of_each()[:2], None),
        by_block=ranks.by_block(ids, sample.k),
        served_known=False,
    )
    return found, error


def encode(sample: UserSample) -> bytes:
    """The sample's bytes."""
    ids, count = np.unique(sample.users, return_counts=True)
    steps = np.diff(ids, prepend=np.uint64(0))
    planes = (_planes(steps.astype("<u8")), _planes(count.astype("<u4")), _planes(sample.entries.astype("<u4")))
    body = zlib.compress(b"".join(planes), 1)
    return _HEAD.pack(_MAGIC, _VERSION, sample.k, ids.size, sample.entries.size, zlib.crc32(body)) + body


def decode(data: bytes) -> UserSample:
    """The sample. Raises CodecError for anything torn, foreign or of another version."""
    if len(data) < _HEAD.size:
        raise CodecError(f"{len(data)} bytes: shorter than a user sample's head of {_HEAD.size}")
    magic, version, k, users, n, crc = _HEAD.unpack_from(data)
    if magic != _MAGIC:
        raise CodecError(f"starts with {magic!r}: not a user sample")
    if version != _VERSION:
        raise CodecError(f"user sample of format {version}: this program reads format {_VERSION}")
    body = data[_HEAD.size :]
    if zlib.crc32(body) != crc:
        raise CodecError("the checksum of a user sample does not match: the bytes are damaged")
    raw = zlib.decompress(body)
    if len(raw) != 12 * users + 4 * n:
        raise CodecError(f"{len(raw)} bytes where {12 * users + 4 * n} were announced")
    ids = np.cumsum(_unplaned(raw[: 8 * users], "<u8"), dtype=np.uint64)
    count = _unplaned(raw[8 * users : 12 * users], "<u4")
    entries = _unplaned(raw[12 * users :], "<u4").astype(np.uint32)
    return UserSample(k, np.repeat(ids, count.astype(np.int64)), entries)


def _sorted(k: int, users: NDArray[np.uint64], entries: NDArray[np.uint32]) -> UserSample:
    order = np.lexsort((entries, users))
    return UserSample(k, users[order], entries[order])


def _planes(column: NDArray[np.generic]) -> bytes:
    """Bytes of equal weight beside each other: the high ones are alike, so zlib finds them."""
    return column.view(np.uint8).reshape(-1, column.itemsize).T.tobytes()


def _unplaned(data: bytes, dtype: str) -> NDArray[np.uint64]:
    width = np.dtype(dtype).itemsize
    return np.ascontiguousarray(np.frombuffer(data, np.uint8).reshape(width, -1).T).view(dtype).reshape(-1)
