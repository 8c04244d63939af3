"""An event that an online model cannot take: counted, named, and no harm to anything but that model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from river import compose, linear_model, optim, preprocessing, tree

from streameval.app import open_store
from streameval.events.batch import Batch
from streameval.loop import row_counts
from streameval.loop.pipeline import Pipeline
from streameval.models.protocol import FAILURES, ModelError
from streameval.models.registry import make_model
from streameval.models.river import probability
from streameval.settings.tree import Settings
from streameval.sources.dead_letters import JsonlDeadLetters
from streameval.sources.formats.decode import Decoder
from streameval.store import container
from streameval.testing import ManualClock, Shown, make_batch, readers_see

BEGIN = 1_700_000_000_000


def divide(x: dict[str, float]) -> dict[str, float]:
    return {"ratio": x["a"] / x["b"]}


def ratio() -> Any:
    return compose.FuncTransformer(divide) | linear_model.LogisticRegression()


def scaled() -> Any:
    return preprocessing.StandardScaler() | linear_model.LogisticRegression()


class Answers(linear_model.LogisticRegression):
    """Answers what the event's feature `answer` says; a real classifier otherwise."""

    given = (
        None, {True: float("nan"), False: 0.5}, {True: -0.1, False: 1.1}, {True: 1.5, False: -0.5}, {True: 1.0},
        {False: 1.0}, {}, {"True": 0.3, "False": 0.7}, {True: None, False: 1.0}, {True: "0.5", False: 0.5},
        {True: float("inf"), False: 0.0},
    )  # fmt: skip
    reasons = (
        "no_answer", "not_finite", "out_of_range", "out_of_range", "one_class", "one_class", "one_class",
        "other_labels", "not_a_number", "not_a_number", "not_finite",
    )  # fmt: skip

    def predict_proba_one(self, x: dict[str, float]) -> Any:
        return self.given[int(x["answer"])] if "answer" in x else super().predict_proba_one(x)


class Fixed(linear_model.LogisticRegression):
    """0.3, whatever it has learned; `bad` events cannot be scored, `sour` ones cannot be learned."""

    def predict_proba_one(self, x: dict[str, float]) -> Any:
        if "bad" in x:
            raise KeyError(str(x))
        return {False: 0.7, True: 0.3}

    def learn_one(self, x: dict[str, float], y: bool) -> None:
        if "sour" in x:
            raise ValueError(str(x))


def broken() -> Any:
    raise RuntimeError("no such weights")


def river(factory: str, name: str = "lr", **more: Any) -> dict[str, Any]:
    return {"name": name, "kind": "river", "factory": f"{__name__}:{factory}", **more}


def new_pipeline(
    *models: dict[str, Any], window: str = "1s", lateness: int | str = 0, score_at: str = "impression"
) -> Pipeline:
    return Pipeline(
        Settings.model_validate(
            {
                "join": {
                    "attribution_window": window, "allowed_lateness": lateness, "request_gap": 0, "score_at": score_at,
                },
                "models": list(models),
            }
        ),
        ManualClock(),
    )  # fmt: skip


def shown(i: int, every: int = 3, **features: float) -> Shown:
    return Shown(f"i{i}", BEGIN + i * 100, clicked=int(i % every == 0), features=features or {"a": 1.0, "b": 2.0})


def take(pipeline: Pipeline, events: list[Shown], size: int) -> None:
    for start in range(0, len(events), size):
        pipeline.take(make_batch(events[start : start + size], pipeline.catalog))


def impressions(pipeline: Pipeline, source: str, model: str | None = None) -> int:
    found = [
        r.totals.impressions
        for r in readers_see(pipeline).results
        if r.series.source == source and r.window == "all" and model in (None, r.series.model)
    ]
    return sum(found)


def failures(pipeline: Pipeline, model: str = "lr") -> dict[str, int]:
    return {reason: n for reason, n in readers_see(pipeline).online_failures[model].items() if n}


