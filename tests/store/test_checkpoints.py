"""The folder of a partition's checkpoints: which one counts, who may write, what is refused."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from streameval.store import container
from streameval.store.checkpoints import Checkpoints
from streameval.store.errors import FencedError, StoreError


def owner(folder: Path, keep: int = 3) -> Checkpoints:
    files = Checkpoints(folder, keep)
    files.claim()
    return files


def number(files: Checkpoints) -> int:
    found = files.load()
    assert found is not None
    return int(found[0]["n"])


def test_the_newest_is_loaded_and_the_last_few_are_kept(tmp_path: Path) -> None:
    files = owner(tmp_path / "p", keep=2)
    assert files.load() is None
    for n in range(5):
        files.save({"n": n, "x": np.arange(n)}, {})
    assert number(files) == 4
    assert len(list((tmp_path / "p").glob("*.checkpoint"))) == 2


def test_a_new_owner_fences_the_old_one_also_while_it_writes(tmp_path: Path) -> None:
    old = owner(tmp_path)
    old.save({"n": 1}, {})

    new: list[Checkpoints] = []

    def taken_meanwhile() -> int:
        new.append(owner(tmp_path))
        return 2

    with pytest.raises(FencedError, match="epoch 2, this worker has 1"):
        old.save({"n": taken_meanwhile}, {})
    with pytest.raises(FencedError):
        old.save({"n": 3}, {})
    assert number(new[0]) == 1
    new[0].save({"n": 4}, {})
    assert number(owner(tmp_path)) == 4


def test_a_folder_that_was_lost_is_claimed_above_what_is_known_of_it_elsewhere(tmp_path: Path) -> None:
    old = owner(tmp_path / "p")
    old.save({"n": 1}, {})
    (tmp_path / "p").rename(tmp_path / "away")
    new = Checkpoints(tmp_path / "p", 3)
    new.claim(above=4)
    assert (new.epoch, new.load()) == (5, None)
    with pytest.raises(FencedError, match="epoch 5, this worker has 1"):  # it has been frozen since
        old.save({"n": 2}, {})
    again = Checkpoints(tmp_path / "p", 3)
    again.claim(above=2)  # the folder knows better
    assert again.epoch == 6


def test_a_file_that_a_frozen_worker_renames_late_comes_before_all_of_the_new_owners(tmp_path: Path) -> None:
    old = owner(tmp_path)
    old.save({"n": 1}, {})
    new = owner(tmp_path)
    new.save({"n": 5}, {})
    late = tmp_path / f"{1:010}-{2:010}.checkpoint"  # as if it had been stopped between looking and renaming
    late.write_bytes((tmp_path / f"{1:010}-{1:010}.checkpoint").read_bytes())
    assert number(owner(tmp_path)) == 5


def test_damaged_ones_are_refused_by_name_and_the_one_before_is_used(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    files = owner(tmp_path)
    for n in range(3):
        files.save({"n": n, "x": np.arange(1000)}, {})
    paths = sorted(tmp_path.glob("*.checkpoint"))
    whole = paths[-1].read_bytes()
    for length in range(0, len(whole), 1024):
        paths[-1].write_bytes(whole[:length])
        assert number(files) == 1
        assert str(paths[-1]) in caplog.text
    paths[1].write_bytes(b"")
    assert number(files) == 0
    paths[0].unlink()
    with pytest.raises(StoreError, match=f"all 2 checkpoints are damaged, the newest is {paths[-1].name}: put a good"):
        files.load()


def test_a_folder_under_a_files_name_is_damage(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    files = owner(tmp_path)
    for n in range(3):
        files.save({"n": n}, {"model": b"pickled"})
    newest, middle, _ = sorted(tmp_path.glob("*.checkpoint"), reverse=True)
    newest.unlink()
    newest.mkdir()
    models = middle.with_name(f"{middle.stem}-model.models")
    models.unlink()
    models.mkdir(mode=0o700)
    assert number(files) == 0
    assert f"checkpoint refused: {newest}: Is a directory; trying the previous one" in caplog.text
    assert f"checkpoint refused: {models}: Is a directory; trying the previous one" in caplog.text
    new = owner(tmp_path)
    for n in range(3, 9):  # until the folders are among the old ones, which are deleted
        new.save({"n": n}, {})
    assert number(new) == 8


@pytest.mark.parametrize("code", [errno.EIO, errno.EACCES])
def test_a_bad_sector_is_damage_and_a_permission_is_an_error(
    code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = owner(tmp_path)
    for n in range(2):
        files.save({"n": n}, {})
    newest, read = max(tmp_path.glob("*.checkpoint")), container.read

    def failing(path: Path) -> dict[str, Any]:
        if path == newest:
            raise OSError(code, os.strerror(code), str(path))
        return read(path)

    monkeypatch.setattr(container, "read", failing)
    if code == errno.EIO:
        assert number(files) == 0
    else:
        with pytest.raises(
            StoreError, match=f"{newest}: cannot be read: Permission denied; check store.path and its perm"
        ):
            files.load()


def test_what_a_killed_writer_left_is_swept(tmp_path: Path) -> None:
    files = owner(tmp_path)
    left = tmp_path / f"{1:010}-{1:010}.checkpoint.partial"
    left.write_bytes(b"half")
    files.save({"n": 1}, {})
    assert not left.exists()


def test_files_of_rows_go_when_neither_a_checkpoint_nor_their_owner_needs_them(tmp_path: Path) -> None:
    old = owner(tmp_path)
    named, read_with_it = old.save_rows({}).name, old.save_rows({}).name
    old.save({"n": 1, "rows_files": [named], "read_with_it": [read_with_it]}, {})
    needed, gone, of_ids = old.save_rows({}).name, old.save_rows({}).name, old.save_ids({}).name
    assert files_of_rows(tmp_path) == {named, read_with_it, needed, gone, of_ids}
    old.forget_rows({needed})
    assert files_of_rows(tmp_path) == {named, read_with_it, needed, of_ids}  # a thread has just written it
    old.named(of_ids)
    old.forget_rows({needed})
    assert files_of_rows(tmp_path) == {named, read_with_it, needed}
    new = owner(tmp_path)
    of_new = new.save_rows({}).name
    with pytest.raises(FencedError):
        old.forget_rows(set())
    assert files_of_rows(tmp_path) == {named, read_with_it, needed, of_new}
    new.forget_rows({of_new})  # it has written no checkpoint yet: those of the owner before count
    assert files_of_rows(tmp_path) == {named, read_with_it, of_new}


def files_of_rows(folder: Path) -> set[str]:
    return {path.name for kind in ("rows", "ids") for path in folder.glob(f"{kind}-*")}


def test_pickles_lie_apart_and_are_read_only_from_where_nobody_else_can_write(tmp_path: Path) -> None:
    files = owner(tmp_path / "p")
    files.save({"n": 1}, {"0": b"pickled"})
    found = files.load()
    assert found is not None
    assert found[1] == {"0": b"pickled"}
    (model,) = (tmp_path / "p").glob("*.models")
    assert model.stat().st_mode & 0o077 == 0
    assert b"pickled" not in next((tmp_path / "p").glob("*.checkpoint")).read_bytes()
    for place, good in ((model, 0o600), (tmp_path / "p", 0o700)):
        place.chmod(0o777)
        with pytest.raises(StoreError, match=r"others can write to it.*chmod go-w"):
            files.load()
        place.chmod(good)
    model.write_bytes(b"tampered")
    with pytest.raises(StoreError, match="all 1 checkpoints are damaged"):
        files.load()


@pytest.mark.skipif(os.getuid() != 0, reason="needs root to give a file away")
def test_a_pickle_of_another_user_is_refused(tmp_path: Path) -> None:
    files = owner(tmp_path)
    files.save({"n": 1}, {"0": b"pickled"})
    (model,) = tmp_path.glob("*.models")
    os.chown(model, 12345, 12345)
    with pytest.raises(StoreError, match="others can write to it"):
        files.load()


def test_a_folder_that_is_gone_says_so_and_can_be_put_back(tmp_path: Path) -> None:
    files = owner(tmp_path / "here")
    (tmp_path / "here").rename(tmp_path / "there")
    with pytest.raises(StoreError, match=r"deleted, or its disk unmounted, .* put it back, or restart"):
        files.save({"n": 1}, {})
    (tmp_path / "there").rename(tmp_path / "here")
    files.save({"n": 2}, {})
    assert number(files) == 2


def test_too_many_open_files_are_no_matter_of_permissions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = owner(tmp_path)

    def refuse(*_: object) -> int:
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(container, "write", refuse)
    with pytest.raises(
        StoreError, match=r"Too many open files; the previous one is kept; raise the limit of open files"
    ):
        files.save({"n": 1}, {})


def test_an_emptied_folder_is_told_from_a_lost_partition(tmp_path: Path) -> None:
    files = owner(tmp_path)
    for path in tmp_path.iterdir():
        path.unlink()
    with pytest.raises(StoreError, match="it was emptied while this worker was running") as failure:
        files.save({"n": 1}, {})
    assert not isinstance(failure.value, FencedError)


def test_a_copy_without_its_empty_files_goes_on_after_its_newest_checkpoint(tmp_path: Path) -> None:
    files = owner(tmp_path, keep=2)
    for n in range(5):
        files.save({"n": n}, {})
    for epoch in tmp_path.glob("*.epoch"):  # as some tools for backups leave out what is empty
        epoch.unlink()
    again = owner(tmp_path, keep=2)
    assert again.epoch == 2
    again.save({"n": 5}, {})
    assert number(again) == 5
    with pytest.raises(FencedError):
        files.save({"n": 6}, {})


def test_a_folder_that_cannot_be_made_is_one_clear_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(
        StoreError,
        match=r"cannot be created: Not a directory; .*file is a file, not a folder: set store\.path to another folder",
    ):
        Checkpoints(tmp_path / "file" / "p", 3)
