"""The static page: works offline under the strict policy, and only reads what the API gives."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from streameval.server import schemas

PAGE = Path(schemas.__file__).parent / "page"


def test_the_page_and_all_its_files_are_served(client) -> None:
    html = client.get("/")
    assert html.headers["content-type"].startswith("text/html")
    links = re.findall(r'(?:src|href)="(/[^"]+)"', html.text)
    assert {"/page/style.css", "/page/page.js", "/page/favicon.svg", "/docs", "/metrics"} <= set(links)
    for link in links:
        assert client.get(link).status_code == 200, link


def test_the_page_script_is_served_as_javascript(client) -> None:
    assert "javascript" in client.get("/page/page.js").headers["content-type"]


@pytest.mark.parametrize("path", sorted(PAGE.iterdir()), ids=lambda path: path.name)
def test_nothing_comes_from_outside_or_breaks_the_policy(path: Path) -> None:
    text = path.read_text(encoding="utf-8").replace("http://www.w3.org/2000/svg", "")
    assert not re.search(r"https?://|//cdn|@import", text)
    if path.suffix == ".html":
        assert not re.search(r"<style|style=|<script(?![^>]*src=)|\son\w+=", text)
    assert not re.search(r"innerHTML|insertAdjacentHTML|document\.write|eval\(", text)


def test_every_field_that_the_page_reads_of_a_result_exists() -> None:
    script = (PAGE / "page.js").read_text(encoding="utf-8")
    read = set(re.findall(r"\bresult\.([a-z_]+)", script)) | set(re.findall(r'metric\(result, "([a-z_]+)"', script))
    assert read
    assert read <= set(schemas.Row.model_fields)
    read = set(re.findall(r"\bbucket\.([a-z_]+)", script)) | set(re.findall(r'metric\(empty, "([a-z_]+)"', script))
    assert read
    assert read <= set(schemas.Bucket.model_fields)
    read = set(re.findall(r"\bheadline\.([a-z_]+)", script))
    assert read
    assert read <= set(schemas.Headline.model_fields)


def test_every_element_that_the_script_looks_for_is_in_the_page() -> None:
    script = (PAGE / "page.js").read_text(encoding="utf-8")
    html = (PAGE / "index.html").read_text(encoding="utf-8")
    for name in set(re.findall(r'\$\("([a-z-]+)"\)', script)):
        assert f'id="{name}"' in html
