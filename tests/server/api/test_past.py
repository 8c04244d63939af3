"""Past ranges over HTTP: the history behind results, buckets, roc and series."""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from streameval.events.batch import Series
from streameval.loop.pipeline import Pipeline
from streameval.results.publish import Publisher
from streameval.results.snapshot import empty_snapshot
from streameval.server import create_app
from streameval.server.api import answers
from streameval.server.api.schemas.results import Buckets, Results, Roc, SeriesAnswer
from streameval.server.api.schemas.results import Scores as ScoresAnswer
from streameval.server.api.schemas.shape import Problem
from streameval.settings.server import Server
from streameval.settings.tree import Settings
from streameval.sketches.layout import Options
from streameval.store.history.format import HistoryFormat
from streameval.store.history.reader import HistoryReader
from streameval.store.history.writer import HistoryWriter, Retention
from streameval.testing import ManualClock, Scores, Shown, counted_pane, make_batch, readers_see

MINUTE, HOUR, DAY = 60_000, 3_600_000, 86_400_000
NOON = 1_714_564_800_000  # 2024-05-01T12:00:00Z: where the snapshot's panes of tests/server/conftest.py end
FIRST = NOON - 5 * HOUR
V1, V2 = Series("default", "v1", "logged"), Series("default", "v2", "logged")
FORM = HistoryFormat(MINUTE, Options((0.01, 0.1)), "impressions")
BAD = (
    "", "0", "-1", "nan", "1e999", "999999999999999999999999", "null", "☃", "\0", "x" * 600, "2024-05-01",
    "2024-13-01T00:00:00Z", "9999-12-31T23:59:59.999999999Z", "0001-01-01T00:00:00Z", "12345678901234567890",
)  # fmt: skip


