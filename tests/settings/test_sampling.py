"""`[sampling]`: what it asks for, and what cannot be made of a sample."""

from __future__ import annotations

import json

import numpy as np
import pytest

from streameval import evaluate
from streameval.events.batch import Catalog
from streameval.events.fields import needed
from streameval.join import sampled
from streameval.loop import make
from streameval.loop.options import options_of
from streameval.loop.pipeline import Pipeline
from streameval.settings.tree import Settings
from streameval.sources.formats.decode import Decoder
from streameval.testing import ManualClock, Shown, Tap, make_batch, readers_see

T0 = 1_700_000_000_000


def settings(sampling: dict[str, object], **more: object) -> Settings:
    return Settings.model_validate({"sampling": sampling, **more})


@pytest.mark.parametrize(
    ("sampling", "more", "why"),
    [
        ({"negatives": 0.1, "weights": True}, {}, "negatives = 0.1: cannot be used with weights = true"),
        ({"negatives": 0}, {}, "greater than or equal to 0.001"),
        ({"recalibrate": ["v1"]}, {}, "trained_negatives"),
        ({"trained_negatives": 0.1}, {}, r"recalibrate = \[\]: goes with trained_negatives"),
        ({"trained_negatives": 0.1, "recalibrate": [""]}, {}, "matches no version"),
        ({"negatives": 0.1}, {"users": {"weighting": "uniform"}}, 'users.weighting = "uniform" cannot be estimated'),
        ({"negatives": 0.1}, {"compare": {"more": ["ctr"]}}, "compare.more cannot be estimated"),
        ({"weights": True}, {"compare": {"strict": True}}, "compare.strict cannot be estimated"),
        ({"weights": True}, {"strata": {}}, "strata.by cannot be estimated"),
        ({"weights": True}, {"auction": {"points": [{"name": "now"}]}}, "auction.points cannot be estimated"),
        ({"weights": True}, {"exposure": {"propensity": "popularity"}}, "exposure.propensity"),
        ({"weights": True}, {"slices": {"dimensions": ["propensity"]}}, "slices.dimensions"),
    ],
)
def test_what_cannot_be_is_refused_by_name(sampling: dict[str, object], more: dict[str, object], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        settings(sampling, **more)


def test_without_it_nothing_is_kept_nor_added() -> None:
    plain = Settings()
    assert "weight" not in [field.name for field in needed(plain)]
    assert "weights" not in [tally.name for tally in options_of(plain).tallies]
    assert [field.name for field in needed(settings({"weights": True})) if field.name == "weight"] == ["weight"]
    assert plain.sampling.binding is None


def test_a_weight_out_of_range_is_a_dead_letter_with_its_field() -> None:
    event = {"type": "impression", "impression_id": "a", "ts": T0, "user_id": "u", "pclick": 0.1}
    values = [json.dumps({**event, "weight": w}).encode() for w in (100, 0.25, 1000, 0, -1, 1000.5, "many")]
    batch, letters = Decoder(Catalog(), clock=lambda: T0 + 1_000, max_future=0).messages(
        values, [0] * 7, topic=("t",), partition=0, offsets=range(7), format="json", shared=True
    )
    assert batch.impressions.fields["weight"].tolist() == [100, 0.25, 1000]
    assert [(x.reason, x.field) for x in letters] == [("out_of_range", "weight")] * 3 + [("wrong_type", "weight")]


def test_pclick_is_corrected_by_the_stated_share_and_results_say_so() -> None:
    asked = settings({"negatives": 0.1, "trained_negatives": 0.1, "recalibrate": ["new*"]})
    p = {"old": 0.05, "new-1": 0.4}
    found = {}
    for config in (asked, settings({"negatives": 0.1})):
        pipeline = Pipeline(config, ManualClock())
        shown = [
            Shown(id=f"{version}{i}", ts=T0 + i, user=f"u{i % 40}", pclick=p[version] + i / 10_000, version=version)
            for version in p
            for i in range(200)
        ]
        taps = [Tap(id=f"{version}{i}", ts=T0 + 500 + i) for version in p for i in range(0, 200, 9)]
        pipeline.take(make_batch([*sorted(shown, key=lambda e: e.ts), *taps], pipeline.catalog))
        pipeline.finish()
        snapshot = readers_see(pipeline)
        results = {r.series.version: r for r in snapshot.results if r.window == "all"}
        found[config.sampling.trained_negatives] = results
        rows = {row["version"]: row for row in snapshot.report()["results"] if row["window"] == "all"}
        assert rows["old"]["recalibrated"] is None
        assert rows["new-1"]["recalibrated"] == (0.1 if config is asked else None)
        words = snapshot.report()["sampling"]
        assert words[0].startswith("the log holds 10% of the non-clicks, each counts as 10")
        assert words[1:] == (
            ["pClick of new* is re-calibrated: trained on 10% of the non-clicks"] if config is asked else []
        )
    was, now = found[1.0], found[0.1]
    assert now["old"].as_json() == was["old"].as_json()
    given = 0.4 + np.arange(200) / 10_000
    corrected = given / (given + (1 - given) / 0.1)
    clicked = np.isin(np.arange(200), np.arange(0, 200, 9))
    weight = np.where(clicked, 1, 10)
    assert now["new-1"].metrics["mean_pclick"] == pytest.approx((corrected * weight).sum() / weight.sum())
    assert was["new-1"].metrics["mean_pclick"] == pytest.approx((given * weight).sum() / weight.sum())
    assert now["new-1"].metrics["gauc"] == was["new-1"].metrics["gauc"]


def test_a_table_whose_labels_are_known_is_not_counted_as_if_it_were_whole() -> None:
    table = {"y": [0, 1, 0, 1], "p": [0.1, 0.2, 0.3, 0.4], "u": ["a", "a", "b", "b"]}
    result = evaluate(table, label="y", score="p", user="u", settings={"sampling": {"negatives": 0.1}})
    assert [row["impressions"] for row in result.results.to_pylist()] == [2 + 20]


def test_scoreboards_of_samples_have_the_tally_of_weights() -> None:
    asked = settings({"weights": True})
    assert make.policy(asked, Catalog(), 0).keep[-1].name == "weight"
    assert make.policy(settings({"negatives": 0.5}), Catalog(), 0).negatives == 0.5
    assert "weights" in [tally.name for tally in options_of(asked).tallies]


def test_weights_that_nobody_reads_are_told_once(caplog: pytest.LogCaptureFixture) -> None:
    sampled._tell.cache_clear()
    for config, warnings in ((settings({"weights": True}), 0), (Settings(), 1)):
        caplog.clear()
        pipeline = Pipeline(config, ManualClock())
        for i in range(3):
            shown = Shown(id=f"i{i}", ts=T0 + i, user="u", pclick=0.1, fields={"weight": 7.0})
            pipeline.take(make_batch([shown], pipeline.catalog))
        assert len([r for r in caplog.records if "which is ignored" in r.message]) == warnings
    sampled._tell.cache_clear()
