"""A history in a folder of the test's own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from streameval.events.batch import Series
from streameval.events.durations import DAY
from streameval.sketches.layout import Options
from streameval.store.history.format import HistoryFormat
from streameval.store.history.rows import PaneRows
from streameval.store.history.writer import HistoryWriter, Retention
from streameval.testing import Scores, counted_pane

MINUTE = 60_000
START = 19_000 * DAY  # ms
V1, V2 = Series("m", "v1", "logged"), Series("m", "v2", "logged")


@pytest.fixture(scope="session")
def form() -> HistoryFormat:
    return HistoryFormat(MINUTE, Options((0.01, 0.1, 0.5)), "impressions")


@pytest.fixture(scope="session")
def keep() -> Retention:
    return Retention(2 * DAY, 30 * DAY, 400 * DAY, 1 << 30)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store" / "history.sqlite"


@pytest.fixture
def writer(path: Path, form: HistoryFormat, keep: Retention) -> Iterator[HistoryWriter]:
    writer = HistoryWriter(path, form, keep)
    yield writer
    writer.close()


@pytest.fixture(scope="session")
def pane(form: HistoryFormat) -> Callable[..., PaneRows]:
    """Makes the rows of the minute `number` after START: n scores of two versions and two countries."""

    def make(number: int, n: int = 50, seed: int = 0, users: int = 20) -> PaneRows:
        rng = np.random.default_rng([number + 10_000, seed])
        p = rng.beta(1, 4, n)
        scores = Scores(
            np.sort(rng.integers(0, 2, n)).astype(np.int32), rng.integers(1, users + 1, n).astype(np.uint64), p,
            (rng.random(n) < p).astype(np.int8), rng.integers(0, 2, n).astype(np.int32),
        )  # fmt: skip
        return counted_pane(START // MINUTE + number, (V1, V2), scores, form)

    return make
