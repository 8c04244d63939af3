"""The demo as a user runs it, and `simulate` into files."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest
from click.testing import CliRunner
from sklearn.metrics import roc_auc_score

from streameval.commands import cli
from streameval.simulate.encode import events
from streameval.simulate.scenario import Scenario, Version, demo_scenario, nasty_scenario
from streameval.simulate.traffic import Traffic

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("client", ["confluent", "kafka-python"])
def test_the_demo_shows_v1_and_the_online_model_and_ends_cleanly_on_ctrl_c(client: str) -> None:
    command = [sys.executable, "-m", "streameval", "demo", "--port", "0", "--client", client]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        url = None
        for line in process.stderr:
            found = re.search(r"page\s+(http://\S+)", line)
            if found:
                url = found[1].rstrip("/")
                break
        assert url, "the demo must say where its page is"
        deadline = time.monotonic() + 360
        seen: set[tuple[str, str]] = set()
        while time.monotonic() < deadline and not {("ctr", "v1"), ("ftrl", "online")} <= seen:
            time.sleep(1)
            with urllib.request.urlopen(f"{url}/api/v1/results", timeout=120) as answer:
                results = json.load(answer)["results"]
            seen = {
                (r["model"], r["version"])
                for r in results
                if r["impressions"] > 100 and r["slice"] is None and r["window"] == "all"
            }
        assert {("ctr", "v1"), ("ftrl", "online")} <= seen
        with urllib.request.urlopen(f"{url}/metrics", timeout=120) as answer:
            assert b"streameval_impressions_total{" in answer.read()
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=240)
        assert process.returncode == 0, err
        assert "Traceback" not in err
        assert "v1" in out
    finally:
        if process.poll() is None:
            os.kill(process.pid, signal.SIGKILL)
            process.wait()


def test_the_same_seed_writes_the_same_bytes_and_another_seed_others(tmp_path: Path) -> None:
    def write(name: str, seed: str) -> bytes:
        path = tmp_path / name
        result = CliRunner().invoke(
            cli.cli, ["simulate", str(path), "--seconds", "20", "--seed", seed, "--scenario", "nasty"]
        )
        assert result.exit_code == 0, result.output
        return path.read_bytes()

    assert write("a.jsonl", "1") == write("b.jsonl", "1") != write("c.jsonl", "2")
    assert write("a.jsonl.gz", "1") == write("b.jsonl.gz", "1")


def test_simulated_files_of_every_format_replay_to_the_same_report(tmp_path: Path) -> None:
    reports = []
    for name in ("a.jsonl.zst", "a.csv", "a.parquet"):
        path, report = tmp_path / name, tmp_path / f"{name}.json"
        (tmp_path / "c.toml").write_text('[files]\ndead_letters = ""\n')
        runner = CliRunner()
        assert runner.invoke(cli.cli, ["simulate", str(path), "--seconds", "40", "--scenario", "nasty"]).exit_code == 0
        arguments = ["replay", str(path), "-c", str(tmp_path / "c.toml"), "--report", str(report)]
        assert runner.invoke(cli.cli, arguments).exit_code == 0
        reports.append(json.loads(report.read_text()))
    invalid = [r["events"].pop("invalid") for r in reports]
    assert invalid[0]
    assert not invalid[1]
    assert reports[0] == reports[1] == reports[2]


def test_the_simulator_knows_the_truth() -> None:
    scenario = Scenario(
        duration_s=400, rate=300, ctr=0.08, versions=(Version("good", noise=0.2), Version("bad", noise=2.0, share=0.5))
    )
    clicked, p_star, pclick = [], [], []
    for block in Traffic(scenario).blocks():
        clicked += block.clicked.tolist()
        p_star += block.p_star.tolist()
        pclick += block.pclick.tolist()
    n = len(clicked)
    assert sum(clicked) / n == pytest.approx(0.08, rel=0.35)
    assert sum(clicked) / n == pytest.approx(sum(p_star) / n, abs=4 * (0.08 / n) ** 0.5)
    best = roc_auc_score(clicked, p_star)
    good, bad = (roc_auc_score(clicked, [p[v] for p in pclick]) for v in (0, 1))
    assert best > good - 0.005 > bad + 0.05


def test_arrival_is_out_of_order_only_within_its_bound_and_duplicates_are_as_asked() -> None:
    scenario = nasty_scenario()
    newest = 0
    sent: dict[tuple[str, str], int] = {}
    for event in events(Traffic(scenario)):
        if event.raw is None:
            assert event.fields["ts"] > newest - scenario.shuffle_s * 1000 - 1
            newest = max(newest, event.fields["ts"])
            key = (event.kind, event.fields["impression_id"])
            sent[key] = sent.get(key, 0) + 1
    twice = sum(count == 2 for count in sent.values())
    assert twice / len(sent) == pytest.approx(scenario.duplicate, rel=0.15)


def test_bad_scenarios_are_refused_by_name() -> None:
    with pytest.raises(ValueError, match="ctr = 2"):
        Scenario(ctr=2)
    with pytest.raises(ValueError, match="rate = -1"):
        Scenario(rate=-1)
    assert demo_scenario(0, 10).versions[1].name == "v2"
