"""Snapshots built by hand, and a client over them."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import httpx
import numpy as np
import pytest
from fastapi import FastAPI
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text

from streameval.auction.rerun import AUCTION_CELLS
from streameval.events.batch import Series
from streameval.events.hashing import hash_one
from streameval.metrics.auc import binned_auc
from streameval.metrics.registry import by_name, names
from streameval.metrics.tables import Bucket, ScoreCounts
from streameval.models.learner import Suspension
from streameval.results.auctions import WindowAuctions
from streameval.results.publish import Publisher
from streameval.results.result import Result, Totals
from streameval.results.results import Results
from streameval.results.snapshot import (
    CheckpointState,
    Delays,
    HistoryState,
    JoinHealth,
    PaneColumns,
    PartitionState,
    SliceValues,
    Snapshot,
    UserColumns,
)
from streameval.server import create_app
from streameval.server.http.access import TOKEN_VARIABLE
from streameval.settings.measures import Auction
from streameval.settings.server import Server
from streameval.sketches.layout import Options
from tests.comparisons import comparison, deploy

NOW = 1_714_564_800.0  # 2024-05-01T12:00:00Z
V1 = Series("default", "v1", "logged")
V2 = Series("default", "v2", "logged")
FTRL = Series("ftrl", "online", "online")
ERRORS = (
    "ctr", "mean_pclick", "auc", "pauc", "gauc", "log_loss", "rig", "calibration", "log_loss_snips", "policy_snips",
    "policy_mean_weight", "mrr", "click_yield", "value_per_user",
)  # fmt: skip
EDGES = (0.0, 0.01, 0.1, 1.0)


class Build:
    """Makes snapshots whose numbers belong together: every metric is computed from the same few bins."""

    def scores(self, seed: int = 0, bins: int = 40) -> ScoreCounts:
        """A score histogram in which clicks score higher."""
        rng = np.random.default_rng(seed)
        edges = np.linspace(0, 1, bins + 1)
        negatives = rng.integers(1, 60, bins)[::-1].cumsum()[::-1].astype(np.int64)
        positives = rng.integers(0, 3, bins).cumsum().astype(np.int64)
        return ScoreCounts(edges[:-1], edges[1:], negatives, positives)

    def result(
        self, series: Series = V1, window: str = "all", slice: tuple[str, str] | None = None, seed: int = 0
    ) -> Result:
        """A result over `scores(seed)`."""
        scores = self.scores(seed)
        middle = (scores.lower + scores.upper) / 2
        p, n = int(scores.positives.sum()), int(scores.positives.sum() + scores.negatives.sum())
        predicted = float((middle * (scores.positives + scores.negatives)).sum()) / 7
        log_loss, found = 0.21 + seed / 1000, binned_auc(scores.negatives, scores.positives)
        assert found is not None
        ctr = p / n
        entropy = -ctr * np.log(ctr) - (1 - ctr) * np.log(1 - ctr)
        metrics: dict[str, Any] = {
            "ctr": ctr,
            "mean_pclick": predicted / n,
            "auc": found[0],
            "auc_error": found[1],
            "gauc": 0.61 if slice is None else None,
            "gauc_users": 12 if slice is None else None,
            "gauc_impressions": 340 if slice is None else None,
            "gauc_request": 0.6 if slice is None else None,
            "log_loss": log_loss,
            "rig": float(1 - log_loss / entropy),
            "mse": 0.05,
            "nmse": 0.9,
            "mae": 0.1,
            "prediction_error": predicted / p - 1,
            "calibration": predicted / p,
            "ece": 0.01,
            "requests": 40,
            "requests_clicked": 30,
        }
        metrics = {name: metrics.get(name, 1 if by_name(name).whole else 0.5) for name in names()}
        buckets = tuple(
            Bucket(a, b, n // 3, p // 3, a / 2 + b / 2, p / n, 0.2, 0.1) for a, b in itertools.pairwise(EDGES)
        )
        return Result(
            series=series,
            window=window,
            slice=slice,
            totals=Totals(n, p, predicted, log_loss * n, 0.05 * n, 0.1 * n),
            metrics=metrics,
            reasons={name: "not_kept_for_slices" for name, value in metrics.items() if value is None},
            buckets=buckets,
            quantiles=buckets[:2],
            scores=scores,
            window_start=1_714_561_200_000,
            window_end=1_714_564_800_000,
            matured_share=0.75,
            corrected=3,
            newest_label=1_714_564_000_000,
            violations=0,
            reliable=True,
            reliable_reason=None,
            stderrs=dict.fromkeys(ERRORS, 0.01),
            stderr_df=20.5,
            gauc_stderr_df=4.5,
        )

    def empty_result(self, series: Series = V2, window: str = "5m") -> Result:
        """A result without impressions: every metric undefined."""
        full = self.result(series, window)
        none = np.empty(0)
        nothing = np.empty(0, np.int64)
        return replace(
            full,
            totals=Totals(0, 0, 0.0, 0.0, 0.0, 0.0),
            metrics={name: (0 if name in ("gauc_users", "gauc_impressions") else None) for name in full.metrics},
            reasons={name: "no_impressions" for name in full.metrics if name not in ("gauc_users", "gauc_impressions")},
            buckets=tuple(Bucket(a, b, 0, 0, None, None, None, None) for a, b in itertools.pairwise(EDGES)),
            quantiles=(),
            scores=ScoreCounts(none, none, nothing, nothing),
            window_start=None,
            window_end=None,
            matured_share=None,
            newest_label=None,
            reliable=False,
            reliable_reason="join_rate_low",
            stderrs={},
            stderr_df=None,
            gauc_stderr_df=None,
        )

    def users(self, names: list[str], seed: int = 0) -> UserColumns:
        """Users with random numbers; every fourth without clicks, the first with clicks only."""
        rng = np.random.default_rng(seed)
        hashes = np.sort(np.array([hash_one(name) for name in names], dtype=np.uint64))
        n = rng.integers(2, 40, len(names))
        clicks = rng.integers(1, n)
        clicks[::4] = 0
        clicks[:1] = n[:1]
        pairs = (2 * clicks * (n - clicks) * rng.random(len(names))).astype(np.int64)
        return UserColumns(hashes, n, clicks, pairs, clicks * 1.25, n * rng.random(len(names)))

    def panes(self, count: int = 30) -> PaneColumns:
        """One-minute panes; the AUC of every fifth is undefined."""
        start = 1_714_561_200_000 + 60_000 * np.arange(count, dtype=np.int64)
        auc = np.linspace(0.6, 0.7, count)
        auc[::5] = np.nan
        clicks = np.full(count, 7, np.int64)
        clicks[::5] = 0
        impressions = np.full(count, 100, np.int64)
        metrics = {"auc": auc, "ctr": clicks / 100.0}
        reasons = [{} if clicked else {"auc": "no_clicks"} for clicked in clicks.tolist()]
        return PaneColumns(
            start, impressions, clicks, np.zeros(count, np.int64), metrics, reasons, {"auc": np.full(count, 0.02)},
            np.full(count, 20.5), np.full(count, 4.5),
        )  # fmt: skip

    def many_slices(self, count: int) -> tuple[Result, ...]:
        """Results of `count` cities, the first with the fewest impressions."""
        few = self.result()
        return tuple(
            replace(few, slice=("city", f"c{i:05d}"), totals=Totals(5 + i, 1, 1.0, 1.0, 1.0, 1.0)) for i in range(count)
        )

    def auctions(self, window: str = "all") -> WindowAuctions:
        """Two versions at two operating points; v2 has half as many mainline ads as v1, at the lower reserve all of them."""
        sums = np.zeros((2, 2, 64, len(AUCTION_CELLS)), np.int64)
        sums[..., :2, :] = np.array([10, 3 << 40, 2 << 40, 20, 40, 30, 0, 5])  # two blocks of users have any
        sums[1, 1, :2, 3] = 10
        sums[1, :, :, 7] = 0
        points = [{"name": "now"}, {"name": "high", "mainline_reserve": 0.1}]
        settings = Auction.model_validate({"points": points})
        return WindowAuctions(window, None, None, settings, (V1, V2), sums)

    def snapshot(self, number: int = 1, **changes: Any) -> Snapshot:
        """A full snapshot: two logged versions and an online model, two windows, one sliced dimension."""
        windows = ("5m", "all")
        results = [self.result(s, w, seed=i) for i, s in enumerate((V1, FTRL)) for w in windows]
        results += [self.empty_result(V2, "5m"), self.result(V2, "all", seed=5)]
        results += [
            self.result(s, w, ("country", c), seed=i)
            for s in (V1, V2)
            for w in windows
            for i, c in enumerate(("de", "fr"))
        ]
        base: dict[str, Any] = {
            "number": number,
            "taken_at": NOW,
            "started_at": NOW - 3600,
            "auctions": (self.auctions(),),
            "events": {
                "impressions": 5000,
                "clicks": 90,
                "matured": 4800,
                "pending": 200,
                "duplicate_impressions": 3,
                "duplicate_clicks": 2,
                "unmatched_clicks": 1,
                "late_clicks": 4,
                "late_impressions": 5,
                "corrected": 6,
                "invalid": {"malformed": 7},
            },
            "results": tuple(results),
            "partitions": (
                PartitionState(
                    partition=0,
                    watermark=1_714_564_740_000,
                    label_complete=1_714_562_940_000,
                    newest_event=1_714_564_800_000,
                    offsets={("impressions", 0): 5000},
                    lag={("impressions", 0): 12},
                ),
                PartitionState(1, None, None, None, {}, {}),
            ),
            "join": JoinHealth(True, None, 0.98, 1, Delays((1.0, 60.0, float("inf")), (50, 30, 10), 1234.5)),
            "panes": {V1: self.panes(), V2: self.panes(5)},
            "users": {V1: self.users([f"user-{i}" for i in range(60)]), V2: self.users(["user-1", "a/b c"], seed=2)},
            "last_seen": {V1: NOW, V2: NOW - 7200, FTRL: NOW},
            "stage_seconds": {"decode": 1.5, "join": 0.5, "score": 0.25},
            "table_bytes": {"join": 4096, "users": 8192},
            "options": Options(EDGES[1:-1]),
            "undefined": {"auc:no_impressions": 1},
            "online_updates": {"ftrl": 4800},
            "online_failures": {"ftrl": {"not_finite": 100, "raised": 0}},
            "suspensions": (
                Suspension("ftrl", "impressions", 1, 4711, "score", "not_finite", "its features are too large"),
            ),
            "ready": {"assigned": True, "caught_up": True},
            "attribution_window": 1_800_000,
            "lost": {("impressions", 0): 17},
            "empty_offsets": {("impressions", 1): 5},
            "recreated": {"clicks": 2},
            "unpaired": {"impressions": 3},
            "deploys": (deploy(1, "v1", replaces=None), deploy(2, announced=True, note="a new tower")),
            "comparisons": (comparison(), comparison("undecided", "split", floors_met=False)),
            "budget_used": {"impressions": 0.25, "users": 0.5, "slice:country": 0.04},
            "slice_values": {"country": SliceValues(2, 200, 50, False)},
            "history": HistoryState(9_000_000, 120, 3, 2, 1, 0, 1, 4, 0),
            "checkpoints": CheckpointState(
                oldest=NOW - 12.5,
                written=40,
                failures=1,
                fenced=1,
                restores=2,
                restarts=7,
                bytes=5_000_000,
                write_seconds=0.75,
                pause_seconds=0.004,
                restore_seconds=1.5,
            ),
        }
        fields = {**base, **changes}
        return Snapshot(**{**fields, "results": Results.of(fields["results"])})


@pytest.fixture(autouse=True)
def _no_token_of_the_environment(monkeypatch) -> None:
    """What the shell of whoever runs the tests has set is none of theirs."""
    monkeypatch.delenv(TOKEN_VARIABLE, raising=False)


@pytest.fixture(scope="session")
def build() -> Build:
    """The builder."""
    return Build()


@pytest.fixture
def publisher(build: Build) -> Publisher:
    """A publisher with a full snapshot."""
    return Publisher(build.snapshot())


@pytest.fixture
def app(publisher: Publisher) -> FastAPI:
    """The app over it, at the time of the snapshot."""
    return create_app(publisher, Server(), version="9.9.9", clock=lambda: NOW)


class Client:
    """Asks an app without a network, as a real client would: a crash is a 500."""

    def __init__(self, app: FastAPI) -> None:
        self.app = app

    def request(self, method: str, url: str, **options: Any) -> httpx.Response:
        """One request."""

        async def ask() -> httpx.Response:
            transport = httpx.ASGITransport(self.app, raise_app_exceptions=False)
            async with httpx.AsyncClient(transport=transport, base_url="http://streameval") as client:
                return await client.request(method, url, **options)

        return asyncio.run(ask())

    def get(self, url: str, **options: Any) -> httpx.Response:
        """One GET."""
        return self.request("GET", url, **options)


@pytest.fixture
def client(app: FastAPI) -> Client:
    """A client of the app."""
    return Client(app)


@pytest.fixture
def client_of() -> type[Client]:
    """Makes a client of any app."""
    return Client


class Scrape:
    """A parsed scrape: {name: {labels: value}}."""

    def __init__(self, text: str, openmetrics: bool = False) -> None:
        self.text = text
        self.types: dict[str, str] = {}
        self.samples: dict[str, dict[frozenset[tuple[str, str]], float]] = {}
        for family in (parse_openmetrics if openmetrics else parse_text)(text):
            self.types[family.name] = family.type
            for sample in family.samples:
                labels = frozenset(sample.labels.items())
                by_labels = self.samples.setdefault(sample.name, {})
                assert labels not in by_labels, f"{sample.name} {sample.labels} twice"
                by_labels[labels] = sample.value

    def get(self, name: str, **labels: str) -> float | None:
        return self.samples.get("streameval_" + name, {}).get(frozenset(labels.items()))

    def labels(self, name: str) -> list[dict[str, str]]:
        return [dict(labels) for labels in self.samples.get("streameval_" + name, {})]


@pytest.fixture
def parse() -> type[Scrape]:
    """Reads a scrape."""
    return Scrape


@pytest.fixture
def scrape(client_of: type[Client]) -> Callable[..., Scrape]:
    """Scrapes a snapshot at a time, under `[server]` settings."""

    def of(snapshot: Snapshot, now: float = NOW, **settings: Any) -> Scrape:
        app = create_app(Publisher(snapshot), Server(**settings), version="9.9.9", clock=lambda: now)
        answer = client_of(app).get("/metrics")
        assert answer.status_code == 200
        return Scrape(answer.text)

    return of
