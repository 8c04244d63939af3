"""`streameval auction FILES`: a log as it is written, through the join, to results; and what it refuses."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from streameval.commands.cli import cli
from streameval.settings import toml
from streameval.settings.tree import ConfigError, Settings
from tests.auction.world import ADS, MAINLINE, POINT, POINTS, SLOTS, VERSIONS, World, make_world

T0 = 1_700_000_000_000
REQUESTS, QUERIES = 600, 10
CONFIG = """
[auction]
slots = 7
[[auction.points]]
name = "now"
mainline_reserve = 0.25
sidebar_reserve = 0.02
[[auction.points]]
name = "open"
"""
KEEP_NONE = '[files]\ndead_letters = ""\n'
Event = dict[str, Any]


@pytest.fixture(scope="module")
def world() -> World:
    return make_world(11, REQUESTS, QUERIES)


def events(world: World) -> list[Event]:
    """The log of a world: v1 serves, the others ride along; every candidate is written, with its click if it has one."""
    out: list[Event] = []
    for j in range(world.position.size):
        request, ad = divmod(j, ADS)
        shown = bool(world.position[j] >= 0)
        event = {
            "type": "impression", "impression_id": f"i{j}", "ts": T0 + 1000 * request, "user_id": f"u{request % 50}",
            "request_id": f"r{request}", "query_id": f"q{world.auctions.pair[j] // ADS}", "item_id": f"a{ad}",
            "bid": float(world.auctions.bid[j]), "model_version": "v1", "pclick": float(world.auctions.score[0, j]),
            "predictions": {v: float(p) for v, p in zip(VERSIONS[1:], world.auctions.score[1:, j], strict=True)},
        }  # fmt: skip
        out.append({**event, "position": int(world.position[j])} if shown else {**event, "shown": False})
        if world.clicked[j]:
            out.append(
                {"type": "click", "impression_id": f"i{j}", "ts": event["ts"] + 700, "user_id": event["user_id"]}
            )
    return out


def run(folder: Path, log: list[Event], config: str = CONFIG) -> tuple[dict[str, Any], str]:
    (folder / "log.jsonl").write_text("\n".join(map(json.dumps, log)))
    (folder / "c.toml").write_text(config)
    result = CliRunner().invoke(
        cli,
        ["auction", str(folder / "log.jsonl"), "-c", str(folder / "c.toml"), "--report", str(folder / "r.json")],
        catch_exceptions=False,
    )
    assert result.exit_code == 0, result.output
    return json.loads((folder / "r.json").read_text()), result.stdout


def cell(report: dict[str, Any], version: str, point: str) -> dict[str, Any]:
    return next(r for r in report["results"] if (r["version"], r["point"]) == (version, point))


@pytest.fixture(scope="module")
def report(world: World, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return run(tmp_path_factory.mktemp("auction"), events(world))[0]


def test_the_served_version_gets_the_clicks_of_the_log(report: dict[str, Any], world: World) -> None:
    (observed,) = report["observed"]
    now = cell(report, "v1", "now")
    assert now["click_yield"] == pytest.approx(world.click_yield, abs=1e-9)
    assert now["click_yield"] == pytest.approx(observed["click_yield"], abs=1e-9)
    above = (world.position >= 0) & (world.position < MAINLINE)
    assert now["mainline_ads"] == observed["mainline_ads"] == np.count_nonzero(above) / REQUESTS
    assert observed["mainline_click_yield"] == world.clicked[above].sum() / REQUESTS
    assert report["matched_to"] == {"model": "default", "version": "v1", "source": "logged"}
    assert now["matched_click_yield"] == pytest.approx(now["click_yield"], abs=1e-12)
    assert now["replayed_share"] == 1.0
    assert report["requests"] == now["requests"] == REQUESTS
    assert not any(report["skipped"].values())
    assert {r["version"] for r in report["results"]} == set(VERSIONS)
    assert [p["impressions"] for p in report["positions"]] == [
        int(np.count_nonzero(world.position == k)) for k in range(SLOTS)
    ]
    assert float(POINTS.mainline_reserve[POINT]) == now["mainline_reserve"]


def test_undefined_numbers_are_null_with_a_reason(report: dict[str, Any]) -> None:
    for row in report["results"]:
        missing = {name for name, value in row.items() if value is None}
        assert missing == set(row["reasons"])
    out_of_reach = cell(report, "v3", "now")
    assert out_of_reach["reasons"].get("matched_click_yield") == "mainline_ads_out_of_reach", "its only point"


def test_neither_order_nor_copies_nor_batches_change_anything(
    world: World, report: dict[str, Any], tmp_path: Path
) -> None:
    log = events(world)
    rng = random.Random(3)
    some = [event for event in log if event["type"] == "impression" and rng.random() < 0.1]
    shuffled = sorted([*log, *some], key=lambda event: event["ts"] // 60_000 + rng.random())
    again, _ = run(tmp_path, shuffled, CONFIG + "[batch]\nmax_events = 777\n")
    for row in (*again["results"], *again["positions"]):
        row.pop("reasons", None)
    expected = json.loads(json.dumps(report))
    for row in (*expected["results"], *expected["positions"]):
        row.pop("reasons", None)
    assert again == expected


def test_requests_that_cannot_be_run_again_are_counted_by_reason(world: World, tmp_path: Path) -> None:
    log = [event for event in events(world) if event["type"] == "impression"]
    by_request: dict[str, list[Event]] = {}
    for event in log:
        by_request.setdefault(event["request_id"], []).append(event)
    lists = list(by_request.values())

    def shown(number: int) -> Event:
        return next(event for event in lists[number] if event.get("shown", True))

    del lists[0][3]["bid"]
    del lists[1][3]["item_id"]
    shown(2)["position"] = 9
    del shown(3)["position"]
    for event, same in zip(lists[4], lists[6], strict=True):
        same["item_id"] = event["item_id"]  # still two candidates: nobody knows that they are of one request
        del event["request_id"], same["request_id"]
    del lists[5][0]["bid"], shown(5)["position"]  # the first reason counts
    found, text = run(tmp_path, log)
    assert found["skipped"] == {
        "no_request": 30, "no_item": 1, "no_bid": 2, "no_position": 1, "position_beyond_slots": 1, "no_label": 0,
    }  # fmt: skip
    assert found["requests"] == REQUESTS - 7
    assert "not replayed: no_request 30, no_item 1, no_bid 2, no_position 1, position_beyond_slots 1" in text


def test_rejected_candidates_are_counted_and_said(world: World, tmp_path: Path) -> None:
    """Their requests are replayed without them: the result would be another one without a word."""
    log = events(world)
    others = [event for event in log if event.get("shown") is False]
    others[0]["bid"], others[1]["bid"], others[2]["propensity"] = -1, "high", 0
    found, text = run(tmp_path, log, CONFIG + KEEP_NONE)
    assert found["invalid"] == {"out_of_range": 2, "wrong_type": 1}
    assert found["requests"] == REQUESTS
    assert "dead letters: out_of_range 2, wrong_type 1; requests are replayed without them" in text.splitlines()


def test_a_request_without_shown_ads_is_traffic_too(tmp_path: Path, world: World) -> None:
    log = [event for event in events(world) if event["ts"] < T0 + 5_000]
    others = [
        {**event, "impression_id": f"n{k}", "request_id": "none", "shown": False, "item_id": f"x{k}"}
        for k, event in enumerate(log[:15])
    ]
    found, _ = run(tmp_path, [*log, *others])
    assert found["requests"] == cell(found, "v1", "now")["requests"] == 6
    assert cell(found, "v1", "open")["replayed_share"] < 1


def test_what_was_observed_is_by_request_whether_or_not_it_showed_anything(tmp_path: Path) -> None:
    """Yields of the version that served are those of its replay, where for some requests it chose to show nothing."""
    log: list[dict[str, Any]] = []
    for n in range(10):
        shown = {"position": 0, "pclick": 0.5} if n < 8 else {"shown": False, "pclick": 0.01}  # below the reserve
        one = {
            "type": "impression",
            "impression_id": f"i{n}",
            "ts": T0 + n * 1_000,
            "user_id": f"u{n}",
            "item_id": f"a{n}",
        }
        log.append({**one, "request_id": f"r{n}", "query_id": "q", "bid": 1.0, "model_version": "v1", **shown})
        if n < 4:
            log.append({"type": "click", "impression_id": f"i{n}", "ts": T0 + n * 1_000 + 10})
    config = """
