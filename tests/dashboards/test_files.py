"""The dashboards: made by the program, laid out without overlaps, linked to what exists."""

from __future__ import annotations

import re
from typing import Any

import pytest

from dashboards.grafana import place, text
from dashboards.make import dashboards
from dashboards.make import text as written
from streameval.metrics.registry import METRICS as REGISTERED
from tests.dashboards.files import FILES, FOLDER, ROOT, panels, queries, variables

STABLE = {"timeseries", "stat", "table", "heatmap", "barchart", "state-timeline", "text"}
NAMES = ["calibration", "comparisons", "lists", "models", "overview", "pipeline"]
METRICS = {metric.name for metric in REGISTERED}
UIDS = {dashboard["uid"] for dashboard in FILES.values()}
VIEWS = {
    "overview": {"window"},
    "history": {"model", "metric", "versions", "from", "to", "range", "step", "slice"},
    "calibration": {"model", "a", "b", "window"},
    "metrics": {"model", "window"},
    "auctions": {"model", "window"},
    "comparisons": {"id"},
    "flow": set[str](),
}


def addresses(value: Any) -> list[str]:
    """Every `url` in it, however deep."""
    if isinstance(value, dict):
        own = [value["url"]] if isinstance(value.get("url"), str) else []
        return own + [url for one in value.values() for url in addresses(one)]
    return [url for one in value for url in addresses(one)] if isinstance(value, list) else []


def test_there_are_six() -> None:
    assert sorted(FILES) == NAMES
    assert len(UIDS) == len({dashboard["title"] for dashboard in FILES.values()}) == 6


@pytest.mark.parametrize("name", NAMES)
def test_the_program_writes_what_is_there(name: str) -> None:
    assert written(dashboards()[f"{name}.json"]) == (FOLDER / f"{name}.json").read_text(), "python -m dashboards.make"


@pytest.mark.parametrize("name", NAMES)
def test_panels_do_not_overlap_and_leave_no_hole(name: str) -> None:
    cells: dict[tuple[int, int], str] = {}
    for panel in FILES[name]["panels"]:
        at = panel["gridPos"]
        assert at["x"] >= 0
        assert at["x"] + at["w"] <= 24
        for x in range(at["x"], at["x"] + at["w"]):
            for y in range(at["y"], at["y"] + at["h"]):
                assert (x, y) not in cells, (panel["title"], cells[x, y])
                cells[x, y] = panel["title"]
    height = max(y for _, y in cells) + 1
    assert len(cells) == 24 * height, "a hole"


def test_a_line_that_is_too_wide_is_refused() -> None:
    one = text("words", "", "")
    with pytest.raises(ValueError, match="words: the line is wider than 24 columns"):
        place([(4, [{**one, "width": 20}, {**one, "width": 5}])])


@pytest.mark.parametrize("name", NAMES)
def test_ids_titles_and_queries_are_unique(name: str) -> None:
    ids = [panel["id"] for panel in FILES[name]["panels"]]
    assert len(set(ids)) == len(ids)
    places = [one.place for one in queries(name)]
    assert len(set(places)) == len(places), sorted(place for place in places if places.count(place) > 1)
    assert "id" not in FILES[name], "an id is another Grafana's"
    assert "__inputs" not in FILES[name]


@pytest.mark.parametrize("name", NAMES)
def test_it_begins_with_numbers_then_lines_then_tables_and_only_of_stable_types(name: str) -> None:
    kinds = [panel["type"] for panel in panels(FILES[name])]
    assert set(kinds) <= STABLE
    last_stat = max(i for i, kind in enumerate(kinds) if kind == "stat")
    assert set(kinds[: last_stat + 1]) == {"stat"}
    assert kinds[-1] == "table"


@pytest.mark.parametrize("name", NAMES)
def test_links_lead_to_what_exists_with_what_it_understands(name: str) -> None:
    known = variables(name)
    for url in addresses(FILES[name]):
        runbook = re.fullmatch(r"https://github\.com/streameval/streameval/blob/main/(docs/runbooks/.+\.md)", url)
        page = re.fullmatch(r"\$\{page\}/#/(\w+)(?:\?(.*))?", url)
        other = re.fullmatch(r"/d/([\w-]+)(?:\?.*)?", url)
        if runbook:
            assert "${" in runbook[1] or (ROOT / runbook[1]).exists(), url
        elif page:
            asked = {part.partition("=")[0] for part in (page[2] or "").split("&") if part}
            assert asked <= VIEWS[page[1]], url
            metric = re.search(r"metric=(\w+)", url)
            assert metric is None or metric[1] in METRICS, url
        else:
            assert other, url
            assert other[1] in UIDS, url
        used = set(re.findall(r"\$\{(?!__)(\w+)", url))
        assert used <= known.keys(), url


@pytest.mark.parametrize("name", NAMES)
def test_it_leads_to_the_others_the_page_and_the_runbooks(name: str) -> None:
    found = FILES[name]["links"]
    others = {link["url"] for link in found if link["includeVars"] and link["keepTime"]}
    assert others == {f"/d/{uid}" for uid in UIDS - {FILES[name]["uid"]}}
    assert any(link["url"].startswith("${page}/#/") for link in found)
    assert any(link["url"].endswith("/docs/runbooks/README.md") for link in found)


