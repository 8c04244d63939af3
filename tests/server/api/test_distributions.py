"""Histograms of scores and of users: exact sums, edges that cut nothing, nobody named."""

from __future__ import annotations

import gc
from dataclasses import replace

import numpy as np
import pytest

from streameval.events.batch import Series
from streameval.metrics.tables import ScoreCounts, score_counts
from streameval.results.publish import Publisher
from streameval.results.snapshot import UserColumns
from streameval.server import create_app
from streameval.server.api.schemas.results import Scores
from streameval.server.api.schemas.shape import Problem
from streameval.server.api.schemas.users import UserDistribution
from streameval.server.api.score_bins import score_bins
from streameval.server.api.user_distribution import QUANTILES, Distributions, distribution
from streameval.settings.server import Server
from streameval.sketches.grid import bin_count, bin_edges, key_bin, score_keys
from streameval.sketches.layout import Layout

V1 = Series("default", "v1", "logged")
METRICS = ("auc", "log_loss", "calibration", "impressions")


def sketched(p: np.ndarray, y: np.ndarray, bits: int) -> ScoreCounts:
    at = np.array([key_bin(int(key), bits) for key in score_keys(p)])
    counts = [np.bincount(at[y == label], minlength=bin_count(bits)).astype(np.int64) for label in (0, 1)]
    return score_counts(counts[0], counts[1], Layout(bits, ()))


SCORES = {
    "small": lambda rng: rng.beta(1, 50, 5000),
    "all over": lambda rng: rng.random(5000),
    "ends": lambda rng: rng.choice([0.0, 1.0, 1e-12, 1 - 1e-12, 0.5], 500),
    "one": lambda rng: np.full(100, 0.3),
    "two": lambda rng: rng.choice([0.01, 0.9], 50),
    "near one": lambda rng: 1 - rng.beta(1, 900, 3000),
    "up to a half": lambda rng: np.minimum(rng.random(3000), 0.5),
    "a half and less": lambda rng: rng.choice([0.2, 0.5], 50),
    "a half and more": lambda rng: rng.choice([0.5, 0.50001, 0.9], 50),
    "a half": lambda rng: np.full(100, 0.5),
}


@pytest.mark.parametrize("bits", [7, 10])
@pytest.mark.parametrize("bins", [10, 60, 200])
@pytest.mark.parametrize("name", SCORES)
def test_bins_hold_whole_bins_of_the_sketch(name: str, bins: int, bits: int) -> None:
    rng = np.random.default_rng(1)
    p = SCORES[name](rng)
    y = (rng.random(p.size) < 0.3).astype(int)
    counts = sketched(p, y, bits)
    found = score_bins(counts, bins)
    assert 1 <= found.impressions.size <= bins
    assert found.edges.size == found.impressions.size + 1
    assert (np.diff(found.edges) > 0).all()
    assert found.edges[0] == counts.lower[0]
    assert found.edges[-1] == counts.upper[-1] or (counts.lower[-1] == 0.5 and found.edges[-1] in bin_edges(bits))
    for i in range(found.impressions.size):
        inside = (counts.lower >= found.edges[i]) & (counts.lower < found.edges[i + 1])
        assert (counts.upper[inside] <= found.edges[i + 1]).all()
        assert found.clicks[i] == counts.positives[inside].sum()
        assert found.impressions[i] == (counts.positives + counts.negatives)[inside].sum()
    assert (found.impressions.sum(), found.clicks.sum()) == (p.size, y.sum())


def test_bins_are_of_equal_width_in_odds_where_scores_are_dense() -> None:
    rng = np.random.default_rng(1)
    p = 1 / (1 + np.exp(-rng.uniform(-6, 6, 200_000)))
    found = score_bins(sketched(p, np.zeros(p.size, int), 10), 60)
    widths = np.diff(np.log(found.edges) - np.log1p(-found.edges))
    assert found.impressions.size == 60
    assert widths == pytest.approx(np.full(60, 12 / 60), rel=0.02)


@pytest.mark.parametrize("query", ["model=ftrl", "model=ftrl&window=5m&bins=10", "version=v1&slice=country:de"])
def test_the_scores_of_a_result_add_up_to_it(client, query: str) -> None:
    body = client.get(f"/api/v1/scores?{query}").json()
    Scores.model_validate(body)
    curve = client.get(f"/api/v1/roc?{query.replace('&bins=10', '')}").json()
    assert (body["window"], body["slice"]) == (curve["window"], curve["slice"])
    assert body["clicks_total"] == curve["clicks"]
    assert (sum(body["impressions"]), sum(body["clicks"])) == (body["impressions_total"], body["clicks_total"])
    assert all(0 <= p <= n for p, n in zip(body["clicks"], body["impressions"], strict=True))


def test_a_result_without_impressions_has_no_bins(client) -> None:
    body = client.get("/api/v1/scores?version=v2&window=5m").json()
    Scores.model_validate(body)
    assert (body["edges"], body["impressions"], body["clicks"], body["impressions_total"]) == ([], [], [], 0)


