"""The page's files: served, small, from nowhere else, and reading only what the API gives."""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path

import pytest

from streameval.metrics.registry import names
from streameval.server.api.schemas import results as schemas

PAGE = Path(schemas.__file__).parents[2] / "page"
FILES = sorted(path for path in PAGE.rglob("*") if path.is_file())
OURS = [path for path in FILES if "vendor" not in path.parts]
MADE = PAGE / "registry.js"  # by the server, of the table of metrics
SCRIPTS = [path for path in OURS if path.suffix == ".js"]
UPLOT = {  # of uPlot 1.6.32 as npm has it
    "LICENSE": "8f989229699b4fe2f1a0432d0e9edc338a8a911e250e2d1b01ecd770a5f5b1bd",
    "uPlot.iife.min.js": "19c8d4c6ad88929a79f4ae49d6f7161566dfd0ba3d15cc495e974f787eb78f1f",
    "uPlot.min.css": "df630c6a8d6f8eeaff264b50f73ce5b114f646ffd9a0bb74f049b0a00135fa04",
}


def name(path: Path) -> str:
    return path.relative_to(PAGE).as_posix()


def test_the_page_and_all_its_files_are_served(client) -> None:
    html = client.get("/")
    assert html.headers["content-type"].startswith("text/html")
    links = re.findall(r'(?:src|href)="([^"#]+)"', html.text)
    assert {"page/style.css", "page/app.js", "page/theme.js", "page/favicon.svg", "docs", "metrics"} <= set(links)
    for link in [*links, *(f"page/{name(path)}" for path in FILES)]:
        assert client.get(f"/{link}").status_code == 200, link


@pytest.mark.parametrize("path", ["/", "/docs"])
def test_links_are_relative_to_the_page_which_may_be_behind_a_prefix(client, path: str) -> None:
    links = re.findall(r'(?:src|href)="([^"#]+)"', client.get(path).text)
    assert links
    assert not [link for link in links if link.startswith("/")]


@pytest.mark.parametrize("path", SCRIPTS, ids=name)
def test_scripts_ask_for_nothing_at_the_root(path: Path) -> None:
    assert not re.search(r"""["'`]/(?:page|api|docs|metrics|livez|readyz|healthz|openapi)\b""", path.read_text("utf-8"))


@pytest.mark.parametrize("path", SCRIPTS, ids=name)
def test_scripts_are_served_as_such_and_import_what_there_is(client, path: Path) -> None:
    assert "javascript" in client.get(f"/page/{name(path)}").headers["content-type"]
    for imported in re.findall(r'from "([^"]+)"', path.read_text(encoding="utf-8")):
        target = (path.parent / imported).resolve()
        assert target in SCRIPTS or target == MADE, imported
        assert target != path


def test_every_module_is_reached_from_the_page() -> None:
    html = (PAGE / "index.html").read_text(encoding="utf-8")
    seen: set[Path] = set()
    todo = [PAGE / link.removeprefix("page/") for link in re.findall(r'src="(page/[^"]+\.js)"', html)]
    while todo:
        path = todo.pop()
        if path not in {*seen, MADE}:
            seen.add(path)
            text = path.read_text(encoding="utf-8")
            imports = re.findall(r'(?:from |import\()"([^"]+)"', text)  # also those that come later
            todo += [(path.parent / imported).resolve() for imported in imports]
    assert seen == set(SCRIPTS)


@pytest.mark.parametrize("path", OURS, ids=name)
def test_nothing_comes_from_outside_or_breaks_the_policy(path: Path) -> None:
    text = path.read_text(encoding="utf-8").replace("http://www.w3.org/2000/svg", "")
    assert not re.search(r"https?://|//cdn|@import", text)
    if path.suffix == ".html":
        assert not re.search(r"<style|style=|<script(?![^>]*src=)|\son\w+=", text)
    assert not re.search(r"innerHTML|insertAdjacentHTML|document\.write|eval\(", text)


def test_the_chart_library_is_the_one_that_npm_has_with_its_licence() -> None:
    found = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in (PAGE / "vendor" / "uplot").iterdir()}
    assert found == UPLOT


@pytest.mark.parametrize(
    ("variable", "model"),
    [("row", schemas.Row), ("b", schemas.Bucket)],
)
def test_every_field_that_the_page_reads_exists(variable: str, model: type) -> None:
    views = {"row": ["overview.js"], "b": ["calibration.js"]}[variable]
    read: set[str] = set()
    for view in views:
        text = (PAGE / "views" / view).read_text(encoding="utf-8")
        read |= set(re.findall(rf"\b{variable}\.([a-z_]+)\b", text))
    assert read
    assert read <= set(model.model_fields), read - set(model.model_fields)


def test_what_the_page_says_of_metrics_is_served_from_their_table(client) -> None:
    answer = client.get("/page/registry.js")
    assert answer.headers["content-type"].startswith("text/javascript")
    exported = dict(re.findall(r"^export const (\w+) = (.+);$", answer.text, re.MULTILINE))
    table, overview = json.loads(exported["METRICS"]), json.loads(exported["OVERVIEW"])
    assert overview == ["auc", "gauc", "log_loss", "rig", "calibration"]
    assert set(overview) <= set(table) <= set(names())
    assert table["calibration"] == {
        "name": "Calibration", "about": "predicted clicks over clicks (E/O); 1 is calibrated, above 1 over-predicts", "digits": 3, "better": 0, "range": [0, None], "ideal": 1,
    }  # fmt: skip
    assert table["mse"]["better"] == -1
    assert "ideal" not in table["mse"]


def test_every_element_that_the_script_looks_for_is_in_the_page() -> None:
    script = (PAGE / "app.js").read_text(encoding="utf-8")
    html = (PAGE / "index.html").read_text(encoding="utf-8")
    for wanted in set(re.findall(r'\$\("([a-z-]+)"\)', script)):
        assert f'id="{wanted}"' in html
