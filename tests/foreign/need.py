"""What a machine without a program of others does with the tests that need it."""

from __future__ import annotations

import os

import pytest


def without(why: str) -> None:
    """Skips by name, or fails when nothing may be skipped."""
    if os.environ.get("STREAMEVAL_REQUIRE_ALL") == "1":
        pytest.fail(f"{why}; .ci/run installs it")
    pytest.skip(why)