@pytest.mark.parametrize(
    ("query", "status", "words"),
    [
        ("scores", 422, "3 series fit"),
        ("scores?model=ftrl&bins=9", 422, "bins"),
        ("scores?model=ftrl&bins=201", 422, "bins"),
        ("scores?model=ftrl&window=2h", 404, "unknown; there are"),
        ("scores?version=v1&slice=country", 422, "country:<value>"),
        ("scores?model=ftrl&from=0", 409, "set store.path"),
        ("scores?model=ftrl&metric=auc", 422, "metric"),
        ("user-distribution", 422, "2 series fit"),
        ("user-distribution?version=v1&metric=ctr", 422, "metric"),
        ("user-distribution?version=v1&bins=5", 422, "bins"),
        ("user-distribution?version=nope", 404, "unknown"),
    ],
)
def test_a_bad_question_is_told_what_would_be_right(client, query: str, status: int, words: str) -> None:
    answer = client.get(f"/api/v1/{query}")
    assert answer.status_code == status
    Problem.model_validate(answer.json())
    assert words in answer.json()["detail"]


def many(n: int, seed: int = 0) -> UserColumns:
    rng = np.random.default_rng(seed)
    impressions = rng.geometric(0.05, n).astype(np.int64)
    clicks = rng.binomial(impressions, 0.1).astype(np.int64)
    pairs = (2 * clicks * (impressions - clicks) * rng.random(n)).astype(np.int64)
    return UserColumns(
        np.arange(n, dtype=np.uint64), impressions, clicks, pairs, impressions * rng.beta(1, 9, n),
        impressions * rng.random(n),
    )  # fmt: skip


def by_hand(users: UserColumns, metric: str) -> list[tuple[float, int]]:
    """(value, impressions) of every user that has one."""
    out = []
    for i in range(len(users)):
        n, p = int(users.impressions[i]), int(users.clicks[i])
        if metric == "impressions":
            out.append((float(n), n))
        elif metric == "log_loss":
            out.append((users.log_loss_nats[i] / n, n))
        elif metric == "calibration" and p:
            out.append((users.predicted_clicks[i] / p, n))
        elif metric == "auc" and 0 < p < n:
            out.append((users.pairs[i] / (2.0 * p * (n - p)), n))
    return out


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("bins", [10, 40])
def test_every_user_with_a_value_is_in_the_bin_of_that_value(metric: str, bins: int) -> None:
    users = many(3000)
    found = distribution(users, metric, bins)
    values = by_hand(users, metric)
    assert 1 <= len(found.users) <= bins
    assert list(found.edges) == sorted(set(found.edges))
    for i, (low, high) in enumerate(zip(found.edges, found.edges[1:], strict=False)):
        last = i == len(found.users) - 1
        inside = [n for v, n in values if low <= v < high or (last and v == high)]
        assert (found.users[i], found.impressions[i]) == (len(inside), sum(inside))
    assert sum(found.users) == len(values) == found.total - found.undefined
    assert found.quantiles == pytest.approx(np.quantile([v for v, _ in values], QUANTILES))


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("n", [0, 1, 2])
def test_few_or_equal_users_are_a_distribution_too(metric: str, n: int) -> None:
    same = [np.repeat(column[:1], n) for column in (many(50).impressions, many(50).clicks, many(50).pairs)]
    reals = [np.repeat(column[:1], n) for column in (many(50).predicted_clicks, many(50).log_loss_nats)]
    found = distribution(UserColumns(np.arange(n, dtype=np.uint64), *same, *reals), metric, 40)
    assert sum(found.users) + found.undefined == found.total == n
    perfect = UserColumns(np.arange(n, dtype=np.uint64), *same, np.zeros(n), np.zeros(n))
    assert sum(distribution(perfect, metric, 40).users) == n - distribution(perfect, metric, 40).undefined


@pytest.mark.parametrize("metric", METRICS)
def test_the_route_answers_for_one_series_and_names_nobody(client, publisher, metric: str) -> None:
    answer = client.get(f"/api/v1/user-distribution?version=v1&metric={metric}")
    UserDistribution.model_validate(answer.json())
    body = answer.json()
    users = publisher.latest().users[V1]
    assert (body["users_total"], body["users_sampled"]) == (len(users), 1.0)
    assert sum(body["users"]) + body["users_undefined"] == len(users)
    assert [q["quantile"] for q in body["quantiles"]] == list(QUANTILES)
    assert not any(f"{int(user):016x}" in answer.text for user in users.user)


def test_it_needs_no_token_of_its_own_but_that_of_everything(client_of, publisher) -> None:
    for scope, status in (("private", 200), ("all", 401)):
        app = create_app(
            publisher, Server(token_scope=scope), version="1", environ={"STREAMEVAL_TOKEN": "s3cret-of-this-test"}
        )
        for path in ("user-distribution?version=v1", "scores?model=ftrl"):
            assert client_of(app).get(f"/api/v1/{path}").status_code == status


def test_a_distribution_is_kept_as_long_as_its_users_and_no_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    monkeypatch.setattr(
        "streameval.server.api.user_distribution.distribution",
        lambda *question: asked.append(1) or distribution(*question),
    )
    kept, users = Distributions(), many(100)
    first = kept.of(users, V1, "auc", 40)
    assert kept.of(replace(users), V1, "auc", 40) is first  # the same columns, in another snapshot
    assert len(asked) == 1
    assert kept.of(many(100, seed=1), V1, "auc", 40) != first
    assert len(asked) == 2
    for bins in range(10, 150):
        kept.of(users, V1, "auc", bins)
    assert len(kept._kept) == 64
    held = kept._kept[V1, "auc", 149][0]
    del users
    gc.collect()
    assert held() is None  # nothing here keeps a million users alive


def test_without_users_there_is_no_distribution(client_of, build) -> None:
    app = create_app(Publisher(build.snapshot(users={})), Server(), version="1")
    assert client_of(app).get("/api/v1/user-distribution").status_code == 404
