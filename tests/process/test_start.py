"""A start takes no longer than it must."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]

SAID = """
import gc, json
from streameval.process.start import quick_imports

with quick_imports():
    import pyarrow

    during = gc.isenabled()
print(json.dumps(dict(collected_during=during, collected_after=gc.isenabled(), frozen=gc.get_freeze_count())))
"""


def test_imported_code_is_no_garbage_and_what_comes_after_is_collected() -> None:
    done = subprocess.run(
        [sys.executable, "-c", SAID],
        capture_output=True, text=True, check=False, env={"PYTHONPATH": str(ROOT), "PATH": ""},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert not found["collected_during"]
    assert found["collected_after"]
    assert found["frozen"] > 10_000
