"""Files by an address of an object store: told apart from paths, and read and written through Arrow's file systems."""

from __future__ import annotations

import os
from pathlib import Path

import pyarrow.fs
import pytest

from streameval import app
from streameval.settings.tree import Settings
from streameval.sources import object_store
from streameval.sources.protocol import SourceError

EVENT = b'{"impression_id": "i%d", "ts": 1700000000000, "user_id": "u", "pclick": 0.1, "clicked": %d}\n'
LINES = b"".join(EVENT % (i, i % 2) for i in range(100))


@pytest.fixture
def bucket(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that stands for the bucket `b` of any store: Arrow's own local file system under the address."""
    folder = tmp_path / "b"
    folder.mkdir()
    under = pyarrow.fs.SubTreeFileSystem(str(tmp_path), pyarrow.fs.LocalFileSystem())
    real = pyarrow.fs.FileSystem.from_uri

    class Stores:
        @staticmethod
        def from_uri(uri: str) -> tuple[pyarrow.fs.FileSystem, str]:
            scheme, _, inside = uri.partition("://")
            return (under, inside.partition("?")[0]) if scheme in ("s3", "gs", "abfs") else real(uri)

    monkeypatch.setattr(object_store.pyarrow.fs, "FileSystem", Stores)
    return folder


@pytest.mark.parametrize("scheme", ["s3", "gs", "abfs"])
def test_a_replay_of_a_store_is_that_of_the_file_and_its_report_is_written_there(bucket: Path, scheme: str) -> None:
    (bucket / "events.jsonl").write_bytes(LINES)
    settings = Settings.model_validate({"files": {"dead_letters": ""}})
    # a command line's argument is a Path, which has one slash less
    found = app.replay(settings, [Path(f"{scheme}://b/events.jsonl?region=x")]).report()
    assert found["results"] == app.replay(settings, [bucket / "events.jsonl"]).report()["results"]
    object_store.write(Path(f"{scheme}://b/report.json"), "{}\n")
    assert (bucket / "report.json").read_text() == "{}\n"


def test_errors_about_missing_objects_leave_out_the_options_of_the_address(bucket: Path) -> None:
    with pytest.raises(SourceError, match=r"^s3://b/none.jsonl: no such file$"):
        app.replay(Settings(), [Path("s3://b/none.jsonl?secret_key=x")])
    with pytest.raises(SourceError, match=r"^s3://b: is a directory"):
        object_store.size("s3://b")


@pytest.mark.parametrize("secret", ["hush", "hu/hush+", "hu%2Fhush"])
def test_a_secret_in_an_address_is_not_shown(secret: str) -> None:
    path = f"s3://key:{secret}@b/a@c.jsonl"
    assert object_store.address(path) == "s3://b/a@c.jsonl"
    with pytest.raises(SourceError, match=r"^s3://b/a@c\.jsonl: ") as raised:
        object_store.size(f"{path}?endpoint=x")
    assert "hush" not in str(raised.value)


@pytest.mark.parametrize("path", ["s3.jsonl", "a/s3:/b", "/s3://b", "https://b/c"])
def test_other_paths_are_files(path: str) -> None:
    assert not object_store.is_remote(path)


@pytest.mark.parametrize("kind", ["pipe", "link"])
def test_a_report_goes_into_what_is_no_file_and_does_not_replace_it(tmp_path: Path, kind: str) -> None:
    there = tmp_path / "there"
    if kind == "pipe":  # /dev/null and /dev/full are of this sort, and root could replace them
        os.mkfifo(there)
        reader = os.open(there, os.O_RDONLY | os.O_NONBLOCK)
        object_store.write(there, "{}\n")
        assert os.read(reader, 100) == b"{}\n"
        os.close(reader)
        assert there.is_fifo()
    else:  # as /dev/stdout
        there.symlink_to(tmp_path / "target")
        object_store.write(there, "{}\n")
        assert there.is_symlink()
        assert (tmp_path / "target").read_text() == "{}\n"


def test_a_report_on_a_full_disk_is_an_error_with_its_name_and_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "report.json.partial").symlink_to("/dev/full")
    with pytest.raises(OSError, match=r"No space left on device: '.*/report\.json'$"):
        object_store.write(tmp_path / "report.json", "{}\n")
    assert not list(tmp_path.iterdir())