[auction]
mainline = 1
slots = 2
[[auction.points]]
name = "now"
mainline_reserve = 0.1
sidebar_reserve = 0.1
"""
    found, _ = run(tmp_path, log, config)
    now, (observed,) = cell(found, "v1", "now"), found["observed"]
    assert observed["requests"] == found["requests"] == 10
    for name in ("click_yield", "mainline_click_yield", "mainline_ads"):
        assert observed[name] == now[name] == (0.8 if name == "mainline_ads" else 0.4)
    two = [{**event, "model": "ab"[k % 2]} if event["type"] == "impression" else event for k, event in enumerate(log)]
    _, text = run(tmp_path, two, config)
    for name in ("a v1", "b v1"):
        assert any(line.startswith(name) for line in text.splitlines())
        assert any(line.startswith(f"observed under {name}: ") for line in text.splitlines())


def test_the_table_says_who_is_matched_to_whom(tmp_path: Path, world: World) -> None:
    _, text = run(tmp_path, events(world))
    lines = text.splitlines()
    assert lines[0].split()[:2] == ["version", "point"]
    assert sum(line.startswith(VERSIONS) for line in lines) == 8
    assert lines[-1] == "matched: at the mainline ads of * v1 at each operating point"
    assert any(line.startswith("observed under v1: 600 requests, click yield 0.") for line in lines)


def test_it_says_in_one_line_when_there_is_nothing_to_run(tmp_path: Path, world: World) -> None:
    log = [{name: value for name, value in event.items() if name != "bid"} for event in events(world)]
    (tmp_path / "log.jsonl").write_text("\n".join(map(json.dumps, log)))
    (tmp_path / "c.toml").write_text(CONFIG)
    files = [str(tmp_path / "log.jsonl"), "-c", str(tmp_path / "c.toml")]
    found = CliRunner().invoke(cli, ["auction", *files])
    assert str(found.exception) == (
        "no request can be replayed (no_bid 600); every candidate needs request_id, item_id and bid"
    )
    (tmp_path / "log.jsonl").write_text("\n".join(json.dumps({**event, "bid": -1}) for event in log[:9]))
    (tmp_path / "c.toml").write_text(CONFIG + KEEP_NONE)
    found = CliRunner().invoke(cli, ["auction", *files])
    assert str(found.exception).startswith("no request can be replayed (dead letters: out_of_range ")
    (tmp_path / "c.toml").write_text("[auction]\nslots = 7\n")
    found = CliRunner().invoke(cli, ["auction", *files])
    assert str(found.exception) == (
        "auction.points: there are none; add at least one operating point as [[auction.points]]"
    )


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[[auction.points]]\nmainline_reserve = 0.1", "auction.points.0.name: is required"),
        ('[[auction.points]]\nname = ""', 'auction.points.0.name = "": must not be ""'),
        (
            '[[auction.points]]\nname = "a"\n[[auction.points]]\nname = "a"',
            'auction.points: the name "a" is given twice; every operating point needs its own',
        ),
        ('[[auction.points]]\nname = " "', "auction.points: a name is blank; every operating point needs its own"),
        ('[[auction.points]]\nname = "a"\nmainline_reserve = -1', "auction.points.0.mainline_reserve = -1: must"),
        ("[auction]\nslots = 2", "auction.mainline = 3: must be at most slots = 2, which include it"),
        ('[auction]\ncurve = "fitted"', "auction.curve = "),
        ("[auction]\nsquash = nan", "auction.squash = "),
    ],
)
def test_a_bad_configuration_is_one_clear_error(tmp_path: Path, text: str, says: str) -> None:
    (tmp_path / "c.toml").write_text(text)
    with pytest.raises(ConfigError) as error:
        toml.load(tmp_path / "c.toml", {})
    assert str(error.value).removeprefix(f"{tmp_path / 'c.toml'}: ").startswith(says)


def test_settings_are_written_as_they_are_read(tmp_path: Path) -> None:
    (tmp_path / "c.toml").write_text(CONFIG)
    settings: Settings = toml.load(tmp_path / "c.toml", {})
    (tmp_path / "again.toml").write_text(toml.to_toml(settings))
    assert toml.load(tmp_path / "again.toml", {}) == settings
    assert [point.name for point in settings.auction.points] == ["now", "open"]
