"""The Parquet sink on a real server of the S3 protocol that is away, comes back, and refuses."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow.dataset as pads
import pyarrow.fs as pafs
import pytest

from streameval.outlets.sinks.kinds import make_sink
from streameval.outlets.sinks.protocol import Sink, SinkError
from streameval.outlets.sinks.rows import panes_of, verdicts_of
from streameval.settings import toml
from streameval.settings.tree import ConfigError
from tests.comparisons import NOON
from tests.foreign.need import without
from tests.foreign.s3 import S3, SECRET, missing
from tests.outlets.sinks.panes import PANE, V1, corrected, expected, held, snapshot, until

pytestmark = pytest.mark.slow
MOST = 200  # times that the same panes are written, for a reader that is slow to look


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3]:
    if missing():
        without(f"install {missing()}: the Parquet sink is tried on a real server of S3's protocol")
    with S3(tmp_path_factory.mktemp("s3")) as one:
        yield one


@pytest.fixture
def store(server: S3, monkeypatch: pytest.MonkeyPatch) -> S3:
    """The server, up, with the credentials for it in the environment."""
    for name, value in server.environment.items():
        monkeypatch.setenv(name, value)
    if server.down:
        server.start()
    return server


def sink_to(to: str) -> Sink:
    settings = toml.validate({"store": {"path": "s"}, "sinks": [{"kind": "parquet", "to": to}]})
    return make_sink(settings.sinks[0], settings.kafka)


def read(store: S3, path: str) -> list[dict[str, Any]]:
    """By a reader that knows nothing of ours."""
    files, root = pafs.FileSystem.from_uri(store.address(path))
    listed = [one.path for one in files.get_file_info(pafs.FileSelector(root, recursive=True))]
    names = [name for name in listed if name.endswith(".parquet")]  # S3Proxy lists what it is just being sent
    found: list[dict[str, Any]] = pads.dataset(names, filesystem=files, format="parquet").to_table().to_pylist()
    return found


@pytest.mark.parametrize("by", ["address", "environment"])
def test_what_is_written_is_read_back_and_a_corrected_pane_replaces_the_old_one(
    store: S3, monkeypatch: pytest.MonkeyPatch, by: str
) -> None:
    to = store.address(by)
    if by == "environment":
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://{store.place}")
        to = f"s3://bucket/{by}/"
    sink, first = sink_to(to), snapshot(6)
    sink.write(panes_of(first, first.panes[V1].start.tolist()), list(verdicts_of(first)))
    after = corrected(first, 1)
    again = sink_to(to)  # another process
    again.write(panes_of(after, [NOON + PANE]), list(verdicts_of(after)))
    assert held(read(store, f"{by}/results")) == expected(after) != expected(first)
    assert any(row["log_loss"] is None for row in read(store, f"{by}/results"))
    assert [(v["verdict"], v["log_e_worse"]) for v in read(store, f"{by}/verdicts")] == [("worse", 9.0)]
    names = sorted(str(path.relative_to(store.data / "bucket" / by)) for path in store.data.rglob(f"{by}/*/*/*"))
    assert names[0] == "results/date=2024-05-01/20240501T120000.000Z.parquet"
    assert len(names) == 7


def test_a_reader_sees_whole_files_only(store: S3) -> None:
    done = threading.Event()
    first = snapshot(30)
    sink = sink_to(store.address("whole"))

    def write() -> None:
        try:
            times = 0
            while times < 2 or (looks < 2 and times < MOST):  # once as new, then over what is there
                sink.write(panes_of(first, first.panes[V1].start.tolist()), [])
                times += 1
        finally:
            done.set()

    looks = 0
    writing = threading.Thread(target=write)
    writing.start()
    try:
        while not done.is_set():
            if any((store.data / "bucket" / "whole").glob("results/*/*.parquet")):
                assert held(read(store, "whole/results")).items() <= expected(first).items()
                looks += 1
    finally:
        writing.join()
    assert looks > 1
    assert held(read(store, "whole/results")) == expected(first)


class Interrupted(Sink):
    """A sink whose server crashes between its first write and its second."""

    def __init__(self, sink: Sink, crash: Callable[[], None]) -> None:
        self._sink, self._crash, self._writes = sink, crash, 0

    def write(self, panes: Any, verdicts: Any) -> None:
        self._writes += 1
        if self._writes == 2:
            self._crash()
        self._sink.write(panes, verdicts)

    def close(self) -> None:
        self._sink.close()


def test_what_was_missed_while_the_store_was_away_is_there_afterwards(
    store: S3, feeding: Callable[[Sink], Any]
) -> None:
    feed, seen = feeding(Interrupted(sink_to(store.address("away")), store.crash))
    seen.append(snapshot(150))
    feed.wake()
    until(lambda: feed.state().failures > 0)  # Arrow tries for six seconds
    assert 0 < feed.state().panes < 150, "in the middle"
    assert feed.state().error.startswith("s3://bucket/away: ")
    assert feed.state().error.endswith("; check the address, credentials and region")
    store.start()
    until(lambda: feed.state().waiting == 0)
    assert feed.state().lost == 0
    assert held(read(store, "away/results")) == expected(seen[-1])


def test_what_is_wrong_is_one_line_with_the_address_and_the_fix(store: S3, monkeypatch: pytest.MonkeyPatch) -> None:
    def said(to: str) -> str:
        with pytest.raises(SinkError) as raised:
            sink_to(to).write(panes_of(snapshot(1), [NOON]), [])
        return str(raised.value)

    errors = [said(store.address("out", bucket="none"))]
    assert errors[0].startswith("s3://none/out: ")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", f"wrong-{SECRET}")
    errors.append(said(store.address("out")))
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "nobody")
    errors.append(said(store.address("out")))
    for one in errors:
        assert one.startswith("s3://")
        assert "; check the address, credentials and region" in one
        assert "\n" not in one
        assert SECRET not in one


def test_an_address_with_a_word_that_nobody_knows_is_an_error_at_the_start() -> None:
    with pytest.raises(ConfigError, match=r"^sinks: s3://bucket/x: .*'endpoint'; check the address"):
        sink_to("s3://bucket/x?endpoint=127.0.0.1:1")
    with pytest.raises(ConfigError, match=r"^sinks: s3://bucket/x: ") as raised:
        sink_to(f"s3://writer:a/{SECRET}@bucket/x")  # a slash, which hides it from the settings
    assert SECRET not in str(raised.value)


def test_a_store_that_is_away_at_the_start_is_an_error_of_a_write() -> None:
    """Arrow asks HDFS at once, as it asks AWS for the region of a bucket that comes without."""
    sink = sink_to("hdfs://127.0.0.1:1/out")
    with pytest.raises(SinkError):
        sink.write(panes_of(snapshot(1), [NOON]), [])
