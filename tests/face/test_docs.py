"""The examples of docs/python.md run as they are written, one after the other, and print what stands under them."""

from __future__ import annotations

import contextlib
import importlib.util
import io
import os
import re
from pathlib import Path

import pytest

from tests.face.tables import impressions

PAGE = Path(__file__).parents[2] / "docs" / "python.md"
BLOCK = re.compile(r"```python\n(.*?)```(?:\n\n```text\n(.*?)```)?", re.DOTALL)


@pytest.mark.slow
def test_every_example_runs_and_prints_what_the_page_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    blocks = BLOCK.findall(PAGE.read_text())
    assert len(blocks) >= 9
    names: dict[str, object] = {}
    for code, shown in blocks:
        libraries = [name for name in ("pandas", "polars") if f"import {name}" in code]
        if any(importlib.util.find_spec(name) is None for name in libraries):
            continue
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            exec(compile(code, str(PAGE), "exec"), names)
        if shown:
            assert out.getvalue().rstrip() == shown.rstrip(), code
    assert os.listdir(tmp_path) == ["monitor.state"]


def test_the_example_of_the_readme_runs() -> None:
    pandas = pytest.importorskip("pandas")
    table = impressions(2_000).rename_columns({"pclick": "champion", "other": "challenger"})
    (code,) = re.findall(
        r"```python\n(import streameval.*?)```", (PAGE.parents[1] / "README.md").read_text(), re.DOTALL
    )
    names: dict[str, object] = {"frame": table.to_pandas()}
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        exec(compile(code + "\nfound = result.to_pandas('comparisons')", "README.md", "exec"), names)
    assert "challenger" in out.getvalue()
    assert isinstance(names["found"], pandas.DataFrame)
