"""Replays from, and reports to, a real server of the S3 protocol, by the command."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.foreign.need import without
from tests.foreign.s3 import S3, SECRET, missing

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3]:
    if missing():
        without(f"install {missing()}: replays are tried on a real server of S3's protocol")
    with S3(tmp_path_factory.mktemp("s3")) as one:
        yield one


def streameval(folder: Path, *arguments: object, **environment: str) -> subprocess.CompletedProcess[str]:
    """The command, which knows the store's credentials from its environment alone."""
    known = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
    return subprocess.run(
        [sys.executable, "-m", "streameval", *map(str, arguments)],
        cwd=folder, env={**known, "PYTHONPATH": str(ROOT), **environment}, capture_output=True, text=True, check=False,
    )  # fmt: skip


@pytest.fixture(scope="module")
def events(store: S3, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Parquet file of simulated events of more than one read, which the store has too."""
    folder = tmp_path_factory.mktemp("events")
    assert streameval(folder, "simulate", "events.parquet", "--rate", "300").returncode == 0
    shutil.copy(folder / "events.parquet", store.data / "bucket")
    return folder / "events.parquet"


@pytest.fixture(scope="module")
def here(events: Path) -> subprocess.CompletedProcess[str]:
    """A replay of the file."""
    return streameval(events.parent, "replay", events, "--report", "report.json")


@pytest.mark.slow
@pytest.mark.parametrize("by", ["address", "environment"])
def test_a_replay_from_an_object_store_gives_the_report_of_the_file(
    store: S3, events: Path, here: Any, by: str
) -> None:
    folder, environment = events.parent, dict(store.environment)
    source, target = store.address("events.parquet"), store.address(f"{by}/report.json")
    if by == "environment":
        source, target = "s3://bucket/events.parquet", f"s3://bucket/{by}/report.json"
        environment["AWS_ENDPOINT_URL"] = f"http://{store.place}"
    there = streameval(folder, "replay", source, "--report", target, **environment)
    assert there.returncode == 0, there.stderr
    assert there.stdout == here.stdout
    report = (store.data / "bucket" / by / "report.json").read_bytes()
    assert report == (folder / "report.json").read_bytes()
    assert len(report) > 1000


@pytest.mark.slow
def test_errors_are_one_line_with_the_address_and_the_fix(store: S3, events: Path) -> None:
    def said(source: str, *arguments: object, **environment: str) -> str:
        done = streameval(events.parent, "replay", source, *arguments, **{**store.environment, **environment})
        assert done.returncode != 0
        assert done.stdout == ""
        assert SECRET not in done.stderr
        assert "Traceback" not in done.stderr
        return done.stderr

    source = store.address("events.parquet")
    wrong = source.replace("s3://", f"s3://writer:wrong-{SECRET}@")
    for error in (
        said(source, AWS_SECRET_ACCESS_KEY=f"wrong-{SECRET}"),
        said(wrong),
        said(source.replace(store.place, "127.0.0.1:1")),
    ):
        assert error.startswith("streameval: s3://bucket/events.parquet: ")
        assert error.endswith("; check the address, credentials and region\n")
        assert error.count("\n") == 1
    assert said(store.address("none.parquet")) == "streameval: s3://bucket/none.parquet: no such file\n"
    assert said(store.address("x.parquet", bucket="none")) == "streameval: s3://none/x.parquet: no such file\n"


@pytest.mark.slow
def test_where_a_report_cannot_go_is_said_before_the_work(store: S3, events: Path) -> None:
    target = store.address("report.json", bucket="none")
    done = streameval(events.parent, "replay", events, "--report", target, **store.environment)
    assert "s3://none/report.json: bucket none" in done.stderr
    assert done.stdout == ""
    for arguments in (("replay", events, "--predictions"), ("simulate",)):
        done = streameval(events.parent, *arguments, store.address("x.parquet"), **store.environment)
        assert done.returncode == 2
        assert "s3://bucket/x.parquet: is written on this machine only" in done.stderr
