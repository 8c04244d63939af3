"""Which tests `make check` chooses for a change."""

from __future__ import annotations

import pytest

from tests.changed import choose, imports

GRAPH = {
    "streameval/app.py": {"streameval/join/kernel.py"},
    "streameval/join/kernel.py": set(),
    "tests/test_app.py": {"streameval/app.py"},
    "tests/test_far.py": {"tests/helper.py"},
    "tests/helper.py": {"streameval/app.py"},
    "tests/join/test_rows.py": set(),
    "tests/browser/test_views.py": set(),
    "tests/docs/test_links.py": set(),
}


def test_those_that_import_it_directly_or_through_one_more_and_those_of_its_folder() -> None:
    assert choose(["streameval/join/kernel.py"], GRAPH) == ["tests/join/test_rows.py", "tests/test_app.py"]
    assert choose(["streameval/app.py"], GRAPH) == ["tests/test_app.py", "tests/test_far.py"]


def test_a_test_chooses_itself_and_a_helper_those_that_it_helps() -> None:
    assert choose(["tests/test_app.py"], GRAPH) == ["tests/test_app.py"]
    assert choose(["tests/helper.py"], GRAPH) == ["tests/test_far.py"]


def test_what_is_not_imported_chooses_its_folder() -> None:
    assert choose(["docs/http.md"], GRAPH) == ["tests/docs/test_links.py"]
    assert choose(["streameval/server/page/app.js"], GRAPH) == ["tests/browser/test_views.py"]
    assert choose(["LICENSE"], GRAPH) == []


@pytest.mark.slow
def test_the_tree_as_it_is_can_be_read() -> None:
    graph = imports()
    assert "tests/changed.py" in graph[__file__[__file__.index("tests/") :]]
    assert all(used in graph for of in graph.values() for used in of)
