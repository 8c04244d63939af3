"""A start takes no longer than it must: what a process of ours has not imported, and what it must know all the same."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]

SAID = """
import gc, json, sys
{before}
from streameval.process.start import quick_imports

with quick_imports():
    import pyarrow as pa

    during = gc.isenabled()
said = dict(collected_during=during, collected_after=gc.isenabled(), frozen=gc.get_freeze_count())
said["texts"] = pa.array(["a", None]).to_pylist()
said["pandas_before"] = "pandas" in sys.modules
"""
SERIES = """
import importlib.util

importlib.util.find_spec("pandas")  # who asks whether it is installed has not imported it
said["pandas_asked"] = "pandas" in sys.modules
import pandas as pd

said["missing"] = pa.array(pd.Series([1.0, float("nan")])).to_pylist()
said["objects"] = pa.array(pd.Series(["a", None], dtype=object)).to_pylist()
frame = pd.DataFrame({"n": [1, 2], "t": ["x", None], "c": pd.Categorical(["u", "v"])})
said["frame"] = pa.Table.from_pandas(frame, preserve_index=False).to_pydict()
said["back"] = pa.table({"n": [1, 2]}).to_pandas()["n"].tolist()
said["finders"] = [type(finder).__module__ for finder in sys.meta_path if "streameval" in type(finder).__module__]
"""


def said(after: str = "", before: str = "") -> dict[str, Any]:
    """What a process of its own says that does this before and after its imports."""
    done = subprocess.run(
        [sys.executable, "-c", SAID.format(before=before) + after + "\nprint(json.dumps(said))"],
        capture_output=True, text=True, check=False, env={"PYTHONPATH": str(ROOT), "PATH": ""},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.mark.slow
def test_pandas_is_not_imported_unless_somebody_does_and_then_pyarrow_knows_its_types() -> None:
    found = said(SERIES)
    assert found["texts"] == ["a", None]
    assert not found["pandas_before"]
    assert not found["pandas_asked"]
    assert found["missing"] == [1.0, None]  # a Series, not a list: what is missing is null
    assert found["objects"] == ["a", None]
    assert found["frame"] == {"n": [1, 2], "t": ["x", None], "c": ["u", "v"]}
    assert found["back"] == [1, 2]
    assert found["finders"] == []


@pytest.mark.slow
def test_pandas_that_was_there_before_is_known() -> None:
    found = said(SERIES, before="import pandas")
    assert found["pandas_before"]
    assert found["missing"] == [1.0, None]
    assert found["objects"] == ["a", None]
    assert found["finders"] == []


def test_imported_code_is_no_garbage_and_what_comes_after_is_collected() -> None:
    found = said()
    assert not found["collected_during"]
    assert found["collected_after"]
    assert found["frozen"] > 10_000


@pytest.mark.slow
def test_a_replay_imports_no_pandas(tmp_path: Path) -> None:
    code = (
        "import sys\nfrom streameval.commands.cli import main\n"
        "main()\nassert 'pyarrow' in sys.modules\nassert 'pandas' not in sys.modules\n"
    )
    (tmp_path / "events.csv").write_text(
        "type,impression_id,ts,user_id,model_version,pclick\nimpression,i,1760000000000,u,v,0.5\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, "replay", "events.csv"],
        capture_output=True, text=True, check=False, cwd=tmp_path, env={"PYTHONPATH": str(ROOT), "PATH": ""},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
