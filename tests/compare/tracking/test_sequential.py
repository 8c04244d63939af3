"""What a comparison makes of its sums."""

from __future__ import annotations

import numpy as np
import pytest

from streameval.compare.evidence.evidence import Rule
from streameval.compare.reading.reading import Deploy
from streameval.compare.tracking.sequential import SequentialTracked
from streameval.events.batch import Series
from streameval.events.durations import DAY
from tests.compare.pairs import draw, ledger_row, pair_rows

V1, V2 = Series("m", "v1", "logged"), Series("m", "v2", "logged")


@pytest.mark.parametrize("heavy", [0, 500])
def test_calibration_of_a_version_that_never_serves_is_no_evidence_whoever_is_under_the_cap(heavy: int) -> None:
    """It looks under-predicting by selection alone; `heavy`: impressions beyond the cap of users."""
    rng = np.random.default_rng(3)
    block, y, p, q = draw(rng, 40_000)
    row, beyond = (
        ledger_row(pair_rows(block, y, p, q / 2)),
        ledger_row(pair_rows(*(x[:heavy] for x in (block, y, p, q / 2)))),
    )
    deploy = Deploy("1", "m", "v2", "v1", 0, "shadow", 0)
    tracked = SequentialTracked(deploy, "paired", V1, V2, 0, 0, Rule(user_cap=30))
    tracked.add(0, (V1, V2), np.concatenate((row, beyond)))
    tracked.look(DAY, None)
    reading = {metric.metric: metric for metric in tracked.reading().metrics}
    assert reading["log_loss"].verdict == "worse"
    assert reading["calibration"].reason == "not_compared"
    assert reading["calibration"].verdict == "undecided"
    assert reading["calibration"].log_e_worse == pytest.approx(0.0, abs=1e-12)
