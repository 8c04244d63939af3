"""What people do on ordinary days, in seeded streams through the whole pipeline: verdicts must be right there, too."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest
from numpy.typing import NDArray

from benchmarks.detection.feed import CANDIDATE, MODEL, Plan, batches
from benchmarks.detection.versions import PAIRS
from benchmarks.detection.whole import Case, read
from benchmarks.detection.worlds import HOUR, WORLDS, Stream, draw
from streameval.compare.reading.choice import deploy_and_comparison
from streameval.compare.reading.words import headline
from streameval.loop.pipeline import Pipeline

pytestmark = pytest.mark.slow

SETTINGS = Case("flat", "identical", 0).settings()


def split(hours: float = 5.0, rate: float = 600.0) -> Stream:
    return draw(replace(WORLDS["600 a minute"], rate=rate), PAIRS["identical"], 1, hours, alone=2.0)


def with_clicks(stream: Stream, keep: NDArray[np.bool_]) -> Stream:
    """The same with some of its clicks; `keep` is of impressions."""
    clicked = np.flatnonzero(stream.clicked)
    return replace(stream, clicked=stream.clicked & keep, click_ts=stream.click_ts[keep[clicked]])


@pytest.mark.parametrize("share", [0.0, 0.02])
@pytest.mark.parametrize("mirrored", [False, True])
def test_a_new_arm_in_which_hardly_anybody_can_click_is_worse(share: float, mirrored: bool) -> None:
    stream, plan = split(), Plan("split", mirrored=mirrored)
    luck = np.random.default_rng(1).random(len(stream)) < share
    out = read(with_clicks(stream, ~plan.serves(stream) | luck), plan, SETTINGS)
    assert set(out.worse) == {"overall", "calibration"}  # without clicks nothing is known of the others
    assert stream.pclick[1, plan.serves(stream)][: out.worse["overall"] // 2].sum() < 1_500  # of 1,000 that are needed


def test_a_baseline_arm_without_clicks_is_no_harm_of_the_candidate() -> None:
    stream, plan = split(), Plan("split")
    out = read(with_clicks(stream, (stream.ts < stream.deploy) | plan.serves(stream)), plan, SETTINGS)
    assert out.worse == {}


def test_a_page_that_cannot_be_clicked_for_two_hours_is_no_difference() -> None:
    stream = split(hours=8.0, rate=300.0)
    since = (stream.ts - stream.deploy) / HOUR
    for plan in (Plan(), Plan("split")):
        out = read(with_clicks(stream, (since < 2.0) | (since >= 4.0)), plan, SETTINGS)
        assert out.worse == {}, plan.setup


@dataclass(frozen=True)
class RolledBack(Plan):
    """The candidate serves for three hours, then the baseline for two, then the candidate again."""

    def serves(self, stream: Stream) -> NDArray[np.bool_]:
        since = (stream.ts - stream.deploy) / HOUR
        out: NDArray[np.bool_] = ((since >= 0) & (since < 3)) | (since >= 5)
        return out


def test_a_version_fixed_under_its_old_name_is_judged_by_its_new_behaviour() -> None:
    stream = draw(WORLDS["600 a minute"], PAIRS["identical"], 2, 11.0, alone=2.0)
    since = (stream.ts - stream.deploy) / HOUR
    odds = np.log(stream.pclick[0] / (1 - stream.pclick[0]))
    broken = 1 / (1 + np.exp(-odds - np.random.default_rng(3).normal(0, 0.8, odds.size)))
    stream = replace(stream, pclick=np.array([stream.pclick[0], np.where(since < 5, broken, stream.pclick[0])]))
    pipeline = Pipeline(SETTINGS, lambda: stream.ts[0] / 1000.0)
    said, found = [], None
    for _, some in batches(stream, RolledBack(), pipeline.catalog, np.arange(stream.ts[0], stream.end, HOUR // 2)):
        for batch in some:
            pipeline.take(batch)
        pipeline.advance()
        now = pipeline.snapshot()
        deploy, found = deploy_and_comparison(now.deploys, now.comparisons, MODEL, CANDIDATE)
        word = (deploy and deploy.kind, found.verdict if found else "undecided")
        if [word] != said[-1:]:
            said.append(word)
    assert said == [
        (None, "undecided"),
        ("deploy", "undecided"),
        ("deploy", "worse"),
        ("rollback", "undecided"),
        ("rollback", "not_worse"),
    ]
    assert found is not None
    assert [m.difference for m in found.metrics] == [0.0] * 4, headline(found)
