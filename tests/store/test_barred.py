"""A store that this user may not write is an error at the start, which names the place, the cause and the fix."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from streameval.sketches.layout import NO_OPTIONS
from streameval.store.checkpoints import Checkpoints
from streameval.store.errors import StoreError
from streameval.store.history.format import HistoryFormat, open_to_write
from streameval.store.outbox import OUTBOX_NAME, Outbox

NOBODY = 65534


def as_nobody(act: Callable[[], object]) -> str:
    """The error of a StoreError that an unprivileged user gets, in a process of its own."""
    reader, writer = os.pipe()
    if (child := os.fork()) == 0:
        said = "no error"
        try:
            if os.getuid() == 0:
                os.setgroups([])
                os.setgid(NOBODY)
                os.setuid(NOBODY)
            act()
        except StoreError as error:
            said = str(error)
        except BaseException as error:
            said = repr(error)
        os.write(writer, said.encode())
        os._exit(0)
    os.close(writer)
    os.waitpid(child, 0)
    with open(reader) as pipe:
        return pipe.read()


@pytest.fixture
def store(tmp_path: Path) -> Path:
    for folder in (tmp_path, *tmp_path.parents):
        if folder.stat().st_uid == os.getuid() and folder != Path("/"):
            folder.chmod(folder.stat().st_mode | 0o055)  # so that anybody may look into it
    path = tmp_path / "store"
    path.mkdir()
    return path


def history(store: Path) -> None:
    open_to_write(store / "history.sqlite", HistoryFormat(60_000, NO_OPTIONS, "equal")).close()


def outbox(store: Path) -> None:
    Outbox(store).close()


@pytest.mark.parametrize(("make", "name"), [(history, "history.sqlite"), (outbox, OUTBOX_NAME)])
def test_a_file_of_somebody_else_is_an_error_at_the_start(store: Path, make, name: str) -> None:
    make(store)
    store.chmod(0o777)
    (store / name).chmod(0o444)  # it can be read, and is opened: only a write would fail
    said = as_nobody(lambda: make(store))
    assert said.startswith(f"{store / name}: cannot be written; user "), said
    assert f"may not read and write {store / name} (of user {os.getuid()}, mode 444): give it to the user" in said


@pytest.mark.parametrize(("make", "name"), [(history, "history.sqlite"), (outbox, OUTBOX_NAME)])
@pytest.mark.parametrize("folder", ["", "new"])
def test_a_folder_that_may_not_be_written_is_named(store: Path, make, name: str, folder: str) -> None:
    store.chmod(0o555)
    said = as_nobody(lambda: make(store / folder))
    assert said.startswith(f"{store / folder / name}: "), said
    assert f"may not read and write {store} (of user {os.getuid()}, mode 555)" in said
    assert "or set store.path to another folder" in said


@pytest.mark.parametrize(("before", "what"), [(False, "created"), (True, "claimed")])
def test_a_folder_of_checkpoints_that_may_not_be_written_is_named(store: Path, before: bool, what: str) -> None:
    """It said only "check store.path and its permissions"."""
    folder = store / "checkpoints" / "partition-00000"
    barred = folder if before else store
    if before:
        Checkpoints(folder, 2).claim()
        (store / "checkpoints").chmod(0o755)
    barred.chmod(0o555)
    said = as_nobody(lambda: Checkpoints(folder, 2).claim())
    assert said.startswith(f"{folder}: cannot be {what}: Permission denied; user "), said
    assert f"may not read and write {barred} (of user {os.getuid()}, mode 555): give it to the user" in said


@pytest.mark.parametrize("below", ["", "x", "x/y"])
@pytest.mark.parametrize("make", [history, outbox, lambda folder: Checkpoints(folder, 2)])
def test_a_folder_below_a_file_is_said_to_be_none(store: Path, make: Callable[[Path], object], below: str) -> None:
    (store / "file").touch()
    with pytest.raises(
        StoreError, match=f"; {store / 'file'} is a file, not a folder: set store.path to another folder$"
    ):
        make(store / "file" / below)


def test_a_disk_that_is_mounted_read_only_is_said_to_be(store: Path) -> None:
    if subprocess.run(["mount", "-t", "tmpfs", "none", store], check=False, capture_output=True).returncode:
        pytest.skip("needs to mount a disk")
    try:
        history(store)
        subprocess.run(["mount", "-o", "remount,ro", store], check=True)
        with pytest.raises(
            StoreError, match=f"{store} is on a disk that is mounted read-only: mount it read-write, or"
        ):
            history(store)
    finally:
        subprocess.run(["umount", store], check=True)
