"""An evaluation prints, shows itself in a notebook, and turns into tables of pandas and Polars, where they are there."""

from __future__ import annotations

import pickle
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

import streameval
from streameval.compare.reading.reading import Comparison, Deploy
from streameval.events.batch import Series
from streameval.metrics.registry import names, with_stderr
from tests.comparisons import comparison, deploy
from tests.face.tables import impressions

TABLE = impressions(4_000)


@pytest.fixture(scope="module")
def result() -> streameval.Evaluation:
    return streameval.evaluate(TABLE, slices=["country"])


def test_every_metric_and_standard_error_is_a_column(result: streameval.Evaluation) -> None:
    columns = set(result.results.column_names)
    assert {*names(), *(f"{name}_stderr" for name in with_stderr())} <= columns
    assert result.results.schema.field("auc").type == pa.float64()
    assert result.results.schema.field("gauc_users").type == pa.int64()
    assert result.results["value"].to_pylist()[:2] == [None, None]


def test_strata_are_in_the_report_and_leave_the_table_as_it_is(result: streameval.Evaluation) -> None:
    stratified = streameval.evaluate(TABLE, slices=["country"], settings={"strata": {"count": 3}})
    assert all("strata" in row for row in stratified.report()["results"] if row["slice"] is None)
    assert stratified.results.equals(result.results)


def test_the_tables_say_what_the_report_says(result: streameval.Evaluation) -> None:
    report = result.report()["results"]
    assert [row["auc"] for row in report] == result.results["auc"].to_pylist()
    fixed = result.buckets.filter(pa.compute.equal(result.buckets["kind"], "fixed"))
    assert fixed["impressions"].to_pylist() == [b["impressions"] for row in report for b in row["buckets"]]


def test_users_go_by_their_own_names(result: streameval.Evaluation) -> None:
    users = result.users
    assert set(users["user"].to_pylist()) == set(TABLE["user_id"].to_pylist())
    one = next(row for row in users.to_pylist() if row["clicks"] and row["version"] == "v1")
    rows = [r for r in TABLE.to_pylist() if r["user_id"] == one["user"] and r["model_version"] == "v1"]
    assert (one["impressions"], one["clicks"]) == (len(rows), sum(r["clicked"] for r in rows))
    assert one["calibration"] == pytest.approx(sum(r["pclick"] for r in rows) / one["clicks"])


def test_it_prints_versions_and_the_comparison(result: streameval.Evaluation) -> None:
    text = repr(result).splitlines()
    assert text[0].split() == [
        "model",
        "version",
        "window",
        "impressions",
        "clicks",
        "auc",
        "gauc",
        "log_loss",
        "rig",
        "calibration",
    ]
    assert [line.split()[1] for line in text[1:3]] == ["v1", "v2"]
    assert text[-1].startswith("v2 against v1 is undecided: ")


def test_it_prints_what_became_of_events_alone() -> None:
    monitor = streameval.Monitor()
    assert str(monitor.snapshot()).endswith("\n\nno events")
    monitor.update({"impression_id": ["i"], "ts": [1], "user_id": ["u"], "pclick": [0.5]})
    assert str(monitor.snapshot()).endswith("\n\ndead letters: out_of_range 1")


def test_a_notebook_shows_names_as_text_not_as_markup() -> None:
    table = TABLE.append_column("arm", pa.array(["<b>bold</b>", "plain"] * 2_000))
    html = streameval.evaluate(table, version="arm")._repr_html_()
    assert "<b>" not in html
    assert "&lt;b&gt;bold&lt;/b&gt;" in html
    assert html.count("<tr>") == 3


def test_one_number_is_asked_for_by_name(result: streameval.Evaluation) -> None:
    assert 0.5 < (result.metric("auc", version="v1") or 0) < 1
    assert (result.metric("auc_stderr", version="v1") or 0) > 0
    impressions, clicks = (result.metric(name, version="v1") for name in ("impressions", "clicks"))
    assert clicks / impressions == result.metric("ctr", version="v1")
    with pytest.raises(KeyError, match="'impressions_stderr' is not a metric"):
        result.metric("impressions_stderr", version="v1")
    assert result.metric("ctr", version="v2", where=("country", "de")) is not None
    for options, words in (
        ({"name": "auc"}, "2 results, not one; there are results of default v1, default v2"),
        ({"name": "auc", "version": "v3"}, "0 results"),
        ({"name": "acu", "version": "v1"}, "'acu' is not a metric; there are impressions, clicks, ctr"),
    ):
        with pytest.raises(KeyError, match=words):
            result.metric(**options)
    assert result.verdict() == result.verdict("v2") == "undecided"
    with pytest.raises(KeyError, match=r"of 0 candidates, not of one; there are verdict\('v2'\)"):
        result.verdict("v3")