def test_one_event_costs_its_score_and_nothing_else(caplog: pytest.LogCaptureFixture) -> None:
    pipeline = new_pipeline(river("ratio"), {"name": "ftrl", "kind": "ftrl", "bits": 8})
    events = [shown(i, a=1.0, b=0.0 if i == 50 else 2.0) for i in range(100)]
    take(pipeline, events, 10)
    pipeline.finish()
    assert impressions(pipeline, "logged") == impressions(pipeline, "online", "ftrl") == 100
    assert impressions(pipeline, "online", "lr") == 99
    assert failures(pipeline) == {"raised": 1, "learn_raised": 1}
    assert failures(pipeline, "ftrl") == {}
    assert readers_see(pipeline).online_updates == {"lr": 99, "ftrl": 100}
    assert not readers_see(pipeline).suspensions
    assert "ZeroDivisionError" in caplog.text


@pytest.mark.parametrize("answer", range(len(Answers.given)))
def test_an_answer_that_is_no_probability_is_a_failure_with_a_name(answer: int) -> None:
    pipeline = new_pipeline(river("Answers"))
    take(pipeline, [shown(i) for i in range(30)], 1)  # both labels are learned
    take(pipeline, [shown(30, answer=answer), *(shown(i) for i in range(31, 50))], 1)
    pipeline.finish()
    assert failures(pipeline) == {Answers.reasons[answer]: 1}
    assert Answers.reasons[answer] in FAILURES
    assert impressions(pipeline, "online") == 49
    assert impressions(pipeline, "logged") == 50
    results = [r for r in readers_see(pipeline).results if r.series.source == "online"]
    assert all(0.2 < r.metrics["mean_pclick"] < 0.6 for r in results)  # and not 0.0 or 1.0 of the failure


def test_one_event_that_makes_every_later_score_nan_suspends_the_model(caplog: pytest.LogCaptureFixture) -> None:
    """What StandardScaler does with 1e308."""
    pipeline = new_pipeline(river("scaled", max_failures=20))
    take(pipeline, [shown(i, a=1e308 if i == 40 else float(i % 7)) for i in range(200)], 7)
    pipeline.finish()
    (suspended,) = readers_see(pipeline).suspensions
    assert (suspended.model, suspended.topic, suspended.partition) == ("lr", "impressions", 0)
    assert (suspended.verb, suspended.reason) == ("score", "not_finite")
    assert failures(pipeline) == {"not_finite": 20}
    assert impressions(pipeline, "logged") == 200
    assert impressions(pipeline, "online") < 200 - 100
    assert [r.levelname for r in caplog.records if "is suspended since impressions, partition 0" in r.message] == [
        "ERROR"
    ]


def test_a_classifier_that_knows_no_label_yet_is_counted_and_not_suspended() -> None:
    pipeline = new_pipeline({**river("x"), "factory": "river.tree.HoeffdingTreeClassifier", "max_failures": 2})
    take(pipeline, [shown(i, every=150) for i in range(1, 300)], 1)
    pipeline.finish()
    assert isinstance(pipeline.partitions[0].learners[0].model._model, tree.HoeffdingTreeClassifier)
    # the first click is learned a window after its impression
    assert failures(pipeline) == {"not_learned_yet": 159}
    assert impressions(pipeline, "online") == 299 - 159
    assert not readers_see(pipeline).suspensions


def outcome(pipeline: Pipeline) -> tuple[Any, ...]:
    pipeline.finish()
    snapshot = readers_see(pipeline)
    report = snapshot.report()
    return report["results"], report["events"], snapshot.suspensions, snapshot.online_failures


@pytest.mark.slow
@pytest.mark.parametrize("score_at", ["impression", "label"])
@pytest.mark.parametrize("kind", ["bad", "sour"])
def test_a_suspension_does_not_depend_on_batches(kind: str, score_at: str) -> None:
    rng = np.random.default_rng(1)
    events = [
        shown(i, **({kind: 1.0} if rng.random() < (0.2 if i > 300 else 0.005) else {"a": 1.0})) for i in range(900)
    ]
    events = [events[i] for i in np.argsort(np.arange(900) + rng.uniform(0, 8, 900))]
    seen = []
    for size in (1, 7, 100, 1000):
        pipeline = new_pipeline(river("Fixed", max_failures=10), window="3s", lateness="1s", score_at=score_at)
        take(pipeline, events, size)
        seen.append(outcome(pipeline))
    assert len(seen[0][2]) == 1
    assert 200 < impressions(pipeline, "online") < 800
    assert all(one == seen[0] for one in seen)


