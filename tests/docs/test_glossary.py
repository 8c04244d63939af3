"""docs/glossary.md defines every word that the API and /metrics can return, and every term once."""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import get_args, get_type_hints

import pytest

from streameval.compare.reading.notified import ToldState, Untold
from streameval.compare.reading.reading import Deploy, RoleName, Setup, Verdict, VerdictChange
from streameval.metrics.registry import METRICS
from streameval.models.protocol import FAILURES
from streameval.server.prometheus.flow import FATES
from streameval.sources.protocol import REASONS

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8")
PAGE = (ROOT / "streameval" / "server" / "page" / "metrics.js").read_text(encoding="utf-8")
# a reason for an undefined metric, a comparison without a verdict or an estimate without a value looks like this
A_REASON = re.compile(r"(?:no|not|too|does_not|click_delays)_[a-z_]+")
NO_REASONS = {"not_worse", "not_read", "not_before", "not_after", "too_long", *FAILURES, *REASONS}


def rows() -> list[tuple[str, str, str]]:
    """(section, first cell, second cell) of every row of every table."""
    section, found = "", []
    for line in TEXT.splitlines():
        if line.startswith("#"):
            section = line.lstrip("# ")
        elif (match := re.fullmatch(r"\| (.+?) \| (.+) \|", line)) and match[1] != "term":
            found.append((section, match[1], match[2]))
    return found


def defined() -> set[str]:
    """Every word of the API that has a definition."""
    return {word for _, term, _ in rows() for word in re.findall(r"`(\w+)`", term)}


def texts(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


@functools.cache
def reasons() -> frozenset[str]:
    """Every reason for a missing value or verdict that the code spells."""
    files = (ROOT / "streameval").rglob("*.py")
    return frozenset(text for file in files for text in texts(file) if A_REASON.fullmatch(text)) - NO_REASONS


def literals(of: type, field: str) -> set[str]:
    return set(get_args(get_type_hints(of)[field]))


def test_the_reasons_are_found() -> None:
    assert {"no_clicks", "not_kept_for_slices", "too_few_clicks", "not_estimated", "no_deploy_yet"} <= reasons()
    assert len(reasons()) > 15


@pytest.mark.parametrize(
    ("what", "words"),
    [
        ("metrics", {metric.name for metric in METRICS}),
        ("verdicts", set(get_args(Verdict))),
        ("setups", set(get_args(Setup))),
        ("roles", set(get_args(RoleName))),
        ("sources of scores", {"logged", "online"}),
        ("kinds of deploys", literals(Deploy, "kind")),
        ("kinds of changes", literals(VerdictChange, "kind")),
        ("whom a change was told", {*get_args(ToldState), *get_args(Untold)}),
        ("reasons for a missing value or verdict", lambda: reasons() | {"learning", "withheld", "one_class"}),
        ("reasons of dead letters", set(REASONS)),
        ("failures of a model", set(FAILURES)),
        ("outcomes of events", {fate for _, fate in FATES.values()}),
    ],
)
def test_every_word_of_the_api_is_defined(what: str, words: set[str] | Callable[[], set[str]]) -> None:
    words = words() if callable(words) else words  # what takes long to find out: not when tests are collected
    assert words
    assert not words - defined(), what


def test_a_metric_is_explained_as_on_the_page() -> None:
    meanings = {term: meaning for _, term, meaning in rows()}
    assert {m.name: meanings[f"`{m.name}`"] for m in METRICS} == {m.name: m.explanation for m in METRICS}


def test_every_term_is_defined_once_in_its_section_and_every_plain_term_once() -> None:
    terms = [
        (section if "`" in term else "", word.strip())
        for section, term, _ in rows()
        for word in re.sub(r"\(.*?\)", "", term).split(",")
    ]
    assert len(terms) > 100
    assert sorted(terms) == sorted(set(terms))


def test_every_definition_is_one_line_that_says_something() -> None:
    for _, term, meaning in rows():
        assert 10 <= len(meaning) <= 250, (term, meaning)


def test_the_page_knows_no_reason_that_is_never_given() -> None:
    named = set(re.findall(r"^  (\w+): \"", PAGE.split("REASONS = {", 1)[1].split("}", 1)[0], re.MULTILINE))
    assert named
    spelled_apart = {"learning", "withheld", *(f"only_in_{setup}_comparisons" for setup in ("paired", "split"))}
    policies = {"propensities_inconsistent", "never_shown_by_policy"}  # of other forms
    values = {"scored_what_others_served", "values_not_kept", "weights_not_supported"}
    given = {text for file in (ROOT / "streameval" / "metrics").glob("*.py") for text in texts(file)}
    assert policies | values <= given
    assert not named - reasons() - spelled_apart - policies - values