def compared(*comparisons: Comparison, deploys: tuple[Deploy, ...] = ()) -> streameval.Evaluation:
    empty = streameval.Monitor().snapshot().snapshot
    return streameval.Evaluation(replace(empty, comparisons=comparisons, deploys=deploys))


def test_of_several_setups_the_verdict_is_that_of_the_chosen_one() -> None:
    """After a rolling update there are two: the hours in which both served, and before/after."""
    split, before = comparison("not_worse", "split"), comparison("undecided", "before_after")
    assert compared(before, split).verdict("v2") == "not_worse"
    found = compared(before, split, deploys=(deploy(2), deploy(3)))  # the same version again: nothing is known of that
    assert (found.verdict(), found.verdict("v2", model="default")) == ("undecided", "undecided")


def test_candidates_of_several_models_are_told_apart_by_the_model() -> None:
    other = comparison("undecided", number=3, candidate=Series("ctr", "v2", "logged"))
    found = compared(comparison("worse"), other)
    words = r"of 2 candidates, not of one; there are verdict\('v2', model='default'\), verdict\('v2', model='ctr'\)"
    with pytest.raises(KeyError, match=words):
        found.verdict("v2")
    assert (found.verdict("v2", model="default"), found.verdict(model="ctr")) == ("worse", "undecided")
    with pytest.raises(KeyError, match="there are none"):
        compared().verdict()


def test_pandas_has_every_table(result: streameval.Evaluation) -> None:
    pytest.importorskip("pandas")
    assert list(result.to_pandas().columns) == result.results.column_names
    assert len(result.to_pandas("users")) == result.users.num_rows
    with pytest.raises(ValueError, match="must be results, buckets, users or comparisons"):
        result.to_pandas("user")  # type: ignore[arg-type]


def test_polars_has_every_table(result: streameval.Evaluation) -> None:
    pytest.importorskip("polars")
    for name in ("results", "buckets", "users", "comparisons"):
        assert result.to_polars(name).columns == getattr(result, name).column_names


def test_pandas_tables_are_evaluated_as_arrow_tables(result: streameval.Evaluation) -> None:
    pandas = pytest.importorskip("pandas")
    frame = TABLE.to_pandas()
    frame["user_id"] = frame["user_id"].astype("category")
    frame["ts"] = pandas.to_datetime(frame["ts"], unit="ms", utc=True)
    frame["unused"] = [object()] * len(frame)
    assert streameval.evaluate(frame, slices=["country"]).report() == result.report()


def test_polars_tables_are_evaluated_as_arrow_tables(result: streameval.Evaluation) -> None:
    polars = pytest.importorskip("polars")
    frame = polars.from_arrow(TABLE)
    frame = frame.with_columns(
        polars.col("user_id").cast(polars.Categorical), polars.from_epoch("ts", time_unit="ms"),
        polars.col("clicked").cast(polars.Boolean),
    )  # fmt: skip
    assert streameval.evaluate(frame, slices=["country"]).report() == result.report()
    with pytest.raises(TypeError, match=r"collect\(\) it first"):
        streameval.evaluate(frame.lazy())


@pytest.mark.parametrize("name", ["t.arrow", "t.parquet"])
def test_files_that_polars_wrote_are_those_that_arrow_wrote(
    result: streameval.Evaluation, tmp_path: Path, name: str
) -> None:
    """Texts are views there, and categories dictionaries of views."""
    polars = pytest.importorskip("polars")
    frame = polars.from_arrow(TABLE).with_columns(polars.col("slices.country").cast(polars.Categorical))
    (frame.write_ipc if name == "t.arrow" else frame.write_parquet)(tmp_path / name)
    assert streameval.evaluate(tmp_path / name, slices=["country"]).report() == result.report()


def test_an_evaluation_goes_from_process_to_process(result: streameval.Evaluation) -> None:
    there = pickle.loads(pickle.dumps(result))
    assert there.report() == result.report()
    assert there.users.equals(result.users)


def test_batches_readers_and_mappings_are_tables(result: streameval.Evaluation) -> None:
    reader = pa.RecordBatchReader.from_batches(TABLE.schema, TABLE.to_batches(max_chunksize=700))
    columns = {name: TABLE[name].to_numpy(zero_copy_only=False) for name in TABLE.column_names}
    for given in (TABLE.combine_chunks().to_batches()[0], reader, columns):
        assert streameval.evaluate(given, slices=["country"]).report() == result.report()
