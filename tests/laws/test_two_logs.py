"""Two topics: what is counted is a function of the two logs, however far one was read ahead of the other.

Not of polls, of batches, of silences that somebody waited out, nor of who looked in between. What online models learn
is left out: that depends on batches, with one topic too.
"""

from __future__ import annotations

from functools import cache, partial
from pathlib import Path
from random import Random
from unittest.mock import patch

import pytest
from hypothesis import HealthCheck, Phase, example, given, settings
from hypothesis import strategies as st

from streameval.loop.options import options_of
from streameval.loop.pipeline import Pipeline
from streameval.settings.tree import Settings
from streameval.simulate.encode import events
from streameval.simulate.traffic import Traffic
from streameval.sources.formats.decode import Decoder
from streameval.store.history.format import HistoryFormat
from streameval.store.history.writer import HistoryWriter, Retention
from streameval.testing import ManualClock, history_content, readers_see
from tests.laws.streams import (
    BROKEN_S,
    PARTITIONS,
    WHOLE,
    astray,
    differences,
    looks_of,
    make_settings,
    scenario,
    through_disk,
    weighed,
    worth,
)

HORIZON_S = 90.0
SILENT_S = (100.0, 150.0)  # of the stream: no click has a time in it
SCENARIO = scenario(duration_s=300.0, rate=20.0)
Log = list[bytes]


@cache
def logs() -> list[tuple[Log, Log]]:
    """By partition: impressions and clicks, each in order of arrival; one click in ten comes late on the wire, some of them
    later than the horizon; for a while there is none, and for a while most are on no impression."""
    luck = Random(1)
    arriving: list[list[list[tuple[float, bytes]]]] = [[[], []] for _ in range(PARTITIONS)]
    for event in events(Traffic(SCENARIO)):
        click = event.kind == "click"
        at = (event.arrives - SCENARIO.start_ms) / 1000
        if click and SILENT_S[0] <= at < SILENT_S[1]:
            continue
        broken = click and BROKEN_S[0] <= at < BROKEN_S[1] and luck.random() < 0.6
        if click and luck.random() < 0.1:
            at += luck.choice([20.0, 60.0, 1.5 * HORIZON_S])
        value = astray(event.json()) if broken else worth(event.json()) if click else weighed(event.json())
        arriving[sum(event.key) % PARTITIONS][click].append((at, value))
        if click and luck.random() < 0.3:  # a second click is worth more
            more = worth(astray(event.json()) if broken else event.json(), 1.7)
            arriving[sum(event.key) % PARTITIONS][click].append((at + luck.choice([0.1, 60.0]), more))
    return [
        ([value for _, value in sorted(shown)], [value for _, value in sorted(clicked)]) for shown, clicked in arriving
    ]


class Reading:
    """A process that reads the logs of all partitions, in any steps."""

    def __init__(self, config: Settings, store: Path) -> None:
        self.config, self.store = config, store
        self.clock = ManualClock()
        self.pipeline = Pipeline(config, self.clock)
        self.pipeline.has_history = True
        self.pipeline.inputs = ("i", "c")
        self.decoder = Decoder(self.pipeline.catalog, clock=lambda: SCENARIO.start_ms + 900_000, max_future=0)
        self.at = {(kind, p): 0 for kind in (0, 1) for p in range(PARTITIONS)}
        form = HistoryFormat(config.windows.pane, options_of(config), config.users.weighting)
        self.history = HistoryWriter(store, form, Retention(10**12, 10**12, 10**12, 10**12))

    def left(self, kind: int, partition: int) -> int:
        return len(logs()[partition][kind]) - self.at[kind, partition]

    def read(self, partition: int, impressions: int, clicks: int) -> None:
        values: list[bytes] = []
        kinds: list[int] = []
        for kind, n in enumerate((impressions, clicks)):
            start = self.at[kind, partition]
            some = logs()[partition][kind][start : start + n]
            self.at[kind, partition] += len(some)
            values += some
            kinds += [kind + 1] * len(some)
        batch, _ = self.decoder.messages(
            values,
            kinds,
            topic=("i", "c"),
            partition=partition,
            offsets=list(range(len(values))),
            format="json",
            shared=False,
            next_offsets={(topic, partition): self.at[kind, partition] for kind, topic in enumerate("ic")},
        )
        self.pipeline.take(batch)

    def wait(self, topics: str) -> None:
        """A minute in which nothing comes, and these topics have been read to their ends, as far as anybody knows."""
        for _ in range(30):
            self.clock.advance(2.0)
            self.pipeline.tick(lambda: [(topic, p) for topic in topics for p in range(PARTITIONS)])

    def silence(self, luck: Random) -> None:
        """One or both topics fall silent for longer than the idle timeout, and then go on.

        Within what is promised: an input is waited for until the other is a correction horizon ahead of it; and
        comparisons do not wait for a partition in which both stand still, when others go on.
        """
        newest = [monitor.joiner.progress.newest.tolist() for monitor in self.pipeline.partitions.values()]
        if any(abs(shown - clicked) > 900 * HORIZON_S for shown, clicked in newest):
            return
        whole = all(self.left(kind, p) for kind in (0, 1) for p in range(PARTITIONS))
        self.wait(luck.choice(["i", "c", "ic"] if whole else ["i", "c"]))
        self.look()
        if luck.random() < 0.5:
            for p in range(PARTITIONS):
                self.read(p, 1, 1)
            return
        ahead = luck.choice([(5_000, 0), (0, 5_000)])  # it goes on, and the other one is read far ahead of it first
        for p in range(PARTITIONS):
            self.read(p, *ahead)

    def look(self, whole: bool = True) -> None:
        """What readers and the history are given in between; not `whole`: of readers those who read comparisons alone.

        They move on all that a look may change but windows and columns, at a fifth of its time.
        """
        see = partial(readers_see, self.pipeline) if whole else self.pipeline.compare
        see(complete=len(self.pipeline.partitions) == PARTITIONS)
        for partition, rows in self.pipeline.history_rows(range(PARTITIONS)).items():
            self.history.write(partition, 1, rows)
            self.pipeline.partitions[partition].scoreboard.overall.written(True)

    def end(self) -> tuple[dict, dict]:
        """The report, and the history."""
        self.pipeline.finish()
        report = readers_see(self.pipeline).report()
        self.look(whole=False)
        self.history.close()
        return report, history_content(self.store)


