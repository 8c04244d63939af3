"""Damaged files of rows and ids: what is done with what a click has changed, and what is used before its bytes are compared."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from streameval.join.cold.ground import ALIGN
from tests.join.cold.test_cold_rows import Process, change_a_bit, until
from tests.join.cold.test_indexes import half_way

FOLDER = Path("checkpoints") / "partition-00000"


def labels_of(process: Process, number: int) -> dict[str, np.ndarray]:
    """What clicks have changed of the rows of a segment, which count from its first one."""
    cold, table = process.cold, process.pipeline.partitions[0].joiner.table
    segment = cold.segments[number]
    rows = cold.changed(segment.first, segment.end)
    fields = {name: column[rows] for name, column in table.columns().items() if name.startswith("field.")}
    return {"row": rows - segment.first, "state": table.state[rows], **fields}


def test_a_file_that_is_put_back_has_the_labels_that_clicks_had_changed(tmp_path: Path) -> None:
    process = half_way(tmp_path)
    before, path = labels_of(process, 1), process.cold.segments[1].file.path
    assert before["row"].size > 5
    process.keeper.close()
    good = path.read_bytes()
    change_a_bit(path, len(good) // 2)
    torn = Process(tmp_path, ALIGN)
    until(torn, lambda: torn.cold.segments[1].file.lost)
    torn.keeper.close()
    path.unlink()
    path.write_bytes(good)
    for name, values in labels_of(Process(tmp_path, ALIGN), 1).items():
        np.testing.assert_array_equal(values, before[name])
