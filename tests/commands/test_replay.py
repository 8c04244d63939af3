"""`replay` as a user runs it: every number of the report recomputed from `--predictions` with scikit-learn."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from sklearn import metrics as sk

from streameval import app
from streameval.commands import cli
from streameval.process.clock import WallClock
from streameval.sources.protocol import SourceError
from tests.aucs import auc_of

pytestmark = pytest.mark.slow

EDGES = (0.0, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0)
LINES = ("auc", "gauc", "gauc_request", "log_loss", "mse", "mae", "rig", "nmse", "calibration", "ece")


def make_events(seed: int, n: int = 6000, ties: bool = False) -> list[dict]:
    rng = np.random.default_rng(seed)
    ts = np.sort(rng.integers(0, 5_400_000, n)) + 1_700_000_000_000
    events = []
    for i in range(n):
        p = float(1 / (1 + np.exp(-rng.normal(-2.5, 1.2))))
        if ties:
            p = round(p, 1)
        event = {
            "type": "impression",
            "impression_id": f"imp-{i}",
            "ts": int(ts[i]),
            "user_id": f"user-{rng.integers(0, 400)}",
            "model_version": "v2" if i > n // 2 else "v1",
            "pclick": p,
            "slices": {"country": ["de", "us", "fr"][i % 3]},
            "predictions": {"shadow": min(1.0, p * 1.4)},
            "features": {
                "country": ["de", "us"][i % 2],
                "age": float(i % 50),
                "new": i % 5 == 0,
                "tags": ["a", f"b{i % 9}"],
            },
        }
        if i % 4:
            event["request_id"] = f"req-{i // 6}"
        events.append(event)
        if rng.random() < p:
            click = int(ts[i] + rng.exponential(60_000) + (2_000_000 if i % 50 == 0 else 1))
            events.append({"type": "click", "impression_id": f"imp-{i}", "ts": click})
            if i % 20 == 0:  # a repeated click
                events.append({"type": "click", "impression_id": f"imp-{i}", "ts": click + 5})
    events.append({"type": "click", "impression_id": "never-shown", "ts": int(ts[-1])})
    events.sort(key=lambda e: e["ts"])
    return events


def write(path: Path, events: list[dict]) -> Path:
    text = "".join(json.dumps(e) + "\n" for e in events).encode()
    path.write_bytes(gzip.compress(text) if path.suffix == ".gz" else text)
    return path


def replay(tmp_path: Path, file: Path, name: str, config: str = "", expect: int = 0) -> tuple[dict, pa.Table]:
    toml = tmp_path / f"{name}.toml"
    toml.write_text(f'[files]\ndead_letters = "{tmp_path}/{name}-dead.jsonl"\n' + config)
    report, predictions = tmp_path / f"{name}.json", tmp_path / f"{name}.parquet"
    arguments = ["replay", str(file), "-c", str(toml), "--report", str(report), "--predictions", str(predictions)]
    result = CliRunner().invoke(cli.cli, arguments, catch_exceptions=False)
    assert result.exit_code == expect, result.output
    return json.loads(report.read_text()), pq.read_table(predictions)


def grouped(group: np.ndarray, p: np.ndarray, y: np.ndarray) -> tuple[float | None, int, int]:
    weighted = weight = users = 0.0
    for one in np.unique(group):
        on = group == one
        if 0 < y[on].sum() < on.sum():
            weighted += on.sum() * auc_of(y[on], p[on])
            weight += on.sum()
            users += 1
    return (weighted / weight if weight else None), int(users), int(weight)


def check_result(result: dict, rows: dict[str, np.ndarray]) -> None:
    on = (
        (rows["model"] == result["model"])
        & (rows["version"] == result["version"])
        & (rows["source"] == result["source"])
    )
    if result["window_start"] is not None:
        on &= (rows["ts"] >= result["window_start"]) & (rows["ts"] < result["window_end"])
    p, y, user, request = rows["pclick"][on], rows["clicked"][on], rows["user_id"][on], rows["request_id"][on]
    n, clicks = int(on.sum()), int(y.sum())
    assert (result["impressions"], result["clicks"]) == (n, clicks)
    g = clicks / n
    assert abs(result["auc"] - sk.roc_auc_score(y, p)) <= result["auc_error"] + 1e-13  # sklearn's own rounding
    gauc, users, impressions = grouped(user, p, y)
    assert result["gauc"] == pytest.approx(gauc, abs=1e-6)
    assert (result["gauc_users"], result["gauc_impressions"]) == (users, impressions)
    if result["window"] == "all":
        having = request != ""
        assert result["gauc_request"] == pytest.approx(grouped(request[having], p[having], y[having])[0], abs=1e-6)
    q = np.clip(p, 1e-7, 1 - 1e-7)
    loss = float(np.mean(-(y * np.log(q) + (1 - y) * np.log1p(-q))))
    entropy = -g * np.log(g) - (1 - g) * np.log1p(-g)
    mse = float(np.mean((p - y) ** 2))
    bucket = np.searchsorted(EDGES[1:-1], p, side="right")
    ece = sum(abs(p[bucket == b].sum() - y[bucket == b].sum()) for b in range(10)) / n
    expected = {
        "ctr": g, "mean_pclick": p.mean(), "log_loss": loss, "rig": 1 - loss / entropy, "mse": mse,
        "nmse": mse / (g * (1 - g)), "mae": np.abs(p - y).mean(), "calibration": p.mean() / g,
        "prediction_error": p.mean() / g - 1, "ece": ece,
    }  # fmt: skip
    for name, value in expected.items():
        assert result[name] == pytest.approx(value, rel=1e-6, abs=1e-9), name
    for b, row in enumerate(result["buckets"]):
        inside = bucket == b
        assert (row["lower"], row["upper"]) == (EDGES[b], EDGES[b + 1])
        assert (row["impressions"], row["clicks"]) == (inside.sum(), y[inside].sum())
        if inside.any():
            assert row["mean_pclick"] == pytest.approx(p[inside].mean(), rel=1e-6)
            assert row["log_loss"] == pytest.approx(
                np.mean(-(y * np.log(q) + (1 - y) * np.log1p(-q))[inside]), rel=1e-6
            )


def columns(table: pa.Table) -> dict[str, np.ndarray]:
    return {
        name: np.array(table[name].to_pylist() if name != "request_id" else [v or "" for v in table[name].to_pylist()])
        for name in table.column_names
    }


MODELS = """
[slices]
dimensions = ["country"]
[[models]]
name = "ftrl"
kind = "ftrl"
[[models]]
name = "lr"
kind = "river"
factory = "river.linear_model.LogisticRegression"
"""


@pytest.mark.parametrize("ties", [False, True])
def test_every_number_of_the_report_can_be_recomputed_from_the_predictions(tmp_path: Path, ties: bool) -> None:
    file = write(tmp_path / "events.jsonl", make_events(1, ties=ties))
    report, predictions = replay(tmp_path, file, "a", MODELS)
    rows = columns(predictions)
    overall = [r for r in report["results"] if r["slice"] is None]
    assert {(r["model"], r["version"], r["source"]) for r in overall} == {
        ("default", "v1", "logged"), ("default", "v2", "logged"), ("default", "shadow", "logged"),
        ("ftrl", "online", "online"), ("lr", "online", "online"),
    }  # fmt: skip
    for result in overall:
        check_result(result, rows)
        assert result["violations"] == 0
    assert report["events"]["unmatched_clicks"] == 1
    assert report["events"]["late_clicks"] > 0
    assert report["events"]["duplicate_clicks"] > 0


def test_a_label_that_changes_after_maturity_is_changed_in_the_predictions_too(tmp_path: Path) -> None:
    events = make_events(2, n=2000)
    clicks = [e for e in events if e["type"] == "click"]
    late = clicks[5:40]  # in time by their timestamps, but they arrive at the very end
    ordered = [e for e in events if e not in late] + late
    report, predictions = replay(tmp_path, write(tmp_path / "late.jsonl", ordered), "late")
    in_order, same = replay(tmp_path, write(tmp_path / "order.jsonl", events), "order")
    assert report["events"]["corrected"] > 10
    by_id = dict(zip(predictions["impression_id"].to_pylist(), predictions["clicked"].to_pylist(), strict=True))
    assert by_id == dict(zip(same["impression_id"].to_pylist(), same["clicked"].to_pylist(), strict=True))
    for one, other in zip(report["results"], in_order["results"], strict=True):
        ignored = ("corrected", "auc_stderr", "pauc_stderr")  # curves are those of the first labels
        assert all(one[name] == pytest.approx(other[name], rel=0.1) for name in ignored[1:])
        assert {k: v for k, v in one.items() if k not in ignored} == {
            k: v for k, v in other.items() if k not in ignored
        }


def test_the_report_does_not_depend_on_batches_order_within_lateness_or_format(tmp_path: Path) -> None:
    events = make_events(3, n=3000)
    whole, _ = replay(tmp_path, write(tmp_path / "a.jsonl", events), "a", '[slices]\ndimensions = ["country"]\n')
    rng = np.random.default_rng(0)
    jitter = [e["ts"] + rng.uniform(0, 59_000) for e in events]
    shuffled = [events[i] for i in np.argsort(jitter, kind="stable")]
    config = '[slices]\ndimensions = ["country"]\n[batch]\nmax_events = 97\n'
    other, _ = replay(tmp_path, write(tmp_path / "b.jsonl.gz", shuffled), "b", config)
    assert whole == other
    rows = [{**e, **{k: json.dumps(e[k]) for k in ("slices", "predictions", "features") if k in e}} for e in shuffled]
    names = list(dict.fromkeys(k for r in rows for k in r))
    table = pa.table({name: [r.get(name) for r in rows] for name in names})
    pq.write_table(table, tmp_path / "c.parquet", row_group_size=500)
    import pyarrow.csv

    pyarrow.csv.write_csv(table, tmp_path / "c.csv")
    for path in ("c.parquet", "c.csv"):
        other, _ = replay(tmp_path, tmp_path / path, path, config)
        assert whole == other


def test_a_bad_line_goes_to_the_dead_letters_whole_and_is_counted_by_reason(tmp_path: Path) -> None:
    file = write(tmp_path / "events.jsonl", make_events(4, n=300))
    bad = [b'{"impression_id": "x", "ts": -1, "user_id": "u", "pclick": 0.5}', b"\xff\xfe", b'{"impression_id":']
    file.write_bytes(file.read_bytes() + b"\n".join(bad) + b"\n")
    report, _ = replay(tmp_path, file, "bad")
    assert report["events"]["invalid"] == {"malformed": 2, "out_of_range": 1}
    letters = [json.loads(line) for line in (tmp_path / "bad-dead.jsonl").read_text().splitlines()]
    assert letters[0]["value"].encode() == bad[0]
    assert letters[0]["field"] == "ts"
    assert letters[1]["value_base64"] == "//4="


def test_a_second_model_under_the_same_ids_goes_to_the_dead_letters_and_makes_labels_unreliable(tmp_path: Path) -> None:
    first = [e for e in make_events(4, n=300) if "pclick" in e]
    second = [{**e, "model": "second"} for e in first]
    file = write(tmp_path / "two.jsonl", [e for pair in zip(first, second, strict=True) for e in pair])
    report, _ = replay(tmp_path, file, "two")
    assert report["events"]["impressions"] == report["events"]["conflicting_impressions"] == len(first)
    assert report["events"]["invalid"] == {"conflicting_id": len(first)}
    letters = [json.loads(line) for line in (tmp_path / "two-dead.jsonl").read_text().splitlines()]
    assert [json.loads(letter["value"]) for letter in letters] == second
    assert [letter["offset"] for letter in letters] == list(range(1, 2 * len(first), 2))
    assert {(letter["reason"], letter["field"]) for letter in letters} == {("conflicting_id", "impression_id")}
    assert not any(result["reliable"] for result in report["results"])


@pytest.mark.parametrize(
    ("arguments", "status", "says"),
    [
        (["replay", "/no/such/file.jsonl"], 1, "no such file"),
        (["replay"], 2, "Missing argument"),
        (["nonsense"], 2, "No such command"),
        (["config", "check", "-c", "/no/such.toml"], 1, "no such file"),
    ],
)
def test_failures_are_one_line_and_the_exit_status_says_which_kind(
    arguments: list[str], status: int, says: str
) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "streameval", *arguments], capture_output=True, text=True, timeout=480, check=False
    )
    assert done.returncode == status
    assert says in done.stderr
    assert "Traceback" not in done.stderr


def test_json_on_the_standard_output_is_the_report(tmp_path: Path) -> None:
    file, report = write(tmp_path / "events.jsonl", make_events(3, 500)), tmp_path / "report.json"
    done = CliRunner().invoke(cli.cli, ["replay", str(file), "--json", "--report", str(report)], catch_exceptions=False)
    assert json.loads(done.stdout) == json.loads(report.read_text())


@pytest.mark.slow
def test_names_outside_of_ascii_are_written_in_any_locale(tmp_path: Path) -> None:
    log = write(tmp_path / "events.jsonl", make_events(1, 500))
    names = ["pré.parquet", "pré.json"]
    done = subprocess.run(
        [sys.executable, "-m", "streameval", "replay", str(log), "--predictions", names[0], "--report", names[1]],
        cwd=tmp_path, capture_output=True, check=False,
        env={**os.environ, "PYTHONPATH": str(Path.cwd()), "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert {*names} <= {path.name for path in tmp_path.iterdir()}


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a disk that is full")
def test_predictions_on_a_full_disk_are_an_error_that_names_the_file(tmp_path: Path) -> None:
    log = tmp_path / "events.jsonl"
    log.write_text("".join(json.dumps(event) + "\n" for event in make_events(1, 500)))
    (tmp_path / "p.parquet.partial").symlink_to("/dev/full")
    with pytest.raises(OSError, match=r"No space left on device.*p\.parquet"):
        CliRunner().invoke(
            cli.cli, ["replay", str(log), "--predictions", str(tmp_path / "p.parquet")], catch_exceptions=False
        )


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a disk that is full")
def test_numbers_are_shown_also_if_the_report_cannot_be_written(tmp_path: Path) -> None:
    log = write(tmp_path / "events.jsonl", make_events(1, 500))
    done = CliRunner().invoke(cli.cli, ["replay", str(log), "--report", "/dev/full"])
    assert done.exit_code == 1
    assert "calibration" in done.stdout
    assert done.stderr.endswith(
        "report /dev/full: cannot be written: No space left on device; make room for it, or name another file with --report\n"
    )


@pytest.mark.parametrize("kind", ["pipe", "link to a device"])
def test_predictions_do_not_replace_a_device_or_a_pipe(tmp_path: Path, kind: str) -> None:
    there, log = tmp_path / "there", write(tmp_path / "events.jsonl", make_events(1, 50))
    if kind == "pipe":
        os.mkfifo(there)
    else:  # root could replace /dev/null itself
        there.symlink_to("/dev/null")
    before = there.lstat()
    done = CliRunner().invoke(cli.cli, ["replay", str(log), "--predictions", str(there)])
    assert done.exit_code == 2
    assert f"{there}: is a device or a pipe, and this can only be written to a file; name a file" in done.output
    assert there.lstat() == before


@pytest.mark.parametrize("exists", [True, False])
def test_predictions_and_report_are_written_where_links_lead(tmp_path: Path, exists: bool) -> None:
    log, elsewhere = write(tmp_path / "events.jsonl", make_events(1, 500)), tmp_path / "elsewhere"
    elsewhere.mkdir()
    targets = [elsewhere / name for name in ("p.parquet", "r.json")]
    links = [tmp_path / name for name in ("predictions", "report")]
    for link, target in zip(links, targets, strict=True):
        link.symlink_to(target)
        if exists:
            target.write_text("of yesterday")
    arguments = ["replay", str(log), "--predictions", str(links[0]), "--report", str(links[1])]
    CliRunner().invoke(cli.cli, arguments, catch_exceptions=False)
    assert all(link.is_symlink() for link in links)
    assert pq.read_table(targets[0]).num_rows > 0
    assert json.loads(targets[1].read_text())["results"]
    assert sorted(elsewhere.iterdir()) == sorted(targets)


def test_a_clock_of_1970_is_an_error_instead_of_every_event_rejected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log, predictions = write(tmp_path / "events.jsonl", make_events(1, 50)), tmp_path / "p.parquet"
    monkeypatch.setattr(app, "WallClock", lambda: WallClock(wall=lambda: 3600.0))
    with pytest.raises(SourceError, match=r"clock says 1970-01-01 01:00 UTC: .*; set the clock, and start again$"):
        CliRunner().invoke(cli.cli, ["replay", str(log), "--predictions", str(predictions)], catch_exceptions=False)
    assert not list(tmp_path.glob("p.parquet*"))


def test_files_of_versions_one_after_the_other_are_read_with_a_warning(tmp_path: Path) -> None:
    shown = [event for event in make_events(5, 400) if event["type"] == "impression"]
    for event in shown:
        event["model_version"] = f"v{1 + hash(event['ts']) % 2}"
    paths = [tmp_path / name for name in ("both", "v1", "v2")]
    for path, wanted in zip(paths, (("v1", "v2"), ("v1",), ("v2",)), strict=True):
        lines = [json.dumps(event) + "\n" for event in shown if event["model_version"] in wanted]
        path.with_suffix(".jsonl").write_text("".join(lines))
    both, v1, v2 = (str(path.with_suffix(".jsonl")) for path in paths)
    apart, merged = (CliRunner().invoke(cli.cli, ["replay", *files]) for files in ((v1, v2), (both,)))
    assert apart.exit_code == merged.exit_code == 0
    assert "of 400 impressions came later than join.allowed_lateness" in apart.stderr
    assert "by time" in apart.stderr
    assert "join.allowed_lateness" not in merged.output
