"""Comparisons of made-up traffic against its impressions: ramps, shadows that come and go, samples of shadows, versions that return.

Each seed is a world of its own. Whatever it is, what a comparison shows is of the impressions that it says it counts, and
neither how the stream was cut nor a restart changes it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from numpy.typing import NDArray
from sklearn.metrics import log_loss, roc_auc_score

import streameval
from streameval.counting import look_panes
from streameval.events.durations import HOUR
from tests.laws.streams import few_panes

pytestmark = pytest.mark.slow

MINUTE = 60_000  # ms, a pane
T0 = 1_760_000_400_000 // HOUR * HOUR
SETTINGS = {
    "join": {"attribution_window": "1m", "allowed_lateness": "10s", "correction_horizon": "30m", "request_gap": "1m"},
    "compare": {"min_duration": "1m"},
}
ENOUGH = 200  # clicks, of which an AUC by the hour is as good as one of all


@pytest.fixture(autouse=True)
def panes_of_readers() -> Iterator[None]:
    """Hours of traffic have thousands of panes of a second; comparisons do not depend on what readers are shown of them."""
    with few_panes:
        yield


def sigmoid(x: Any) -> Any:
    return 1 / (1 + np.exp(-x))


@dataclass(frozen=True)
class World:
    """Impressions in order of time, what every version says of them (NaN: nothing), and the clicks."""

    ts: NDArray[np.int64]
    user: NDArray[np.int64]
    served: NDArray[np.str_]
    said: Mapping[str, NDArray[np.float64]]
    clicked: NDArray[np.bool_]
    tapped: NDArray[np.int64]

    def rows(self, some: NDArray[np.bool_]) -> tuple[pa.Table, dict[str, Any]]:
        """(impressions, clicks) as `Monitor.update` takes them."""
        ids = np.arange(self.ts.size).astype(str)
        own = np.array([self.said[version][i] for i, version in enumerate(self.served.tolist())])
        columns: dict[str, Any] = {
            "impression_id": ids[some], "ts": self.ts[some], "user_id": self.user[some],
            "model_version": self.served[some], "pclick": own[some],
        }  # fmt: skip
        for version, said in self.said.items():
            columns[f"predictions.{version}"] = pa.array(
                said[some], mask=np.isnan(said[some]) | (self.served[some] == version)
            )
        on = np.flatnonzero(some & self.clicked)
        on = on[np.argsort(self.tapped[on], kind="stable")]
        return pa.table(columns), {"impression_id": ids[on], "ts": self.tapped[on]}


def world(seed: int) -> World:
    """Of up to four hours."""
    rng = np.random.default_rng(seed)
    n, length = int(rng.integers(8_000, 20_000)), int(rng.uniform(1.5, 4) * HOUR)
    ts = np.sort(rng.integers(0, length, n)) + T0 + int(rng.integers(0, HOUR))
    users = int(rng.integers(50, 800))
    user, x, since = rng.integers(0, users, n), rng.normal(0, 1, n), ts - ts[0]
    names = np.array(list("abcd")[: int(rng.integers(2, 5))])
    serving = int(rng.integers(1, names.size + 1))
    bounds, draw = np.sort(rng.uniform(0, length, int(rng.integers(1, 5)))), rng.random(users)
    phase, served = np.searchsorted(bounds, since), np.empty(n, names.dtype)
    for number in range(bounds.size + 1):
        alone = np.eye(serving)[rng.integers(0, serving)]
        share = np.cumsum(alone if rng.random() < 1 / 3 else rng.dirichlet(np.full(serving, 0.5)))
        on = phase == number
        served[on] = names[np.minimum(np.searchsorted(share, draw[user[on]]), serving - 1)]
    level = rng.uniform(-3, -1)
    clicked = rng.random(n) < sigmoid(x + level)
    said = {}
    for name in names.tolist():
        p = sigmoid(x + level + rng.normal(0, rng.uniform(0.05, 0.6), n))
        begin, end = np.sort(rng.uniform(-0.3 * length, 1.3 * length, 2))
        beside = (since >= begin) & (since < end) & (rng.random() < 0.7)
        if rng.random() < 0.4:
            beside &= rng.random(n) < rng.uniform(0.1, 0.9)
        said[name] = np.where(beside | (served == name), p, np.nan)
    return World(ts, user, served, said, clicked, ts + rng.integers(100, 50_000, n))


def comparisons(monitor: streameval.Monitor) -> list[dict[str, Any]]:
    found = json.loads(json.dumps(monitor.snapshot().report()["comparisons"]))
    return [{name: value for name, value in one.items() if name != "looks"} for one in found]


def counted(of: World, one: Mapping[str, Any]) -> NDArray[np.int64]:
    """The impressions of a paired comparison: one of the two served them, both scored them, and they begin with a pane."""
    two = [one[side]["version"] for side in ("baseline", "candidate")]
    both = np.isin(of.served, two) & ~np.isnan(of.said[two[0]]) & ~np.isnan(of.said[two[1]])
    for end in (one["looked"], one["looked"] + MINUTE):
        known = np.flatnonzero(both & (of.ts < end))
        before, some = np.split(known, [max(0, known.size - one["impressions"])])
        if not before.size or of.ts[before[-1]] // MINUTE != of.ts[some[0]] // MINUTE:
            return some
    raise AssertionError(f"{one['id']}: {one['impressions']} are no whole panes")


def judged(of: World) -> Iterator[tuple[Mapping[str, Any], NDArray[np.int64]]]:
    """Paired comparisons with what they count."""
    monitor = streameval.Monitor(settings=SETTINGS)
    monitor.update(*of.rows(np.ones(of.ts.size, np.bool_)))
    for one in comparisons(monitor):
        if one["setup"] == "paired" and one["impressions"]:
            yield one, counted(of, one)


@pytest.mark.parametrize("seed", [2, 5, 19, 26, 30])
def test_a_comparison_is_of_the_impressions_that_it_counts(seed: int) -> None:
    of, compared = world(seed), 0
    for one, some in judged(of):
        labels = of.clicked[some]
        assert one["clicks"] == labels.sum()
        by_name = {metric["metric"]: metric for metric in one["metrics"]}
        for side in ("baseline", "candidate"):
            p = of.said[one[side]["version"]][some]
            assert by_name["log_loss"][side] == pytest.approx(log_loss(labels, p, labels=[0, 1]), rel=1e-6)
            if labels.sum() >= ENOUGH:
                assert by_name["auc"][side] == pytest.approx(roc_auc_score(labels, p), abs=0.01)
                compared += 1
    assert compared


def of_panes(pane: str) -> dict[str, Any]:
    return SETTINGS | {"windows": {"pane": pane, "sliding": ["1h"]}}


@pytest.mark.parametrize(("seed", "pane"), [(2, "1m"), (30, "1m"), (2, "1s"), (30, "1s"), (30, "4500ms")])
def test_cuts_and_restarts_change_no_comparison(seed: int, pane: str, tmp_path: Path) -> None:
    """Also where a look covers several panes, and where an hour is no whole number of looks (13.5 s)."""
    of = world(seed)
    whole, cut = (streameval.Monitor(settings=of_panes(pane)) for _ in range(2))
    whole.update(*of.rows(np.ones(of.ts.size, np.bool_)))
    rng = np.random.default_rng(seed)
    bounds = [-1, *np.sort(rng.integers(of.ts[0], of.ts[-1], 8)).tolist(), int(of.ts[-1])]
    for number, (begin, end) in enumerate(pairwise(bounds)):
        cut.update(*of.rows((of.ts > begin) & (of.ts <= end)))
        if number in (2, 6):
            cut.save(tmp_path / str(number))
            cut = streameval.Monitor.load(tmp_path / str(number))
    assert comparisons(cut) == comparisons(whole)


@pytest.mark.parametrize("seed", [2, 19, 30])
def test_panes_of_a_second_are_compared_like_panes_of_ten(seed: int) -> None:
    of, found = world(seed), []
    for pane in ("1s", "10s"):
        monitor = streameval.Monitor(settings=of_panes(pane))
        monitor.update(*of.rows(np.ones(of.ts.size, np.bool_)))
        found.append(monitor.snapshot().report()["comparisons"])
    assert found[0] == found[1]
    assert any(one["impressions"] > 1_000 for one in found[0])


@pytest.mark.parametrize("seed", [2, 16])
def test_a_checkpoint_of_when_every_pane_had_its_look_is_read(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was compared then goes on as if it had had a look at every pane to the end.

    In these worlds no comparison that begins later divides an hour of a split elsewhere: it begins when it is noticed.
    """
    of, found = world(seed), []
    middle = int(of.ts[of.ts.size // 2])
    for name in ("older", "new"):
        with monkeypatch.context() as older:
            older.setattr(look_panes, "LEAST", 1)
            monitor = streameval.Monitor(settings=of_panes("1s"))
            monitor.update(*of.rows(of.ts <= middle))
            monitor.snapshot()  # takes the looks
            monitor.save(tmp_path / name)
            if name == "older":
                monitor.update(*of.rows(of.ts > middle))
                found.append(to_the_end(monitor))
        if name == "new":
            monitor = streameval.Monitor.load(tmp_path / name)
            monitor.update(*of.rows(of.ts > middle))
            found.append(to_the_end(monitor))
    then = [[one for one in some if one["start"] < middle - 3 * MINUTE and one["impressions"]] for some in found]
    assert then[0]
    for one, other in zip(*then, strict=True):
        for name in ("id", "start", "impressions", "clicks"):
            assert one[name] == other[name]
        for metrics in zip(one["metrics"], other["metrics"], strict=True):
            exact = metrics[0]["metric"] in ("log_loss", "calibration")  # the AUC depends on where strata end
            differences = [metric["difference"] for metric in metrics]
            assert differences[1] == pytest.approx(differences[0], abs=1e-12 if exact else 2e-3)


def to_the_end(monitor: streameval.Monitor) -> list[dict[str, Any]]:
    """Also what its last look does not see yet."""
    monitor._pipeline.finish()
    return comparisons(monitor)