@cache
def truth(weighting: str, over: bool, pane: str, folder: Path) -> tuple[dict, dict]:
    """Read message by message as they came, by somebody who never looked away."""
    reading = Reading(
        make_settings(weighting, "impression", False, False, over, valued=True, pane=pane),
        folder / f"{weighting}-{over}-{pane}.sqlite",
    )
    for partition in range(PARTITIONS):
        shares = [len(log) for log in logs()[partition]]
        while any(reading.left(kind, partition) for kind in (0, 1)):
            reading.read(partition, 1 + shares[0] // 100, 1 + shares[1] // 100)
    report, history = reading.end()
    events_ = report["events"]
    assert all(events_[fate] for fate in ("corrected", "late_clicks", "unmatched_clicks", "late_impressions"))
    assert any(c["impressions"] for c in report["comparisons"])
    of_objective = [r for r in report["results"] if r["objective"] == "dear" and r["slice"] is None]
    of_objective = [r for r in of_objective if r["impressions"]]  # v9 has policies and no scores
    assert all(r["clicks"] and r["corrected"] and r["click_yield"] and r["value_per_user"] for r in of_objective)
    assert {r["version"] for r in of_objective} == {"v1", "v2"}
    words = [change["text"] for c in report["comparisons"] for change in c["changes"]]
    assert over or any("clicks matched an impression" in text for text in words), words
    return report, history


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("two-logs")


@patch("streameval.join.runs._MANY_RUNS", 3)
@given(
    weighting=st.sampled_from(["impressions", "value"]),
    over=st.booleans(),
    pane=st.sampled_from(["10s", "1s"]),
    ahead=st.lists(st.sampled_from([0.0, 0.1, 0.5, 0.9, 1.0]), min_size=1, max_size=4),
    sizes=st.lists(st.sampled_from([30, 150, 600, 5000]), min_size=1, max_size=4),
    silences=st.sampled_from([0.0, 0.1]),
    kills=st.sampled_from([0.0, 0.05]),
    seed=st.integers(0, 1 << 32),
)
@example(weighting="impressions", over=False, pane="10s", ahead=[0.1], sizes=[30, 150], silences=0.1, kills=0.0, seed=0)
@example(
    weighting="impressions", over=False, pane="1s", ahead=[0.1, 0.9], sizes=[150], silences=0.1, kills=0.05, seed=1
)
# examples are slow: to make them smaller takes longer than to understand them
@settings(
    max_examples=13,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    phases=(Phase.explicit, Phase.reuse, Phase.generate),
)
def test_however_two_logs_are_read_report_history_and_comparisons_are_the_same(
    weighting: str,
    over: bool,
    pane: str,
    ahead: list[float],
    sizes: list[int],
    silences: float,
    kills: float,
    seed: int,
    folder: Path,
) -> None:
    with looks_of(pane):
        expected, expected_history = truth(weighting, over, pane, folder)
        report, history_ = read(weighting, over, pane, ahead, sizes, silences, kills, Random(seed), folder)
    assert not differences(report, expected)
    assert history_ == expected_history


def read(
    weighting: str,
    over: bool,
    pane: str,
    ahead: list[float],
    sizes: list[int],
    silences: float,
    kills: float,
    luck: Random,
    folder: Path,
) -> tuple[dict, dict]:
    """`ahead`: the share of clicks in what is read, in turns: 0 reads impressions only, for as long as there are any."""
    config = make_settings(weighting, "impression", False, False, over, valued=True, pane=pane)
    store = folder / f"{luck.random()}.sqlite"
    reading, step = Reading(config, store), 0
    while any(reading.left(kind, p) for kind in (0, 1) for p in range(PARTITIONS)):
        step += 1
        size, clicks = sizes[step % len(sizes)], ahead[step // 3 % len(ahead)]
        for p in luck.sample(range(PARTITIONS), PARTITIONS):
            wanted = [round(size * (1 - clicks)), round(size * clicks)]
            if not any(n and reading.left(kind, p) for kind, n in enumerate(wanted)):
                wanted = [size, size]
            reading.read(p, *wanted)
        if luck.random() < silences:
            reading.silence(luck)
        if luck.random() < 0.12:
            reading.look(whole=luck.random() < WHOLE)
        if luck.random() < kills:
            trees = [through_disk(reading, p, folder / f"{p}.checkpoint") for p in range(PARTITIONS)]
            at = reading.at
            reading.history.close()
            reading = Reading(config, store)
            for p in luck.sample(range(PARTITIONS), PARTITIONS):
                reading.pipeline.restore_partition(p, trees[p])
            reading.at = at
    found = reading.end()
    store.unlink()
    return found
