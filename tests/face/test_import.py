"""`import streameval` and `streameval --help` load nothing that they do not need."""

from __future__ import annotations

import subprocess
import sys

import pytest

HEAVY = {"numpy", "numba", "pyarrow", "river", "fastapi", "pydantic", "sklearn", "pandas", "polars", "confluent_kafka"}


def loaded(code: str) -> set[str]:
    """The modules at the top that a fresh interpreter has after some code."""
    whole = f"import sys\n{code}\nprint(*{{name.split('.')[0] for name in sys.modules}}, file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", whole], capture_output=True, text=True, check=True)
    return set(done.stderr.split())


def test_the_package_loads_nothing_before_it_is_used() -> None:
    assert not loaded("import streameval; dir(streameval); streameval.__version__") & HEAVY


def test_the_help_loads_no_engine() -> None:
    code = "from streameval.commands import cli\ntry: cli.cli(['--help'])\nexcept SystemExit: pass"
    assert not loaded(code) & (HEAVY - {"pydantic"})


def test_every_public_name_is_there_and_nothing_else_is() -> None:
    import streameval

    for name in streameval.__all__:
        assert getattr(streameval, name) is not None
        assert name in dir(streameval)
    with pytest.raises(AttributeError, match="no attribute 'evaluated'"):
        streameval.evaluated  # noqa: B018
