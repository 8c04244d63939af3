"""A past range of whole panes is the live run, tallies included, also of a version that only has a policy."""

from __future__ import annotations

from pathlib import Path

from streameval.loop.options import options_of
from streameval.store.history.format import HistoryFormat
from streameval.store.history.reader import HistoryReader
from streameval.store.history.writer import HistoryWriter, Retention
from streameval.testing import readers_see
from tests.exposure.worlds import log, make_settings, pipeline_of


def test_a_past_range_is_the_live_run(tmp_path: Path) -> None:
    config = make_settings()
    pipeline = pipeline_of(log(4_000), config)
    pipeline.has_history = True
    live = {r.series: r for r in readers_see(pipeline).results if r.window == "all"}
    form = HistoryFormat(config.windows.pane, options_of(config), config.users.weighting)
    writer = HistoryWriter(tmp_path / "history.sqlite", form, Retention(10**12, 10**12, 10**12, 10**12))
    for partition, rows in pipeline.history_rows(range(1)).items():
        writer.write(partition, 1, rows)
    writer.close()
    reader = HistoryReader(tmp_path / "history.sqlite", form, 20)
    past = {r.series: r for r in reader.range(reader.series_names(), None, None).results}
    assert {series.version for series in past} == {"v1", "v2", "never"}
    tallied = [
        name for name in live[next(iter(live))].metrics if name.startswith(("exposure", "policy")) or "ips" in name
    ]
    assert len(tallied) > 25
    for series, result in past.items():
        for name in tallied:
            assert result.metrics[name] == live[series].metrics[name]
            assert result.stderrs.get(name) == live[series].stderrs.get(name)
    line = reader.series("policy_mean_weight", [series for series in past if series.version == "never"], None, None)
    assert [len(points.points) for points in line.values()] == [2]
