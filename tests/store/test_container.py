"""A checkpoint's file: whole or refused, whatever happens to its bytes."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

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
