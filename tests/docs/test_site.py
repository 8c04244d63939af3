"""The docs build as a site without a warning, and the site asks for nothing from outside."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
# what a browser fetches by itself
FETCHED = {
    "link": "href", "script": "src", "img": "src", "iframe": "src", "source": "src", "video": "src", "audio": "src",
    "embed": "src", "object": "data", "use": "href", "image": "href",
}  # fmt: skip
NOT_FETCHED = {"canonical", "next", "prev", "alternate"}  # of <link>: for readers and search machines


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built strictly: a warning is an error."""
    if importlib.util.find_spec("material") is None:
        if os.environ.get("STREAMEVAL_REQUIRE_ALL") == "1":
            pytest.fail("mkdocs-material is missing; it is in requirements-dev.lock")
        pytest.skip("mkdocs-material is missing: the site was not built; it is in requirements-dev.lock")
    folder = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)],
        cwd=ROOT, capture_output=True, text=True, timeout=120, check=False,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "WARNING" not in done.stderr
    return folder


class Fetches(HTMLParser):
    """Collects the addresses that a page makes a browser fetch."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        if tag == "link" and values.get("rel") in NOT_FETCHED:
            return
        self.found += [value for name, value in attrs if name in {FETCHED.get(tag), "srcset", "poster"} and value]


@pytest.mark.slow
def test_every_page_is_there(site: Path) -> None:
    pages = {path.relative_to(ROOT / "docs").with_suffix(".html") for path in (ROOT / "docs").rglob("*.md")}
    pages = {path.with_name("index.html") if path.stem == "README" else path for path in pages}
    built = {path.relative_to(site) for path in site.rglob("*.html")}
    assert pages | {Path("index.html"), Path("changelog.html")} | {Path("404.html")} == built
    assert not list(site.rglob("*.py"))


def test_the_site_fetches_nothing_from_outside(site: Path) -> None:
    for path in site.rglob("*.html"):
        text = path.read_text(encoding="utf-8")
        parser = Fetches()
        parser.feed(text)
        assert parser.found, path
        assert not [address for address in parser.found if re.match(r"(?:[a-z]+:)?//", address)], path
        assert "fonts.googleapis" not in text
        assert "mermaid" not in text, "Material takes mermaid from unpkg.com"
        assert 'data-md-component="source"' not in text, "Material asks api.github.com for the repository's stars"
    for path in site.rglob("*.css"):
        assert not re.search(r"(?:url\(|@import)\s*[\"']?(?:https?:)?//", path.read_text(encoding="utf-8")), path


def test_what_pages_fetch_is_there(site: Path) -> None:
    for path in site.rglob("*.html"):
        if path.name == "404.html":  # its addresses are from the root of wherever it is put
            continue
        parser = Fetches()
        parser.feed(path.read_text(encoding="utf-8"))
        for address in parser.found:
            if not address.startswith(("data:", "#")):
                assert (path.parent / address.split("#")[0].split("?")[0]).exists(), f"{path}: {address}"


def test_links_for_github_become_links_of_the_site(site: Path) -> None:
    text = (site / "index.html").read_text(encoding="utf-8")
    assert 'href="operations.html#checkpoints"' in text
    assert 'href="changelog.html"' in text
    assert 'href="https://github.com/streameval/streameval/blob/main/deploy/examples/argo-analysis.yaml"' in text
    runbooks = (site / "runbooks" / "index.html").read_text(encoding="utf-8")
    assert "blob/main/deploy/prometheus/streameval-alerts.rules.yml" in runbooks


def test_lists_keep_what_belongs_to_them(site: Path) -> None:
    text = (site / "runbooks" / "StreamevalDeployWorse.html").read_text(encoding="utf-8")
    steps = text.split('id="look"')[1].split('id="do"')[0]
    assert steps.count("<ol>") == 1
    assert steps.count("<li>") == steps.count('<div class="highlight">') == 3
    assert 'fate=~"matured_early|forgotten_early"' in (site / "operations.html").read_text(encoding="utf-8")