@pytest.mark.parametrize("score_at", ["impression", "label"])
def test_a_suspension_does_not_depend_on_the_pieces_in_which_labels_are_counted(
    score_at: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    events = [shown(i, **({"sour": 1.0} if i > 300 and i % 5 == 0 else {"a": 1.0})) for i in range(900)]
    seen = []
    for piece in (7, 1 << 15):
        monkeypatch.setattr(row_counts, "_PIECE", piece)
        pipeline = new_pipeline(river("Fixed", max_failures=10), window="3s", lateness="1s", score_at=score_at)
        take(pipeline, events, 1000)
        seen.append(outcome(pipeline))
    assert len(seen[0][2]) == 1
    assert seen[0] == seen[1]


def test_a_share_of_failures_below_one_in_a_hundred_never_suspends() -> None:
    pipeline = new_pipeline(river("Fixed", max_failures=3))
    take(pipeline, [shown(i, **({"bad": 1.0} if i % 150 == 0 else {"a": 1.0})) for i in range(3000)], 100)
    pipeline.finish()
    assert failures(pipeline) == {"raised": 20}
    assert not readers_see(pipeline).suspensions


def restarted(pipeline: Pipeline, path: Path, *models: dict[str, Any]) -> Pipeline:
    state = pipeline.partition_state(0)
    assert state is not None
    container.write(path, state)
    tree = container.read(path)
    for learner in tree["monitor"]["learners"]:
        if "pickle" in learner["model"]:
            learner["model"]["pickle"] = learner["model"]["pickle"].tobytes()
    after = new_pipeline(*models, window="3s")
    after.restore_partition(0, tree)
    return after


@pytest.mark.parametrize("kind", ["bad", "sour"])
def test_failures_and_suspensions_survive_restarts(kind: str, tmp_path: Path) -> None:
    model = river("Fixed", max_failures=10)
    events = [shown(i, **({kind: 1.0} if i % 40 == 7 else {"a": 1.0})) for i in range(1500)]
    truth = new_pipeline(model, window="3s")
    take(truth, events, 50)
    pipeline = new_pipeline(model, window="3s")
    for n, start in enumerate(range(0, len(events), 50)):
        take(pipeline, events[start : start + 50], 50)
        if n % 4 == 2:
            pipeline = restarted(pipeline, tmp_path / "checkpoint", model)
    assert len(readers_see(pipeline).suspensions) == 1
    assert outcome(pipeline) == outcome(truth)


def test_another_revision_begins_the_model_anew_and_keeps_all_else(tmp_path: Path) -> None:
    ftrl = {"name": "ftrl", "kind": "ftrl", "bits": 8}
    pipeline = new_pipeline(river("Fixed", max_failures=1), ftrl, window="3s")
    take(pipeline, [shown(i, bad=1.0) for i in range(100)], 10)
    assert len(readers_see(pipeline).suspensions) == 1
    pipeline = restarted(pipeline, tmp_path / "checkpoint", river("ratio", revision=1), ftrl)
    assert not readers_see(pipeline).suspensions
    take(pipeline, [shown(i) for i in range(100, 200)], 10)
    pipeline.finish()
    assert impressions(pipeline, "logged") == impressions(pipeline, "online", "ftrl") == 200
    assert impressions(pipeline, "online", "lr") == 100


class Meddling(linear_model.LogisticRegression):
    """Leaves nothing of the features that it is given."""

    def predict_proba_one(self, x: dict[str, float]) -> Any:
        answer = super().predict_proba_one(x)
        x.clear()
        return answer

    def learn_one(self, x: dict[str, float], y: bool) -> None:
        super().learn_one(x, y)
        x.clear()


def test_a_model_that_changes_the_features_changes_no_other() -> None:
    alone, beside = new_pipeline(river("Answers")), new_pipeline(river("Meddling", "first"), river("Answers"))
    for pipeline in (alone, beside):
        take(pipeline, [shown(i, x=float(i % 7)) for i in range(300)], 50)
        pipeline.finish()
    scores = [[r.metrics for r in readers_see(p).results if r.series.model == "lr"] for p in (alone, beside)]
    assert scores[0]
    assert scores[0] == scores[1]


def test_the_report_names_failures_and_suspensions() -> None:
    pipeline = new_pipeline(river("ratio", max_failures=1))
    events = [shown(i, a=1.0, b=float(i != 5)) for i in range(20)]
    take(pipeline, events, 5)
    pipeline.finish()
    (found,) = readers_see(pipeline).report()["online_failures"].items()
    assert found[0] == "lr"
    assert found[1]["events"] == failures(pipeline)
    assert "is suspended since" in found[1]["suspended"][0]


def test_the_place_of_a_failure_is_the_offset_of_its_message() -> None:
    pipeline = new_pipeline(river("Fixed", max_failures=1), window="3s")
    decoder = Decoder(pipeline.catalog, clock=lambda: BEGIN * 2, max_future=0, dicts=True)

    def messages(values: list[bytes], first: int) -> Batch:
        offsets = list(range(first, first + len(values)))
        return decoder.messages(
            values, [0] * len(values), topic=("impressions",), partition=5, offsets=offsets, format="json", shared=True
        )[0]

    def one(i: int, feature: str) -> str:
        return f'{{"impression_id":"i{i}","user_id":"u","model":"m","model_version":"v","pclick":0.1,"ts":{BEGIN + i},"features":{{"{feature}":1}}}}'

    pipeline.take(messages([one(0, "a").encode(), b"rubbish"], 10))
    array = f"[{one(1, 'a')},{one(2, 'a')}]".encode()
    pipeline.take(
        messages([array, b"rubbish", f"[{one(3, 'a')},{one(4, 'bad')}]".encode(), one(5, "bad").encode()], 12)
    )
    (suspended,) = readers_see(pipeline).suspensions
    assert (suspended.partition, suspended.offset) == (5, 14)
    assert "partition 5, offset 14" in suspended.words()


def test_a_factory_that_raises_is_one_error_that_names_the_entry() -> None:
    with pytest.raises(ModelError, match=r'models "lr": factory = ".*:broken" .*RuntimeError: no such weights'):
        new_pipeline(river("broken"))


def test_a_module_that_raises_when_imported_is_one_error_that_names_the_entry(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "raises_at_import.py").write_text("raise OSError('no network')\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ModelError, match=r'models "lr": .*raises_at_import.*OSError: no network'):
        new_pipeline({**river("x"), "factory": "raises_at_import:model"})


def test_a_pickle_that_its_code_cannot_read_names_the_way_out() -> None:
    settings = Settings.model_validate({"models": [river("scaled")]})
    with pytest.raises(ModelError, match="raise `revision`"):
        make_model(settings.models[0]).restore({"pickle": b"\x80\x04cno_such_module\nModel\n."})


def with_a_lambda() -> Any:
    return compose.FuncTransformer(lambda x: x) | linear_model.LogisticRegression()


def test_a_model_that_no_checkpoint_can_hold_is_refused_at_the_start(tmp_path: Path) -> None:
    settings = Settings.model_validate({"models": [river("with_a_lambda")], "store": {"path": str(tmp_path)}})
    with pytest.raises(ModelError, match=r'models "lr": a Pipeline cannot be pickled.*unset store.path'):
        open_store(settings, Pipeline(settings, ManualClock()), JsonlDeadLetters(""))


def test_numpy_numbers_and_integers_are_probabilities() -> None:
    model = linear_model.LogisticRegression(optim.SGD(1e300))
    model.learn_one({"a": 1.0}, True)
    assert type(model.predict_proba_one({"a": 1.0})[True]) is int
    assert probability(model.predict_proba_one({"a": 1.0})) == 1.0
    assert probability({np.True_: np.float64(0.25), np.False_: np.float32(0.75)}) == 0.25