@pytest.mark.parametrize("name", NAMES)
def test_data_links_ask_for_columns_that_are_there(name: str) -> None:
    for panel in panels(FILES[name]):
        fields = {field for url in addresses(panel) for field in re.findall(r"\$\{__data\.fields\.(\w+)\}", url)}
        named = {
            new
            for change in panel.get("transformations", [])
            for new in change["options"].get("renameByName", {}).values()
        }
        assert fields <= named, panel["title"]


def test_the_landing_table_is_worst_first_and_its_links_keep_the_moment() -> None:
    (models,) = [p for p in panels(FILES["models"]) if p["title"] == "Live versions, worst first"]
    assert models["options"]["sortBy"][0] == {"displayName": "verdict", "desc": True}
    urls = addresses(models)
    assert len(urls) == 4
    for url in urls:
        assert "from=${__from}&to=${__to}" in url
        assert "var-model=${__data.fields.model}" in url
        for name in ("datasource", "job", "instance", "window", "page"):
            assert f"${{{name}:queryparam}}" in url
    (deploys, worse) = FILES["models"]["annotations"]["list"]
    assert "$model" not in deploys["expr"] + worse["expr"], "marks of one model only, which is not shown"
    assert "{{model_name}}" in deploys["titleFormat"]


@pytest.mark.parametrize("name", NAMES)
def test_a_label_that_looks_like_a_number_stays_as_it_is(name: str) -> None:
    """`20240702` was shown as "20.2 Mil", and every link made of it led nowhere."""
    for panel in panels(FILES[name]):
        if panel["type"] == "table":
            assert "unit" not in panel["fieldConfig"]["defaults"], panel["title"]
            renamed = panel["transformations"][1]["options"]["renameByName"]
            labels = {title for label, title in renamed.items() if not label.startswith("Value")}
            units = {
                one["matcher"]["options"]: change["value"]
                for one in panel["fieldConfig"]["overrides"]
                for change in one["properties"]
                if change["id"] == "unit"
            }
            assert {units[title] for title in labels} == {"string"}, panel["title"]


def test_the_verdict_on_a_model_is_that_of_all_metrics_on_its_live_version() -> None:
    """It was the worst of every metric's and of every version that was ever compared."""
    (stat,) = [p for p in panels(FILES["overview"]) if p["title"] == "Verdict"]
    (expr,) = [target["expr"] for target in stat["targets"]]
    verdicts = re.findall(r"streameval_comparison_verdict\{([^}]*)\}", expr)
    assert len(verdicts) == 3
    assert all('metric="overall"' in one for one in verdicts)
    assert "topk(1" in expr


@pytest.mark.parametrize("name", NAMES)
def test_a_table_fits_a_desk(name: str) -> None:
    """Of 1,440 px; a column has 150 px where nothing is said."""
    for panel in panels(FILES[name]):
        if panel["type"] == "table":
            least = [
                change["value"]
                for one in panel["fieldConfig"]["overrides"]
                for change in one["properties"]
                if change["id"] == "custom.minWidth"
            ]
            assert len(least) == len(panel["transformations"][1]["options"]["renameByName"]), panel["title"]
            assert sum(least) <= 1390 * panel["gridPos"]["w"] / 24, panel["title"]


@pytest.mark.parametrize("name", NAMES)
def test_a_number_that_is_not_there_is_no_alarm(name: str) -> None:
    for panel in panels(FILES[name]):
        if panel["type"] == "stat":
            defaults = panel["fieldConfig"]["defaults"]
            (absent,) = [one for one in defaults["mappings"] if one["type"] == "special"]
            result = absent["options"]["result"]
            assert result["text"] == defaults["noValue"]
            assert result["color"] in {"text", "transparent"}, panel["title"]


@pytest.mark.parametrize("name", NAMES)
def test_a_band_has_its_lower_edge_and_overrides_have_their_series(name: str) -> None:
    for panel in panels(FILES[name]):
        legends = {target["legendFormat"] for target in panel.get("targets", [])}
        places = {target["refId"] for target in panel.get("targets", [])}
        for one in panel.get("fieldConfig", {}).get("overrides", []):
            for change in one["properties"]:
                if change["id"] == "custom.fillBelowTo":
                    assert change["value"] in legends, panel["title"]
            if one["matcher"]["id"] == "byFrameRefID":
                assert one["matcher"]["options"] in places, panel["title"]
            elif panel["type"] in {"timeseries", "stat"} and legends != {"{{fate}}"}:
                assert one["matcher"]["options"] in legends, panel["title"]


@pytest.mark.parametrize("name", NAMES)
def test_every_variable_asked_for_is_one(name: str) -> None:
    known = variables(name)
    rows = [panel["title"] for panel in FILES[name]["panels"]]
    asked = [one.expr for one in queries(name)] + rows
    asked += [variable["query"] for variable in known.values() if variable["type"] == "query"]
    for one in asked:
        assert set(re.findall(r"\$\{?(?!__)(\w+)", one)) <= known.keys(), one
    assert {"datasource", "job", "instance", "model", "version", "window", "slice", "page"} <= known.keys()
    repeated = {panel["repeat"] for panel in FILES[name]["panels"] if "repeat" in panel}
    assert all(known[variable]["multi"] for variable in repeated)


@pytest.mark.parametrize("name", NAMES)
def test_deploys_are_marked_at_their_time_in_milliseconds(name: str) -> None:
    (deploys,) = [one for one in FILES[name]["annotations"]["list"] if one["name"] == "Deploys"]
    assert deploys["useValueForTime"] is True
    assert re.search(r"streameval_deploy_timestamp_seconds\{.*\}\) \* 1000$", deploys["expr"])
