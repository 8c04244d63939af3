"""Hashes are xxHash64: the published vectors, forever."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from streameval.events.hashing import hash_one, hash_strings, hash_two
from streameval.events.words64 import PADDING


@pytest.mark.parametrize(
    ("text", "digest"),
    [
        ("", 0xEF46DB3751D8E999),
        ("a", 0xD24EC4F1A98C6E5B),
        ("abc", 0x44BC2CF5AD770999),
        ("Nobody inspects the spammish repetition", 0xFBCEA83C8A378BF1),
        ("xxhash", 0x32DD38952C4BC720),
    ],
)
def test_published_vectors(text: str, digest: int) -> None:
    assert hash_one(text) == digest


def test_arrays_slices_dictionaries_and_nulls_hash_as_their_strings() -> None:
    texts = ["a", "", "Grüße", "x" * 200, "日本"]
    expected = [hash_one(t) for t in texts]
    assert hash_strings(texts).tolist() == expected
    whole = pa.array(["skip", *texts, None])
    assert hash_strings(whole.slice(1)).tolist() == [*expected, 0]
    assert hash_strings(pa.array(texts).dictionary_encode()).tolist() == expected
    assert hash_strings(pa.array([], pa.string())).size == 0


def test_two_texts_hash_as_their_concatenation() -> None:
    letters = "abcdefghijklmnopqrstuvwxyzABCDE"
    for size in range(31):
        for other in range(31 - size):
            one, two = letters[:size], letters[::-1][:other]
            kept = [np.frombuffer(text.encode() + b"zz" + PADDING, np.uint8) for text in (one, two)]
            (first, second) = (int(text.ctypes.data) for text in kept)
            assert hash_two(first, first + size, np.uint64(61), second, second + other) == hash_one(f"{one}={two}")
