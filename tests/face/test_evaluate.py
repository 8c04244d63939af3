"""`evaluate` against scikit-learn, and against the replay of the same events, to the bit."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.feather
import pyarrow.parquet as pq
import pytest
from sklearn import metrics as sk

import streameval
from streameval.app import replay
from streameval.settings.tree import ConfigError, Settings
from tests.aucs import auc_of
from tests.face.tables import START, as_clicks, impressions

OPEN_BANDIT = Path(__file__).parent / "data" / "open-bandit.parquet"


def gauc(user: np.ndarray, y: np.ndarray, p: np.ndarray) -> float:
    weighted = weight = 0.0
    for one in np.unique(user):
        on = user == one
        if 0 < y[on].sum() < on.sum():
            weighted += on.sum() * auc_of(y[on], p[on])
            weight += on.sum()
    return weighted / weight


def equals_scikit_learn(row: dict[str, Any], y: np.ndarray, p: np.ndarray) -> None:
    """AUC to the last digits that scikit-learn itself has (a slice's: within its error), the others to 1e-12."""
    assert (row["impressions"], row["clicks"]) == (y.size, y.sum())
    assert abs(row["auc"] - sk.roc_auc_score(y, p)) <= row["auc_error"] + 1e-13
    assert row["log_loss"] == pytest.approx(sk.log_loss(y, np.clip(p, 1e-7, 1 - 1e-7)), rel=1e-12)
    assert row["mse"] == pytest.approx(sk.brier_score_loss(y, p), rel=1e-12)
    assert row["mae"] == pytest.approx(sk.mean_absolute_error(y, p), rel=1e-12)
    assert row["rmse"] == pytest.approx(sk.root_mean_squared_error(y, p), rel=1e-12)
    assert abs(row["pauc"] - sk.roc_auc_score(y, p, max_fpr=0.1)) <= row["pauc_error"] + 1e-13
    chosen = p >= 0.5  # an edge of a bin, so exact
    assert row["precision_at"] == (pytest.approx(sk.precision_score(y, chosen)) if chosen.any() else None)
    assert row["recall_at"] == pytest.approx(sk.recall_score(y, chosen))
    assert row["f1_at"] == pytest.approx(sk.f1_score(y, chosen))
    assert row["expected_cost"] == pytest.approx((y != chosen).mean())
    assert row["calibration"] == pytest.approx(p.mean() / y.mean(), rel=1e-12)


@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.slow
def test_a_random_table_equals_scikit_learn_overall_by_version_and_by_slice(seed: int, ties: bool) -> None:
    table = impressions(9_000, seed, ties=ties)
    y, p = table["clicked"].to_numpy(), table["pclick"].to_numpy()
    version, country = (np.array(table[name].to_pylist(), str) for name in ("model_version", "slices.country"))
    user = np.array(table["user_id"].to_pylist())
    rows = streameval.evaluate(table, slices=["country"]).results.to_pylist()
    assert len(rows) == 2 + 2 * 4
    for row in rows:
        on = version == row["version"]
        if row["dimension"] is None:
            assert row["auc_error"] == 0
            assert row["gauc"] == pytest.approx(gauc(user[on], y[on], p[on]), abs=1e-8)
        else:
            on &= country == ("None" if row["value"] == "__missing__" else row["value"])
        equals_scikit_learn(row, y[on], p[on])


def test_the_range_the_threshold_the_cost_and_the_mainline_are_those_of_the_settings(tmp_path: Path) -> None:
    rng = np.random.default_rng(5)
    n, threshold = 20_000, 0.0737
    position = rng.integers(0, 8, n)
    p = np.round(rng.beta(1, 6, n) / (1 + position / 4), 5)
    y = rng.random(n) < p
    given = {
        "metrics": {"operating_range": [0.05, 0.25], "threshold": threshold, "cost_ratio": 9.0},
        "auction": {"mainline": 2}, "slices": {"dimensions": ["block"]},
    }  # fmt: skip
    log = tmp_path / "log.jsonl"
    columns = zip(rng.integers(0, 900, n).tolist(), p.tolist(), y.tolist(), position.tolist(), strict=True)
    log.write_text("".join(
        json.dumps({"impression_id": f"i{i}", "ts": 1_700_000_000_000 + i * 10, "user_id": f"u{user}", "pclick": score,
                    "clicked": label, "position": place}) + "\n"
        for i, (user, score, label, place) in enumerate(columns)
    ))  # fmt: skip
    rows = [r for r in streameval.evaluate(log, settings=given).results.to_pylist() if r["window"] == "all"]
    assert {(row["dimension"], row["value"]) for row in rows} == {
        (None, None),
        ("block", "mainline"),
        ("block", "sidebar"),
    }

    def upto(y: np.ndarray, p: np.ndarray, rate: float) -> float:
        return float((2 * sk.roc_auc_score(y, p, max_fpr=rate) - 1) * (rate - rate**2 / 2) + rate**2 / 2)

    for row in rows:
        on = {None: position >= 0, "mainline": position < 2, "sidebar": position >= 2}[row["value"]]
        chosen, label, score = p[on] >= threshold, y[on], p[on]
        least = (0.25**2 - 0.05**2) / 2
        area = upto(label, score, 0.25) - upto(label, score, 0.05)
        assert abs(row["pauc"] - (1 + (area - least) / (0.2 - least)) / 2) <= row["pauc_error"] + 1e-12
        cost = (9 * (label & ~chosen).sum() + (~label & chosen).sum()) / on.sum()
        exact = {"precision_at": sk.precision_score(label, chosen), "recall_at": sk.recall_score(label, chosen),
                 "f1_at": sk.f1_score(label, chosen), "expected_cost": cost}  # fmt: skip
        for name, value in exact.items():
            assert abs(row[name] - value) <= row[f"{name}_error"] + 1e-12, name
            assert 0 <= row[f"{name}_error"] < (0.02 if name != "expected_cost" else 0.05), name
            assert row[f"{name}_stderr"] > 0, name
        assert row["pauc_stderr"] > 0


@pytest.mark.slow
def test_the_open_bandit_sample_equals_scikit_learn() -> None:
    """Real clicks; one policy scores all alike, so its AUC is all ties."""
    table = pq.read_table(OPEN_BANDIT)
    parts = [table[f"user_feature_{i}"].to_pylist() for i in range(4)]
    user = ["".join(row) for row in zip(*parts, strict=True)]
    result = streameval.evaluate(
        table.append_column("user", pa.array(user)), label="click", score="propensity_score", user="user",
        version="policy", ts="timestamp", slices=["position"],
    )  # fmt: skip
    columns = {name: np.array(table[name].to_pylist()) for name in ("policy", "click", "propensity_score", "position")}
    seen = 0
    for row in result.results.to_pylist():
        on = columns["policy"] == row["version"]
        if row["dimension"] is not None:
            on &= columns["position"].astype(str) == row["value"]
        equals_scikit_learn(row, columns["click"][on], columns["propensity_score"][on])
        seen += 1
    assert seen == 2 + 2 * 3
    on = columns["policy"] == "bts"
    want = gauc(np.array(user)[on], columns["click"][on], columns["propensity_score"][on])
    assert result.metric("gauc", version="bts") == pytest.approx(want, abs=1e-8)
    assert result.metric("auc", version="random") == 0.5


@pytest.mark.slow
def test_more_scores_than_a_stream_keeps_still_equal_scikit_learn() -> None:
    """A stream keeps four million scores of a version for an exact AUC, a table all of them."""
    n = (1 << 22) + 50_000
    rng = np.random.default_rng(3)
    p = rng.random(n) ** 3
    y = rng.random(n) < p
    row = streameval.evaluate({"pclick": p, "clicked": y}).results.to_pylist()[0]
    assert row["auc_error"] == 0
    equals_scikit_learn(row, y.astype(int), p)


SETTINGS = {
    "slices": {"dimensions": ["country", "age"], "max_values": 20},
    "windows": {"sliding": ["5m", "1h"]},
    "files": {"dead_letters": ""},
}


@pytest.mark.parametrize("weighting", ["impressions", "clicks"])
def test_labels_inline_are_counted_as_replay_counts_them_to_the_bit(tmp_path: Path, weighting: str) -> None:
    table = impressions()
    tree = {**SETTINGS, "users": {"weighting": weighting}}
    pq.write_table(table, tmp_path / "events.parquet")
    snapshot = replay(Settings.model_validate(tree), [tmp_path / "events.parquet"])
    result = streameval.evaluate(
        table, slices=["country", "age"], windows=["5m", "1h"], settings={"slices": {"max_values": 20}}, weighting=weighting
    )  # fmt: skip
    assert result.report()["results"] == snapshot.report()["results"]
    assert result.report()["events"] == snapshot.report()["events"]
    assert len(result.report()["results"]) > 100
    assert result.metric("gauc_request", version="v1") is not None


def test_the_order_of_rows_and_chunks_changes_nothing_when_there_are_times() -> None:
    table = impressions(5_000, hours=1)
    distinct = np.unique(table["ts"].to_numpy(), return_index=True)[1]
    table = table.take(distinct)
    order = np.random.default_rng(0).permutation(table.num_rows)
    mixed = pa.concat_tables([table.take(order[:1000]), table.take(order[1000:])])
    assert streameval.evaluate(mixed).report() == streameval.evaluate(table).report()


@pytest.mark.parametrize(
    "form", ["%Y-%m-%dT%H:%M:%S.%f", "%Y-%m-%dT%H:%M:%S.%fZ", "%Y-%m-%d %H:%M:%S.%f+00:00", "both"]
)
def test_times_as_text_are_those_as_numbers(form: str) -> None:
    """ISO 8601 with an offset and without one, which is UTC."""
    table = impressions(2_000, hours=1)
    times = [datetime.fromtimestamp(ms / 1000, UTC) for ms in table["ts"].to_pylist()]
    forms = ["%Y-%m-%dT%H:%M:%S.%f", "%Y-%m-%dT%H:%M:%S.%fZ"] if form == "both" else [form]
    texts = pa.array([when.strftime(forms[i % len(forms)]) for i, when in enumerate(times)])
    want = streameval.evaluate(table, windows=["5m"]).report()
    for column in (texts, texts.dictionary_encode(), texts.cast(pa.large_string()), texts.cast(pa.string_view())):
        written = table.set_column(table.column_names.index("ts"), "ts", column)
        assert streameval.evaluate(written, windows=["5m"]).report() == want


def test_a_column_that_is_there_twice_is_named_if_it_is_read() -> None:
    table = impressions(2_000)
    twice = table.append_column("other", table["ts"]).append_column("other", table["ts"])
    assert streameval.evaluate(twice).report() == streameval.evaluate(table).report()
    with pytest.raises(ValueError, match="column 'pclick' is there more than once; rename or drop all but one"):
        streameval.evaluate(table.append_column("pclick", table["pclick"]))


def test_categories_of_numbers_are_numbers() -> None:
    """As pandas.Categorical and a dictionary-encoded column have them."""
    table = impressions(2_000)
    coded = table
    for name in ("clicked", "pclick"):
        coded = coded.set_column(table.column_names.index(name), name, table[name].dictionary_encode())
    assert streameval.evaluate(coded).report() == streameval.evaluate(table).report()


def test_files_with_columns_of_different_types_are_named(tmp_path: Path) -> None:
    """Numbers of different widths go together; text and numbers do not."""
    table, at = impressions(2_000), tmp_path / "1.parquet"
    pq.write_table(table.slice(0, 1_000), tmp_path / "0.parquet")
    rest, place = table.slice(1_000), table.column_names.index("clicked")
    pq.write_table(rest.set_column(place, "clicked", rest["clicked"].cast(pa.int8())), at)
    paths = [tmp_path / "0.parquet", at]
    assert streameval.evaluate(paths).report() == streameval.evaluate(table).report()
    pq.write_table(rest.set_column(place, "clicked", rest["clicked"].cast(pa.string())), at)
    with pytest.raises(
        ValueError, match=r"1\.parquet: column 'clicked' is string, in .*0\.parquet it is \w+: must be of one"
    ):
        streameval.evaluate(paths)


@pytest.mark.parametrize("by", ["score", "label", "user"])
def test_without_times_the_order_of_rows_means_nothing(by: str) -> None:
    """A table sorted by score or label is the same sample: nothing is late, no click is missing, no error shrinks."""
    rng = np.random.default_rng(0)
    p = 1 / (1 + np.exp(-rng.normal(-2, 1, 60_000)))
    columns = {"score": p, "label": rng.random(p.size) < p, "user": rng.integers(0, 900, p.size)}
    names = {"score": "pclick", "label": "clicked", "user": "user_id"}
    order = np.argsort(columns[by], kind="stable")
    mixed, ordered = (
        streameval.evaluate({names[name]: column[rows] for name, column in columns.items()})
        for rows in (np.arange(p.size), order)
    )
    assert ordered.results["reliable"].to_pylist() == [True]
    assert ordered.metric("auc") == mixed.metric("auc")
    assert ordered.metric("gauc") == mixed.metric("gauc")
    assert ordered.metric("log_loss_stderr") == mixed.metric("log_loss_stderr")
    assert ordered.metric("auc_stderr") == pytest.approx(mixed.metric("auc_stderr"), rel=0.1)


def test_the_standard_error_of_a_small_table_knows_its_users() -> None:
    """Every row ten times over, by the same user, tells nothing new: the errors stay, ten times fewer rows' worth."""
    rng = np.random.default_rng(4)
    p = 1 / (1 + np.exp(-rng.normal(-1, 1, 2_000)))
    rows = {"pclick": p, "clicked": rng.random(p.size) < p, "user_id": np.arange(p.size)}
    once = streameval.evaluate(rows)
    ten = streameval.evaluate({name: np.repeat(column, 10) for name, column in rows.items()})
    for name in ("auc", "log_loss"):
        assert ten.metric(name) == pytest.approx(once.metric(name), rel=1e-9)
        assert ten.metric(f"{name}_stderr") == pytest.approx(once.metric(f"{name}_stderr"), rel=0.2)


def test_the_baseline_is_the_version_of_the_first_row_unless_it_is_named() -> None:
    table = impressions(3_000).drop_columns(["ts"])
    arms = pa.DictionaryArray.from_arrays(pa.array([2] * 10 + [0, 1, 2] * 996 + [0, 1]), pa.array(["a", "b", "c"]))
    table = table.set_column(table.schema.get_field_index("model_version"), "model_version", arms)
    assert set(streameval.evaluate(table).comparisons["baseline"].to_pylist()) == {"c"}
    assert set(streameval.evaluate(table, baseline="b").comparisons["baseline"].to_pylist()) == {"b"}
    with_times = impressions(3_000).sort_by([("ts", "descending")])
    first = with_times["model_version"].to_pylist()[-1]
    assert set(streameval.evaluate(with_times).comparisons["baseline"].to_pylist()) == {first}


@pytest.mark.slow
def test_impressions_and_clicks_are_joined_as_replay_joins_them_to_the_bit(tmp_path: Path) -> None:
    shown, clicks = as_clicks(impressions())
    pq.write_table(shown, tmp_path / "impressions.parquet")
    pq.write_table(clicks, tmp_path / "clicks.parquet")
    paths = [tmp_path / "impressions.parquet", tmp_path / "clicks.parquet"]
    report = replay(Settings.model_validate(SETTINGS), paths).report()
    options = {"slices": ["country", "age"], "windows": ["5m", "1h"], "settings": {"slices": {"max_values": 20}}}
    result = streameval.evaluate(shown, clicks=clicks, **options)
    assert result.report() == report
    assert report["events"]["matched_clicks"] > 1000
    assert report["comparisons"]
    assert streameval.evaluate(paths[0], clicks=paths[1], **options).report() == report


def test_other_names_are_the_same_events() -> None:
    table = impressions(4_000)
    names = {
        "clicked": "y",
        "pclick": "score",
        "user_id": "uid",
        "model_version": "arm",
        "slices.country": "land",
        "ts": "at",
    }
    renamed = table.rename_columns([names.get(name, name) for name in table.column_names])
    given = {"label": "y", "score": "score", "user": "uid", "version": "arm", "ts": "at"}
    plain = streameval.evaluate(table, slices=["country"]).report()["results"]
    found = streameval.evaluate(renamed, **given, slices=["land"]).report()["results"]
    for row in found:
        if row["slice"]:
            row["slice"]["dimension"] = "country"
    assert found == plain
    shown, clicks = as_clicks(table)
    mapped = shown.rename_columns([names.get(name, name) for name in shown.column_names])
    del given["label"]
    joined = streameval.evaluate(mapped, clicks=clicks, **given)
    assert joined.report() == streameval.evaluate(shown, clicks=clicks).report()


def test_a_path_of_a_table_is_the_table(tmp_path: Path) -> None:
    table = impressions(3_000)
    want = streameval.evaluate(table, slices=["country"]).report()
    pq.write_table(table, tmp_path / "t.parquet")
    with pa.OSFile(str(tmp_path / "t.arrow"), "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
        writer.write_table(table)
    pyarrow.csv.write_csv(table, tmp_path / "t.csv")
    pyarrow.feather.write_feather(table, tmp_path / "t.feather")
    for name in ("t.parquet", "t.arrow", "t.csv", "t.feather"):
        assert streameval.evaluate(tmp_path / name, slices=["country"]).report() == want, name
    pq.write_table(table.slice(0, 1000), tmp_path / "a.parquet")
    pq.write_table(table.slice(1000), tmp_path / "b.parquet")
    parts = [str(tmp_path / "a.parquet"), str(tmp_path / "b.parquet")]
    assert streameval.evaluate(parts, slices=["country"]).report() == want


@pytest.mark.parametrize("kind", ["parquet", "arrow", "feather", "csv"])
@pytest.mark.parametrize("fault", ["empty", "cut", "another"])
def test_an_empty_or_damaged_table_is_an_error_that_names_the_file(tmp_path: Path, kind: str, fault: str) -> None:
    path, table = tmp_path / f"t.{kind}", impressions(3_000)
    if kind == "parquet":
        pq.write_table(table, path)
    elif kind == "csv":
        pyarrow.csv.write_csv(table, path)
    else:
        pyarrow.feather.write_feather(table, path)
    whole = path.read_bytes()
    path.write_bytes({"empty": b"", "cut": whole[: len(whole) // 2], "another": b'"a","b"\n1\n1,2,3\n'}[fault])
    why = "is empty" if fault == "empty" else "damaged, cut off or of another format"
    with pytest.raises(ValueError, match=f"t.{kind}: .*{why}"):
        streameval.evaluate(path)


def test_an_arrow_file_with_a_damaged_offset_is_an_error_that_names_the_file(tmp_path: Path) -> None:
    """Reading such a text would end the process."""
    table = pa.table({"user_id": ["u" * 1_000, "v" * 1_000], "pclick": [0.1, 0.2], "clicked": [0, 1]})
    pyarrow.feather.write_feather(table, tmp_path / "t.arrow", compression="uncompressed")
    offsets, data = np.array([0, 1_000, 2_000], np.int32), (tmp_path / "t.arrow").read_bytes()
    assert data.count(offsets.tobytes()) == 1
    (tmp_path / "t.arrow").write_bytes(data.replace(offsets.tobytes(), (offsets * 500_000).astype(np.int32).tobytes()))
    with pytest.raises(ValueError, match=r"t\.arrow: cannot be read as Arrow; it is damaged.*offset"):
        streameval.evaluate(tmp_path / "t.arrow")


def test_ids_of_a_csv_keep_their_zeros(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("user_id,pclick,clicked\n007,0.1,0\n7,0.2,1\n7,0.3,0\n")
    users = streameval.evaluate(tmp_path / "t.csv").users
    assert sorted(users["user"].to_pylist()) == ["007", "7"]


def test_an_empty_id_is_none() -> None:
    table = {"user_id": ["a", ""], "pclick": [0.1, 0.2], "clicked": [0, 1]}
    with pytest.raises(ValueError, match="user: 'user_id' of row 1 is missing"):
        streameval.evaluate(table)


def test_a_log_of_events_is_replayed(tmp_path: Path) -> None:
    table = impressions(2_000)
    lines = tmp_path / "events.jsonl"
    rows = table.drop_columns(["slices.country", "slices.age", "other"]).to_pylist()
    lines.write_text("".join(json.dumps({k: v for k, v in row.items() if v is not None}) + "\n" for row in rows))
    result = streameval.evaluate(lines)
    assert result.report()["results"] == streameval.evaluate(table).report()["results"]
    assert result.users.num_rows > 500
    with pytest.raises(ValueError, match="a log of events has the fields of events"):
        streameval.evaluate(lines, score="p")


def test_without_users_there_is_no_gauc_and_rows_are_independent() -> None:
    rng = np.random.default_rng(0)
    p = rng.random(50_000) * 0.5
    y = rng.random(p.size) < p
    result = streameval.evaluate({"pclick": p, "clicked": y})
    assert result.metric("gauc") is None
    assert result.metric("gauc_users") == 0
    assert result.report()["results"][0]["reasons"]["gauc"] == "no_eligible_user"
    assert result.users.num_rows == 0
    binomial = np.sqrt(y.mean() * (1 - y.mean()) / y.size)
    assert result.metric("ctr_stderr") == pytest.approx(binomial, rel=0.35)  # of 64 groups: within 9% as a rule


@pytest.mark.parametrize(
    ("change", "options", "words"),
    [
        ({"pclick": [0.1, 1.5]}, {}, r"score: 'pclick' of row 1 is 1.5: must be in \[0, 1\]"),
        ({"pclick": [None, 0.5]}, {}, "score: 'pclick' of row 0 is missing"),
        ({"pclick": ["a", "b"]}, {}, "score: the column 'pclick' is string: must be numbers"),
        ({"clicked": [0, 2]}, {}, "label: 'clicked' of row 1 is 2.0: must be 0 or 1"),
        ({"clicked": [0, None]}, {}, "label: 'clicked' of row 1 is missing"),
        ({"user_id": ["a", None]}, {}, "user: 'user_id' of row 1 is missing"),
        ({"user_id": [0.5, 0.25]}, {}, "user: the column 'user_id' is double: must be text or integers"),
        ({"ts": ["noon", "later"]}, {}, "ts: the column 'ts' cannot be read as times"),
        ({"ts": [START, START // 1000]}, {}, r"ts: 'ts' of row 1 is 17\d{8}: must be ms .* seconds instead of milli"),
        ({"ts": [START * 1000, START]}, {}, r"ts: 'ts' of row 0 is 17\d{14}: must be ms .* microseconds or nano"),
        ({"w": [1, np.inf]}, {"value": "w", "weighting": "value"}, "value: 'w' of row 1 is inf: must be finite"),
        ({}, {"score": "p"}, "score = 'p': there is no such column; there are pclick"),
        ({}, {"user": "u"}, "user = 'u': there is no such column"),
        ({}, {"slices": ["country"]}, "slices = 'country': there is no such column"),
        ({}, {"label": "y"}, "label = 'y': there is no such column"),
        ({"v": ["a", "b"]}, {"version": "v", "baseline": "c"}, "baseline = 'c': no such version; there are a, b"),
        ({"v": ["a", "b"]}, {"version": "v", "score": ["pclick"]}, "exclude each other"),
        ({}, {"windows": ["1h"]}, "windows: rows need a column of times"),
        ({}, {"windows": "1h"}, r'windows = "1h": must be a list, for example \["1h"\]'),
        ({"c": ["a", "b"]}, {"slices": "c"}, r'slices = "c": must be a list, for example \["c"\]'),
        ({}, {"clicks": {"impression_id": [], "ts": []}, "baseline": "v1"}, "versions are compared as they were deployed"),
    ],
)  # fmt: skip
def test_what_cannot_be_used_is_named(change: dict[str, Any], options: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        streameval.evaluate(pa.table({"pclick": [0.1, 0.2], "clicked": [0, 1], **change}), **options)


@pytest.mark.parametrize(
    ("pclick", "words"),
    [
        (np.array([[0.9, 0.1], [0.8, 0.2]]), r"column 'pclick' has the shape \(2, 2\): .*such as \[:, 1\]"),
        (np.array(0.5), r"column 'pclick' has the shape \(\): must have one value for each row"),
        (0.5, "column 'pclick' is 0.5: must have one value for each row"),
        ("de", "column 'pclick' is 'de': must have one value for each row"),
        (
            [0.1, 0.2, 0.3],
            "column 'clicked' has 2 rows, column 'pclick' has 3: columns must have one value for each row",
        ),
        (np.array([0.1, 0.2], complex), r"column 'pclick' \(complex128\) cannot be read"),
        ([0.1, "x"], r"column 'pclick' \(list\) cannot be read: .*'x'"),
    ],
)
def test_a_column_that_is_none_is_named(pclick: Any, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        streameval.evaluate({"clicked": [0, 1], "pclick": pclick})


@pytest.mark.parametrize("kind", ["mapping", "pandas"])
def test_numbers_of_another_byte_order_are_the_same_numbers(kind: str) -> None:
    make: Any = dict if kind == "mapping" else pytest.importorskip("pandas").DataFrame
    p, y = np.array([0.1, 0.25, 0.4]), np.array([0, 1, 1])
    swapped = make({"clicked": y.astype(">i4"), "pclick": p.astype(">f8"), "country": ["de", "us", "de"]})
    of_native = streameval.evaluate({"clicked": y, "pclick": p, "country": ["de", "us", "de"]}, slices=["country"])
    assert streameval.evaluate(swapped, slices=["country"]).report()["results"] == of_native.report()["results"]


def test_what_is_no_table_or_no_setting_is_refused() -> None:
    table = {"pclick": [0.1, 0.2], "clicked": [0, 1]}
    with pytest.raises(TypeError, match="int is not a table"):
        streameval.evaluate(3)
    with pytest.raises(ConfigError, match="windows"):
        streameval.evaluate(table, windows=["90s"])
    with pytest.raises(ConfigError, match="unknown key"):
        streameval.evaluate(table, settings={"compare": {"alpa": 0.05}})
    with pytest.raises(ValueError, match="there is no column 'clicked'"):
        streameval.evaluate({"pclick": [0.1]})


def test_a_model_that_learns_is_scored_before_it_learns() -> None:
    table = impressions(3_000)
    events = table.append_column("features.bucket", pa.array([f"b{int(10 * p)}" for p in table["pclick"].to_pylist()]))
    settings = {"models": [{"name": "ftrl", "kind": "ftrl", "bits": 10}], "batch": {"max_events": 200}}
    result = streameval.evaluate(events, settings=settings)
    found = result.metric("auc", model="ftrl")
    assert found is not None
    assert 0.5 < found < 1
    assert result.metric("auc", version="v1") == streameval.evaluate(table).metric("auc", version="v1")


def test_a_table_without_rows_has_no_results() -> None:
    nothing = streameval.evaluate(impressions(10).slice(0, 0), slices=["country"])
    assert nothing.results.num_rows == nothing.users.num_rows == nothing.comparisons.num_rows == 0


def test_users_and_requests_may_weigh_by_value() -> None:
    table = impressions(3_000)
    ones = table.append_column("value", pa.array(np.ones(table.num_rows)))
    by_click, by_value = (streameval.evaluate(ones, weighting=weighting) for weighting in ("clicks", "value"))
    # each is worth 1
    assert by_value.metric("gauc", version="v1") == pytest.approx(by_click.metric("gauc", version="v1"))
    assert by_value.metric("gauc_request", version="v1") is not None


def test_what_clicks_are_worth_is_a_column_of_clicks() -> None:
    shown, clicks = as_clicks(impressions(3_000))
    worth = clicks.append_column("value", pa.array(np.ones(clicks.num_rows)))
    result = streameval.evaluate(shown, clicks=worth, settings={"metrics": {"value": True}})
    assert result.metric("value_per_impression", version="v1") == pytest.approx(result.metric("ctr", version="v1"))
