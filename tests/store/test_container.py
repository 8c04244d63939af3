"""A checkpoint's file: whole or refused, whatever happens to its bytes."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from streameval.events.pieces import Pieces
from streameval.store import container
from streameval.store.errors import DamagedError, StoreError

TREE: dict[str, Any] = {
    "name": "ä",
    "list": [1, None, 2.5, True, {"inner": np.arange(3000, dtype=np.int64)}],
    "scores": np.linspace(0, 1, 2000),
    "empty": np.empty((0, 3), np.uint32),
    "bytes": b"\x00\x01\xff",
    "later": lambda: {"called": np.array([1 << 63], np.uint64)},
}

leaves = (
    st.none()
    | st.booleans()
    | st.integers(-(1 << 62), 1 << 62)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=5)
    | hnp.arrays(st.sampled_from([np.int64, np.uint64, np.int8, np.bool_]), hnp.array_shapes(max_dims=2, min_side=0))
)
trees = st.recursive(
    leaves,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(min_size=1, max_size=5), inner, max_size=4),
    max_leaves=12,
)


def equal(a: Any, b: Any) -> bool:
    if isinstance(a, np.ndarray):
        return isinstance(b, np.ndarray) and a.dtype == b.dtype and np.array_equal(a, b)
    if isinstance(a, dict):
        return isinstance(b, dict) and a.keys() == b.keys() and all(equal(a[k], b[k]) for k in a)
    if isinstance(a, list):
        return isinstance(b, list) and len(a) == len(b) and all(map(equal, a, b))
    return bool(a == b)


@given(tree=st.dictionaries(st.text(min_size=1, max_size=5), trees, max_size=4))
@settings(max_examples=100, deadline=None)
@pytest.mark.slow
def test_what_is_written_is_read(tree: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.mktemp("container") / "a"
    size = container.write(path, tree)
    assert path.stat().st_size == size
    assert equal(tree, container.read(path))


def test_calls_are_made_and_bytes_come_back_as_an_array(tmp_path: Path) -> None:
    container.write(tmp_path / "a", TREE)
    tree = container.read(tmp_path / "a")
    assert tree["later"]["called"].tolist() == [1 << 63]
    assert tree["bytes"].tobytes() == b"\x00\x01\xff"
    assert tree["empty"].shape == (0, 3)


def test_a_file_cut_short_anywhere_is_refused_by_name(tmp_path: Path) -> None:
    path = tmp_path / "a"
    size = container.write(path, TREE)
    whole = path.read_bytes()
    for length in [*range(0, size, 1024), *range(64), size - 1]:
        path.write_bytes(whole[:length])
        with pytest.raises(DamagedError, match=str(path)):
            container.read(path)
    path.write_bytes(whole + b"x")
    with pytest.raises(DamagedError, match="cut short"):
        container.read(path)


def test_a_changed_bit_anywhere_is_refused_or_harmless(tmp_path: Path) -> None:
    path = tmp_path / "a"
    size = container.write(path, TREE)
    whole = path.read_bytes()
    rng = np.random.default_rng(0)
    refused = 0
    for at in [*range(20), *rng.integers(0, size, 400).tolist()]:
        changed = bytearray(whole)
        changed[at] ^= 1 << int(rng.integers(0, 8))
        path.write_bytes(changed)
        damaged = False
        try:
            tree = container.read(path)
        except StoreError:
            damaged = True
        refused += damaged
        assert damaged or all(equal(tree[name], TREE[name]) for name in ("name", "list", "scores"))
    assert refused > 350


@pytest.mark.parametrize("other", [4, container.CHECKPOINT_FORMAT + 1])
def test_another_format_says_what_to_do(tmp_path: Path, other: int) -> None:
    path = tmp_path / "a"
    container.write(path, TREE)
    data = bytearray(path.read_bytes())
    data[4] = other
    path.write_bytes(data)
    said = f"format {other}, but this program reads format {container.CHECKPOINT_FORMAT}: run the version"
    with pytest.raises(StoreError, match=said) as failure:
        container.read(path)
    assert not isinstance(failure.value, DamagedError)  # the one before will not do


def test_the_format_before_is_read(tmp_path: Path) -> None:
    container.write(tmp_path / "a", TREE)
    data = bytearray((tmp_path / "a").read_bytes())
    data[4] = 5
    (tmp_path / "a").write_bytes(data)
    assert equal(container.read(tmp_path / "a")["scores"], TREE["scores"])


def test_a_disk_that_is_full_leaves_the_old_file_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a"
    container.write(path, {"x": 1})
    real = os.write
    left = 20_000

    def write(number: int, data: memoryview) -> int:
        nonlocal left
        if left <= 0:
            raise OSError(28, "No space left on device")
        part = real(number, data[:left])
        left -= part
        return part

    monkeypatch.setattr(container.os, "write", write)
    with pytest.raises(OSError, match="No space left"):
        container.write(path, TREE)
    assert container.read(path) == {"x": 1}
    assert os.listdir(tmp_path) == ["a"]


def test_an_array_may_be_made_while_it_is_written(tmp_path: Path) -> None:
    made: list[str] = []

    def pieces() -> Iterator[np.ndarray]:
        for first in range(0, 1000, 300):
            made.append(f"from {first}")
            yield np.arange(first, min(first + 300, 1000), dtype=np.int64)

    path = tmp_path / "a"
    tree = {
        "a": Pieces(np.int64, (10, 100), pieces),
        "b": np.arange(3),
        "c": Pieces(np.int64, (1,), lambda: [np.array([len(made)])]),
    }
    size = container.write(path, tree)
    assert size == path.stat().st_size
    back = container.read(path)
    np.testing.assert_array_equal(back["a"], np.arange(1000).reshape(10, 100))
    assert back["c"].tolist() == [4]  # made after what stands before it
    container.check(path)
    with pytest.raises(ValueError, match=r"7992 bytes in pieces of an array of \(1000,\)"):
        container.write(path, {"a": Pieces(np.int64, (1000,), lambda: [np.arange(999)])})
    np.testing.assert_array_equal(container.read(path)["a"], back["a"])  # the file of before
    assert not path.with_name("a.partial").exists()


def test_some_arrays_are_read_and_compared_and_the_others_are_places(tmp_path: Path) -> None:
    path = tmp_path / "a"
    container.write(path, {"few": np.arange(3), "many": np.arange(1000), "n": 5})
    tree, size = container.read_some(path, ("few",))
    assert size == path.stat().st_size
    assert tree["few"].tolist() == [0, 1, 2]
    assert tree["n"] == 5
    dtype, shape, offset = tree["many"]
    assert np.fromfile(path, dtype, shape[0], offset=offset).tolist() == list(range(1000))
    data = bytearray(path.read_bytes())
    data[offset + 9] ^= 1
    path.write_bytes(data)
    assert container.read_some(path, ("few",))[0]["few"].tolist() == [0, 1, 2]
    with pytest.raises(DamagedError, match="the checksum of array 1 does not match"):
        container.read_some(path, ("many",))
