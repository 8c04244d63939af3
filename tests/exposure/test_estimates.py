"""Propensities by popularity and by a model of what was shown: by the hour, whatever the batches, restarts and silences."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from streameval.counting import popularity, shown_model
from streameval.counting.estimates import Maturing
from streameval.counting.popularity import ItemPopularity
from streameval.counting.shown_model import ShownModel
from streameval.events.hashing import hash_strings
from streameval.exposure.popularity import propensities
from streameval.loop.pipeline import Pipeline
from streameval.settings.tree import Settings
from streameval.sources.formats.decode import Decoder
from streameval.store import container
from streameval.testing import ManualClock, readers_see
from tests.exposure.worlds import T0, make_settings
from tests.laws.streams import differences

pytestmark = pytest.mark.slow

HOUR = 3_600_000
START = T0 // HOUR * HOUR
ITEMS, USERS = 30, 40
Event = dict[str, Any]


def config(source: str) -> Settings:
    return make_settings(
        exposure={"propensity": source}, strata={"by": "popularity", "count": 3}, ranking={"k": [2], "by_user": []}
    )


def bias(of: str, number: int) -> float:
    return float(np.sin(number * 12.9898 + len(of)) * 1.2)


def traffic(requests: int = 1_000, hours: float = 3.0, seed: int = 5) -> list[Event]:
    """Requests of up to 5 candidates, shown by the odds of their item and user; clicks that come, some long after maturity."""
    rng = np.random.default_rng(seed)
    out: list[Event] = []
    for r in range(requests):
        user, ts = int(rng.integers(USERS)), START + int(hours * HOUR * r / requests)
        for place, item in enumerate(rng.choice(ITEMS, 5, replace=False).tolist()):
            shown = rng.random() < 1 / (1 + np.exp(-bias("item", item) - bias("user", user)))
            event = {
                "impression_id": f"i{r}-{place}", "request_id": f"r{r}", "ts": ts + place, "user_id": f"u{user}", "item_id": f"x{item}",
                "pclick": float(np.round(rng.beta(1, 5), 2)), "model_version": "v1", "position": place,
            }  # fmt: skip
            out.append({**event, **({} if shown else {"shown": False})})
            if shown and rng.random() < 0.2:
                late = 900 + (rng.random() < 0.1) * 600_000
                out.append(
                    {
                        "type": "click",
                        "impression_id": event["impression_id"],
                        "ts": ts + 900,
                        "user_id": event["user_id"],
                        "at": ts + late,
                    }
                )
    for event in out:
        event.setdefault("at", event["ts"])
    out.sort(key=lambda event: event["at"])
    return [{key: value for key, value in event.items() if key != "at"} for event in out]


class Process:
    def __init__(self, source: str) -> None:
        self.pipeline = Pipeline(config(source), ManualClock(T0 / 1000 + 100_000))
        self.decoder = Decoder(self.pipeline.catalog, clock=lambda: T0 + 100_000_000, max_future=0)

    def take(self, events: list[Event], partition: int = 0, shared: bool = True) -> None:
        values = [json.dumps(event).encode() for event in events]
        batch, letters = self.decoder.messages(
            values, [0] * len(values), topic=("t",), partition=partition, offsets=range(len(values)), format="json", shared=shared
        )  # fmt: skip
        assert not letters
        self.pipeline.take(batch)

    def end(self) -> list[dict[str, Any]]:
        self.pipeline.finish()
        return list(readers_see(self.pipeline).report()["results"])


def run(source: str, events: list[Event], size: int) -> list[dict[str, Any]]:
    process = Process(source)
    for start in range(0, len(events), size):
        process.take(events[start : start + size])
    return process.end()


def whole(results: list[dict[str, Any]]) -> dict[str, Any]:
    return next(r for r in results if r["window"] == "all" and r["slice"] is None)


def hours(events: list[Event]) -> list[int]:
    return [event["ts"] // HOUR - START // HOUR for event in events]


def expected(source: str, events: list[Event]) -> dict[str, float]:
    """By impression; what is not in it has none."""
    shown = [e for e in events if e.get("type") != "click" and e.get("shown", True)]
    others = [e for e in events if not e.get("shown", True)]
    out: dict[str, float] = {}
    for h in (1, 2):
        before = [e for e, of in zip(shown, hours(shown), strict=True) if of < h]
        now = [e for e, of in zip(shown, hours(shown), strict=True) if of == h]
        if source == "popularity":
            items, counts = np.unique([e["item_id"] for e in before], return_counts=True)
            table = dict(zip(items.tolist(), propensities(counts).tolist(), strict=True))
            out.update({e["impression_id"]: table[e["item_id"]] for e in now if e["item_id"] in table})
            continue
        past = before + [e for e, of in zip(others, hours(others), strict=True) if of < h]
        x = np.array([[int(e["item_id"][1:]), int(e["user_id"][1:])] for e in past])
        y = np.array([e.get("shown", True) for e in past], float)
        design = np.concatenate((np.eye(ITEMS)[x[:, 0]], np.eye(USERS)[x[:, 1]]), axis=1)
        theta = np.zeros(ITEMS + USERS)
        for _ in range(60):  # Newton's method, written out
            p = 1 / (1 + np.exp(-design @ theta))
            theta += np.linalg.lstsq(design.T @ (design * (p * (1 - p))[:, None]), design.T @ (y - p), rcond=None)[0]
        for e in now:
            eta = theta[int(e["item_id"][1:])] + theta[ITEMS + int(e["user_id"][1:])]
            out[e["impression_id"]] = float(1 / (1 + np.exp(-eta)))
    return out


@pytest.mark.parametrize("source", ["popularity", "logistic"])
def test_the_weights_of_an_hour_are_those_of_the_hours_before(source: str) -> None:
    events = traffic()
    found = whole(run(source, events, 5_000))
    known = expected(source, events)
    clicked = {e["impression_id"] for e in events if e.get("type") == "click"}
    shown = [e for e in events if e.get("type") != "click" and e.get("shown", True) and e["impression_id"] in known]
    weight = np.array([1 / max(known[e["impression_id"]], 1e-4) for e in shown])
    error = np.array([abs(e["pclick"] - (e["impression_id"] in clicked)) for e in shown])
    assert found["with_propensity"] == len(shown) > 1_000
    assert found["exposure_ess"] == pytest.approx(weight.sum() ** 2 / (weight**2).sum(), rel=1e-5)
    assert found["mae_snips"] == pytest.approx((weight * error).sum() / weight.sum(), rel=1e-5)
    assert found["corrected"] > 20
    assert found["exposure_requests"] > 300
    assert found["dcg_2_snips"] > 0
    popular = expected("popularity", events)
    rows = found["strata"]
    assert sum(row["impressions"] for row in rows if row["lower"] is not None) == len(popular)
    for row in rows[:-1]:
        inside = [p for p in popular.values() if row["lower"] <= p < row["upper"] or p == row["upper"] == 1.0]
        assert row["impressions"] == len(inside)
        assert row["inverse_mass"] == pytest.approx(sum(1 / p for p in inside), rel=1e-9)
    assert found["reasons"]["policy_snips"] == "no_policy"


def test_the_true_odds_are_found_from_what_was_not_shown() -> None:
    """By popularity a user who is shown little counts as the others; the model knows him."""
    events = traffic(5_000, hours=2.0)
    process = Process("logistic")
    process.take(events)
    estimates = process.pipeline.partitions[0].estimates
    assert estimates is not None
    model = estimates._by_source["logistic"]
    assert isinstance(model, ShownModel)
    at = {int(of): n for n, of in enumerate(model._items.tolist())}
    item = np.array([at[int(of)] for of in hash_strings([f"x{i}" for i in range(ITEMS)]).tolist()])
    found = model._biases.item[item]
    true = np.array([bias("item", i) for i in range(ITEMS)])
    assert np.abs((found - found.mean()) - (true - true.mean())).max() < 0.4


@pytest.mark.parametrize("source", ["popularity", "logistic"])
def test_batches_and_order_within_the_lateness_change_no_bit(source: str) -> None:
    events = traffic(450)
    truth = run(source, events, 100_000)
    for size in (61,):
        assert run(source, events, size) == truth
    rng = np.random.default_rng(1)
    place = np.array([event["ts"] for event in events]) + rng.integers(0, 25_000, len(events))
    late = np.array([n for n, event in enumerate(events) if event.get("type") == "click"])
    place[late] = np.maximum.accumulate([event["ts"] for event in events])[late]  # corrections stay corrections
    shuffled = [events[i] for i in np.argsort(place, kind="stable")]
    for name in ("log_loss_snips", "exposure_ess", "dcg_2_snips", "exposure_requests", "strata"):
        assert whole(run(source, shuffled, 77))[name] == whole(truth)[name]


@pytest.mark.parametrize("source", ["popularity", "logistic"])
def test_a_restart_changes_nothing(source: str, tmp_path: Path) -> None:
    events = traffic(450)
    truth = run(source, events, 100_000)
    first = Process(source)
    for n, start in enumerate(range(0, len(events), 800)):
        # what was read before the checkpoint comes again: impressions and clicks are known, candidates are not told from others
        first.take(events[start : start + (800 if source == "logistic" else 900)])
        state = first.pipeline.partition_state(0)
        assert state is not None
        container.write(tmp_path / f"{n}", state)
        second = Process(source)
        second.pipeline.catalog.series_code("other", "v9")  # codes differ
        second.pipeline.restore_partition(0, container.read(tmp_path / f"{n}"))
        again = second.pipeline.partition_state(0)
        assert again is not None
        container.write(tmp_path / "again", again)
        saved = [container.read(tmp_path / name)["monitor"]["estimates"] for name in (f"{n}", "again")]
        assert json.dumps(saved[0], default=str) == json.dumps(saved[1], default=str)
        first = second
    assert not differences(first.end(), truth)


@pytest.mark.parametrize("source", ["popularity", "logistic"])
def test_partitions_estimate_their_own_and_their_sums_add_up(source: str) -> None:
    events = traffic(600)
    of_click = {e["impression_id"]: e["user_id"] for e in events if e.get("type") != "click"}
    parts = [[e for e in events if int(of_click[e["impression_id"]][1:]) % 2 == n] for n in (0, 1)]
    both, alone = Process(source), [Process(source) for _ in range(2)]
    for n, part in enumerate(parts):
        for start in range(0, len(part), 300):
            both.take(part[start : start + 300], n)
        alone[n].take(part)
    together, apart = whole(both.end()), [whole(process.end()) for process in alone]
    assert together["with_propensity"] == sum(one["with_propensity"] for one in apart) > 500
    total = sum(one["log_loss_ips"] * one["with_propensity"] for one in apart)
    assert together["log_loss_ips"] * together["with_propensity"] == pytest.approx(total, rel=1e-12)


def test_labels_shown_while_an_input_is_silent_weigh_once_they_are_mature() -> None:
    events = traffic(450)
    impressions = [e for e in events if e.get("type") != "click"]
    clicks = [e for e in events if e.get("type") == "click"]
    truth, silent = Process("popularity"), Process("popularity")
    for process in (truth, silent):
        process.take(impressions, shared=False)
    silent.pipeline.partitions[0].set_idle(1, True)
    shown = whole(readers_see(silent.pipeline).report()["results"])
    assert shown["impressions"] > 500
    assert shown["with_propensity"] == shown["exposure_requests"] == 0
    for process in (truth, silent):
        process.take(clicks, shared=False)
    expected_results = truth.end()
    assert whole(expected_results)["exposure_requests"] > 50
    found = silent.end()
    for name in ("with_propensity", "log_loss_snips", "exposure_requests", "dcg_2_snips", "strata"):
        assert whole(found)[name] == whole(expected_results)[name]


def maturing(hour: int, item: np.ndarray, user: np.ndarray) -> Maturing:
    n = item.size
    return Maturing(
        np.full(n, hour), item, user, np.zeros(n, np.int64), np.zeros(n, np.int8), np.zeros(n, np.int8), np.ones(n, np.bool_)
    )  # fmt: skip


def test_a_candidate_that_comes_twice_counts_once_also_after_a_restart_and_beyond_the_budget(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(shown_model, "_MOST", 300)
    rng = np.random.default_rng(3)
    items, users = (rng.integers(1, 1 << 63, n).astype(np.uint64) for n in (6, 400))
    item, user = rng.choice(items, 500), rng.choice(users, 500)
    ids = np.arange(1, 501).astype(np.uint64)
    again = rng.permutation(np.concatenate((np.arange(500), rng.integers(0, 500, 700))))

    def hour_of(order: np.ndarray, restarts: bool) -> dict[str, Any]:
        model = ShownModel(60_000)
        model.of(maturing(1, items, users[:6]))
        for part in np.array_split(order, 9):
            model._hours[1].add(item[part], user[part], ids[part])
            if restarts:
                state, model = model.state(), ShownModel(60_000)
                model.restore(state)
        (found,) = model.state()["hours"]
        return found

    once = hour_of(np.arange(500), False)
    assert once["level"] > 0
    assert np.unique(once["id"]).size - 1 == np.count_nonzero(~once["shown"]) > 50
    for restarts in (False, True):
        twice = hour_of(again, restarts)
        assert twice["level"] == once["level"]
        assert all(np.array_equal(twice[name], once[name]) for name in ("item", "user", "shown", "id"))


def test_a_checkpoint_without_the_ids_of_candidates_is_read() -> None:
    model = ShownModel(60_000)
    ids = np.arange(1, 30).astype(np.uint64)
    model.of(maturing(1, ids, ids))
    model._hours[1].add(ids, ids, ids)
    state = model.state()
    older = {**state, "hours": [{k: v for k, v in one.items() if k != "id"} for one in state["hours"]]}
    again = ShownModel(60_000)
    again.restore(older)
    (hour,) = again.state()["hours"]
    assert hour["item"].size == 58, "each stands for itself"


def test_beyond_their_budget_items_and_users_are_sampled_alike_in_any_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(popularity, "_MOST", 64)
    monkeypatch.setattr(shown_model, "_MOST", 200)
    rng = np.random.default_rng(2)
    ids = rng.integers(0, 1 << 64, 1_000, dtype=np.uint64)
    item, user = rng.choice(ids, 5_000), rng.choice(ids[:50], 5_000)
    order = rng.permutation(5_000)
    later = maturing(2, ids, ids)
    found = []
    for rows in (np.arange(5_000), order):
        one, model = ItemPopularity(), ShownModel(60_000)
        for part in np.array_split(rows, 7):
            one.of(maturing(1, item[part], user[part]))
            one.state()  # counts what waits
            model.of(maturing(1, item[part], user[part]))
        found.append((one.of(later), one.state()["level"], model.state()["hours"][0]["level"]))
    (first, level, of_model), (second, *levels) = found
    assert np.array_equal(first, second, equal_nan=True)
    assert 0 < np.count_nonzero(first > 0) <= 64
    assert levels == [level, of_model]
    assert level > 0
    assert of_model > 0