def _writer(folder: Path) -> HistoryWriter:
    return HistoryWriter(folder / "history.sqlite", FORM, Retention(2 * DAY, 30 * DAY, 400 * DAY, 1 << 30))


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a history: five hours before noon, a pane in every minute, of two versions in two countries."""
    folder = tmp_path_factory.mktemp("written")
    writer = _writer(folder)
    panes = []
    for minute in range(300):
        rng = np.random.default_rng(minute)
        n, p = 40, rng.beta(1, 4, 40)
        scores = Scores(
            np.sort(rng.integers(0, 2, n)).astype(np.int32), rng.integers(1, 9, n).astype(np.uint64), p,
            (rng.random(n) < p).astype(np.int8), rng.integers(0, 2, n).astype(np.int32),
        )  # fmt: skip
        panes.append(counted_pane(FIRST // MINUTE + minute, (V1, V2), scores, FORM))
    writer.write(0, 1, panes)
    writer.close()
    return folder


@pytest.fixture
def writer(written: Path, tmp_path: Path) -> Iterator[HistoryWriter]:
    """Of a copy of it, which a test may change."""
    shutil.copytree(written, tmp_path, dirs_exist_ok=True)
    writer = _writer(tmp_path)
    yield writer
    writer.close()


@pytest.fixture
def reader(writer: HistoryWriter) -> HistoryReader:
    return HistoryReader(writer.path, FORM, 4)


@pytest.fixture
def past(client_of, reader):
    """A client right after a restart: nothing in memory, a history on disk."""
    return client_of(create_app(Publisher(empty_snapshot(0.0)), Server(), version="1", history=reader))


@pytest.fixture
def both(client_of, publisher, reader):
    """A client with an hour of panes in memory (v1: 11:00 to 11:30, v2: 11:00 to 11:05) and the history."""
    return client_of(create_app(publisher, Server(), version="1", history=reader))


def test_before_the_first_batch_the_past_is_served_from_the_file(past) -> None:
    body = past.get("/api/v1/results?from=2024-05-01T08:00:00Z&to=2024-05-01T09:30:00Z").json()
    Results.model_validate(body)
    assert (body["matched"], body["truncated"], body["snapshot"]) == (6, False, 0)
    assert body["range"] == {
        "from": "2024-05-01T08:00:00.000Z",
        "to": "2024-05-01T09:30:00.000Z",
        "first": "2024-05-01T08:00:00.000Z",
        "last": "2024-05-01T09:30:00.000Z",
        "panes": 90,
        "panes_expected": 90,
        "share": 1.0,
        "complete": True,
    }
    assert sum(r["impressions"] for r in body["results"] if r["slice"] is None) == 90 * 40
    row = body["results"][0]
    assert (row["window"], row["window_start"], row["users_sampled"]) == ("range", "2024-05-01T08:00:00.000Z", 1.0)
    assert 0 < row["auc_error"] < 1e-2
    assert row["gauc"] is not None
    line = past.get("/api/v1/series?metric=auc&version=v1").json()["series"][0]
    assert (len(line["points"]), line["points"][-1]["start"]) == (300, "2024-05-01T11:59:00.000Z")


def test_a_range_with_a_known_loss_is_not_reliable(client_of, reader) -> None:
    lost, silent = "40 messages of impressions [0] were deleted before they were read", "no clicks for 10m"
    doubtful = ((FIRST + HOUR, FIRST + HOUR + MINUTE, lost), (FIRST + 2 * HOUR, FIRST + 3 * HOUR, silent))
    snapshot = replace(empty_snapshot(0.0), doubtful=doubtful)
    client = client_of(create_app(Publisher(snapshot), Server(), version="1", history=reader))
    for first, last, why in (
        ("07:00", "08:00", None), ("07:00", "08:01", lost), ("08:01", "09:00", None), ("08:00", "10:00", silent),
        ("10:00", "12:00", None),
    ):  # fmt: skip
        asked = f"from=2024-05-01T{first}:00Z&to=2024-05-01T{last}:00Z"
        rows = client.get(f"/api/v1/results?{asked}").json()["results"]
        assert {(row["reliable"], row["reliable_reason"]) for row in rows} == {(why is None, why)}
        for route in ("buckets", "roc", "scores"):
            assert client.get(f"/api/v1/{route}?{asked}&version=v1").status_code == 200


def test_a_range_that_is_not_all_there_says_so(past) -> None:
    body = past.get("/api/v1/results?from=2024-05-01T11:30:30Z&to=2024-05-01T13:00:00Z&slice=none").json()
    assert body["range"]["from"] == "2024-05-01T11:30:00.000Z"
    assert body["range"]["last"] == "2024-05-01T12:00:00.000Z"
    assert (body["range"]["panes"], body["range"]["panes_expected"], body["range"]["complete"]) == (30, 90, False)
    nothing = past.get("/api/v1/results?from=2025-05-01T00:00:00Z&to=2025-05-01T01:00:00Z").json()
    Results.model_validate(nothing)
    assert (nothing["results"], nothing["range"]["first"], nothing["range"]["share"]) == ([], None, 0.0)


@pytest.mark.parametrize(
    ("query", "matched"),
    [
        ("from=2024-05-01T08:00:00Z", 6),
        ("to=1714564800", 6),
        ("from=0&slice=none", 2),
        ("from=1000000000", 6),
        ("from=0&slice=country", 4),
        ("from=0&slice=country:c1&version=v2", 1),
        ("from=0&model=&limit=1", 6),
    ],
)
def test_filters_narrow_a_past_range(past, query: str, matched: int) -> None:
    assert past.get(f"/api/v1/results?{query}").json()["matched"] == matched


def test_buckets_and_curves_of_the_past_belong_to_its_results(past) -> None:
    where = "from=2024-05-01T08:00:00Z&to=2024-05-01T10:00:00Z&version=v1"
    (row,) = past.get(f"/api/v1/results?{where}&slice=none").json()["results"]
    for kind, count in (("fixed", 3), ("quantiles", 4)):
        body = past.get(f"/api/v1/buckets?{where}&slice=none&kind={kind}").json()
        Buckets.model_validate(body)
        (table,) = body["tables"]
        assert len(table["buckets"]) == count
        assert sum(b["impressions"] for b in table["buckets"]) == row["impressions"]
        assert (body["range"]["complete"], body["matched"]) == (True, 1)
    body = past.get(f"/api/v1/roc?{where}").json()
    Roc.model_validate(body)
    assert (body["auc"], body["auc_error"], body["window"]) == (row["auc"], row["auc_error"], "range")
    assert (body["operating_range"], body["pauc"], body["pauc_error"]) == ([0.0, 0.1], row["pauc"], row["pauc_error"])
    points = body["points"]
    area = sum((b["fpr"] - a["fpr"]) * (a["tpr"] + b["tpr"]) / 2 for a, b in itertools.pairwise(points))
    assert len(points) < body["points_total"]
    assert area == pytest.approx(body["auc"], abs=1e-3)  # thinned to 500 points
    scores = past.get(f"/api/v1/scores?{where}").json()
    ScoresAnswer.model_validate(scores)
    assert sum(scores["impressions"]) == scores["impressions_total"] == row["impressions"]
    assert sum(scores["clicks"]) == row["clicks"]
    assert scores["range"] == body["range"]
    sliced = past.get(f"/api/v1/roc?{where}&slice=country:c1").json()
    assert sliced["slice"] == {"dimension": "country", "value": "c1"}


def test_memory_wins_for_the_panes_it_holds_and_the_file_has_the_rest(both, reader) -> None:
    body = both.get("/api/v1/series?metric=ctr").json()
    SeriesAnswer.model_validate(body)
    by_version = {line["version"]: line["points"] for line in body["series"]}
    starts = [p["start"] for p in by_version["v1"]]
    assert starts == sorted(set(starts))
    assert len(starts) == 300
    memory = [p for p in by_version["v1"] if p["impressions"] == 100]  # the snapshot's panes have 100 each
    assert (memory[0]["start"], len(memory)) == ("2024-05-01T11:00:00.000Z", 30)
    assert len([p for p in by_version["v2"] if p["impressions"] == 100]) == 5
    assert len(by_version["v2"]) == 300
    assert {p["seconds"] for p in by_version["v1"]} == {60.0}
    newest = both.get("/api/v1/series?metric=ctr&version=v1&limit=40&to=2024-05-01T11:09:00Z").json()["series"][0]
    assert [p["impressions"] == 100 for p in newest["points"]] == [False] * 30 + [True] * 10
    assert newest["truncated"]
    older = both.get("/api/v1/series?metric=ctr&version=v1&to=2024-05-01T07:04:00Z").json()["series"][0]
    assert (len(older["points"]), older["truncated"]) == (5, False)


def test_an_hour_of_the_history_stands_for_its_panes_in_memory(both, writer) -> None:
    assert writer.fold({0: NOON}, NOON + 2 * DAY) == 5
    line = both.get("/api/v1/series?metric=auc&version=v1").json()["series"][0]
    assert [(p["start"][11:16], p["seconds"]) for p in line["points"]] == [
        ("07:00", 3600.0), ("08:00", 3600.0), ("09:00", 3600.0), ("10:00", 3600.0), ("11:00", 3600.0),
    ]  # fmt: skip
    assert all(p["error"] > 0 for p in line["points"])


def test_a_series_in_steps_and_slices_is_that_of_the_results(past) -> None:
    where = "version=v1&from=2024-05-01T08:00:00Z&to=2024-05-01T08:59:59Z"
    body = past.get(f"/api/v1/series?metric=auc&step=1h&slice=country:c1&{where}").json()
    SeriesAnswer.model_validate(body)
    assert (body["step"], body["slice"]) == ("1h", "country:c1")
    ((point,),) = (line["points"] for line in body["series"])
    (row,) = past.get(
        "/api/v1/results?version=v1&slice=country:c1&from=2024-05-01T08:00:00Z&to=2024-05-01T09:00:00Z"
    ).json()["results"]
    assert (point["start"], point["seconds"]) == ("2024-05-01T08:00:00.000Z", 3600.0)
    for mine, theirs in (("value", "auc"), ("stderr", "auc_stderr"), ("error", "auc_error"), ("clicks", "clicks")):
        assert point[mine] == row[theirs]
    assert point["stderr_df"] == row["stderr_df"]
    columns = past.get("/api/v1/series?metric=ctr&step=5m&shape=columns").json()
    SeriesAnswer.model_validate(columns)
    assert [len(line["columns"]["start"]) for line in columns["series"]] == [60, 60]
    assert columns["series"][0]["columns"]["start"][:2] == [FIRST / 1000, FIRST / 1000 + 300]


@pytest.mark.parametrize(
    ("query", "status", "words"),
    [
        ("step=90s", 422, 'step = "90s": must be a multiple of windows.pane = 1m'),
        ("step=0s", 422, "must be a duration"),
        ("step=0.00000001s", 422, "must be a duration"),
        ("step=soon", 422, "must be a duration"),
        ("step=999999d", 422, 'must be at most "36500d"'),
        ("slice=country", 422, "country:<value>"),
        ("slice=country:xx", 404, 'slice country = "xx": unknown'),
        ("slice=nope:x", 404, "unknown"),
        ("step=1h&model=nope", 404, 'model = "nope": unknown'),
    ],
)
def test_a_bad_step_or_slice_is_told_what_would_be_right(past, query: str, status: int, words: str) -> None:
    answer = past.get(f"/api/v1/series?metric=auc&{query}")
    assert answer.status_code == status
    Problem.model_validate(answer.json())
    assert words in answer.json()["detail"]


def test_a_slice_of_which_nothing_is_written_yet_has_no_points(both) -> None:
    shown = next(r["slice"] for r in both.get("/api/v1/results").json()["results"] if r["slice"] is not None)
    assert shown["value"] not in ("c0", "c1")
    query = f"/api/v1/series?metric=auc&slice={shown['dimension']}:{shown['value']}"
    assert both.get(query).json()["series"] == []
    assert both.get(query + "x").status_code == 404


@pytest.mark.parametrize("query", ["step=1h", "slice=country:de"])
def test_without_panes_to_merge_a_step_is_a_conflict_that_names_the_setting(client, query: str) -> None:
    answer = client.get(f"/api/v1/series?metric=auc&{query}")
    assert answer.status_code == 409
    Problem.model_validate(answer.json())
    assert "set store.path" in answer.json()["detail"]


@pytest.mark.slow
def test_without_a_history_steps_and_slices_come_from_memory(client_of) -> None:
    pipeline = Pipeline(Settings.model_validate({"slices": {"dimensions": ["country"]}}), ManualClock())
    shown = [
        Shown(f"i{i}", FIRST + i * 1000, user=f"u{i % 50}", pclick=(i % 97) / 97, clicked=int(i % 5 == 0))
        for i in range(1200)
    ]
    batch = make_batch(shown, pipeline.catalog)
    countries = np.array([pipeline.catalog.value_code(0, name) for name in ("de", "fr")])
    impressions = replace(batch.impressions, slices=pipeline.catalog.combine([countries[np.arange(1200) % 2]]))
    pipeline.take(replace(batch, impressions=impressions))
    pipeline.finish()
    snapshot = readers_see(pipeline)
    client = client_of(create_app(Publisher(snapshot), Server(), version="1"))
    body = client.get("/api/v1/series?metric=log_loss&step=1h&slice=country:de").json()
    SeriesAnswer.model_validate(body)
    (point,) = body["series"][0]["points"]
    (row,) = client.get("/api/v1/results?window=all&slice=country:de").json()["results"]
    assert (point["value"], point["stderr"]) == (row["log_loss"], row["log_loss_stderr"])
    (overall,) = client.get("/api/v1/results?window=all&slice=none").json()["results"]
    assert point["stderr_df"] == row["stderr_df"] == overall["stderr_df"] is not None  # a slice has that of the whole
    assert (point["impressions"], point["clicks"]) == (600, row["clicks"])
    whole = client.get("/api/v1/series?metric=gauc&step=5m").json()["series"][0]["points"]
    assert [(p["value"], p["reason"]) for p in whole] == [(None, "needs_store_path")] * 4
    assert client.get("/api/v1/series?metric=auc&slice=country:xx").status_code == 404
    pipeline.has_history = True
    assert readers_see(pipeline).sketches is None


def test_live_answers_are_as_without_a_history(both, client) -> None:
    for url in ("/api/v1/results?window=all", "/api/v1/buckets", "/api/v1/roc?model=ftrl"):
        assert both.get(url).json() == client.get(url).json()


@pytest.mark.parametrize("route", ["results", "buckets", "roc", "scores"])
def test_without_a_store_a_past_range_is_a_conflict_that_names_the_setting(client, route: str) -> None:
    answer = client.get(f"/api/v1/{route}?from=0&model=ftrl")
    assert answer.status_code == 409
    Problem.model_validate(answer.json())
    assert "set store.path" in answer.json()["detail"]


@pytest.mark.parametrize(
    ("query", "status", "words"),
    [
        ("results?from=20&to=10", 422, 'from = "20": must be before to = "10"'),
        ("results?from=10&to=10", 422, "must be before"),
        ("results?from=10&window=1h", 422, 'window = "1h": ends now; leave it out, or leave out from and to'),
        ("results?from=0&model=nope", 404, 'model = "nope": unknown; there are: "default"'),
        ("results?from=0&slice=country:xx", 404, 'slice country = "xx": unknown'),
        ("buckets?from=yesterday", 422, "must be an RFC 3339 time"),
        ("roc?from=0", 422, "2 series fit"),
        ("roc?from=0&version=v1&slice=country", 422, "country:<value>"),
        (
            "roc?from=2025-01-01T00:00:00Z&version=v1",
            404,
            "the history reaches from 2024-05-01T07:00:00.000Z to 2024-05",
        ),
    ],
)
def test_a_bad_question_about_the_past_is_told_what_would_be_right(past, query: str, status: int, words: str) -> None:
    answer = past.get(f"/api/v1/{query}")
    assert answer.status_code == status
    Problem.model_validate(answer.json())
    assert words in answer.json()["detail"]


@pytest.mark.slow
@pytest.mark.parametrize("route", ["results", "buckets", "roc", "series"])
def test_no_pair_of_times_makes_the_server_fail(both, route: str) -> None:
    more = {"series": {"metric": "auc"}, "roc": {"version": "v1"}}.get(route, {"limit": "1"})
    for start, end in itertools.product(BAD, repeat=2):
        answer = both.get(f"/api/v1/{route}", params={"from": start, "to": end, **more})
        assert answer.status_code in (200, 404, 422), (start, end, answer.text)


@pytest.mark.parametrize("name", ["step", "slice", "from", "to", "limit", "shape"])
def test_no_value_makes_a_merged_series_fail(past, name: str) -> None:
    for value in (*BAD, "5m", "1d", "36500d", "1e9d", "country:c1", "country:", ":", "none", "-5m", "5m5m"):
        asked = {"metric": "auc", "step": "1h", "slice": "country:c0", name: value}
        answer = past.get("/api/v1/series", params=asked)
        assert answer.status_code in (200, 404, 422), (name, value, answer.text)
        (SeriesAnswer if answer.status_code == 200 else Problem).model_validate(answer.json())


def test_too_large_a_range_is_refused_with_one_that_fits(client_of, writer) -> None:
    small = HistoryReader(writer.path, FORM, 4, max_rows=600)
    client = client_of(create_app(Publisher(empty_snapshot(0.0)), Server(), version="1", history=small))
    answer = client.get("/api/v1/results?from=0")
    assert answer.status_code == 422
    Problem.model_validate(answer.json())
    assert "a query may read 600" in answer.json()["detail"]
    assert "ask for at most 90m at a time, or name one model, version and slice" in answer.json()["detail"]
    assert client.get("/api/v1/results?from=2024-05-01T08:00:00Z&to=2024-05-01T09:30:00Z").status_code == 200
    assert client.get("/api/v1/results?from=0&version=v1&slice=none").status_code == 200


def test_a_file_that_cannot_be_read_is_503_without_its_path(past, writer) -> None:
    writer.close()
    writer.path.write_bytes(b"gone" * 100)
    for url in ("/api/v1/results?from=0", "/api/v1/series?metric=auc"):
        answer = past.get(url)
        assert answer.status_code == 503
        Problem.model_validate(answer.json())
        assert str(writer.path) not in answer.text
    assert past.get("/api/v1/results").status_code == 200


def test_too_many_questions_at_a_time_are_asked_to_come_again(past, reader, monkeypatch) -> None:
    monkeypatch.setattr("streameval.results.lines.WAIT_SECONDS", 0.01)
    while reader._turns._free.acquire(blocking=False):
        pass
    answer = past.get("/api/v1/results?from=0")
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")


def test_an_answer_about_the_past_is_bounded_like_any_other(past, monkeypatch: pytest.MonkeyPatch) -> None:
    url = "/api/v1/results?from=2020-01-01T00:00:00Z"
    size = len(past.get(url).content)
    monkeypatch.setattr(answers, "MAX_ANSWER", size - 1)
    refused = past.get(url + "&limit=999")  # another question: the answer to that one is kept
    assert refused.status_code == 422
    assert "at most" in refused.json()["detail"]
    monkeypatch.setattr(answers, "MAX_ANSWER", size)
    assert past.get(url + "&limit=999").status_code == 200


@pytest.mark.parametrize("when", ["2024", "20240501"])
def test_a_year_is_not_taken_for_unix_seconds(past, when: str) -> None:
    answer = past.get(f"/api/v1/results?from={when}")
    assert answer.status_code == 422
    assert f"{when} reads like a year or a day" in answer.text
