"""After a restart sinks see every pane in memory: one that was away must not lose in silence what the history has."""

from __future__ import annotations

from pathlib import Path

import pytest

from streameval.outlets.sinks.rows import pane_digests
from streameval.settings.tree import Settings
from streameval.testing import readers_see
from tests.laws.streams import make_settings, through_disk
from tests.laws.test_restart_laws import Process, messages

READ = 1500


@pytest.mark.parametrize("sinks", [True, False])
def test_a_restart_takes_no_pane_from_the_sinks(tmp_path: Path, sinks: bool) -> None:
    more = make_settings("impressions", "impression", models=False, shared=True).model_dump(exclude_unset=True)
    if sinks:
        more |= {"store": {"path": str(tmp_path)}, "sinks": [{"kind": "parquet", "to": str(tmp_path)}]}
    config = Settings.model_validate(more)
    before, after = Process(config, [3, 1]), Process(config, [])
    before.pipeline.has_history = after.pipeline.has_history = True
    for at in range(0, READ, 300):
        before.take(0, messages()[0][at : at + 300], at + 300)
    seen = pane_digests(readers_see(before.pipeline).panes)
    assert before.pipeline.history_rows([0])
    before.pipeline.partitions[0].written(done=True)
    after.pipeline.restore_partition(0, through_disk(before, 0, tmp_path / "state"))
    found = pane_digests(readers_see(after.pipeline).panes)
    assert len(seen) > 5
    if sinks:
        assert found == seen
    else:  # readers have them from the history
        assert found.items() < seen.items()
