"""The OpenAPI document, as a linter of others sees it: no error and no warning."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from streameval.results.publish import Publisher
from streameval.results.snapshot import empty_snapshot
from streameval.server import create_app
from streameval.settings.server import Server


@pytest.mark.slow
@pytest.mark.parametrize("scope", ["private", "all"])
def test_redocly_finds_neither_an_error_nor_a_warning(scope: str, tmp_path: Path) -> None:
    where = os.pathsep.join([os.environ["PATH"], str(Path.home() / ".cache" / "streameval" / "bin")])
    linter = shutil.which("redocly", path=where)
    if linter is None:
        if os.environ.get("STREAMEVAL_REQUIRE_ALL"):
            pytest.fail("redocly is not installed; .ci/run does it")
        pytest.skip("install redocly (npm install -g @redocly/cli): the OpenAPI document is linted by it")
    app = create_app(
        Publisher(empty_snapshot(0.0)),
        Server(token_scope=scope),
        version="1",
        environ={"STREAMEVAL_TOKEN": "s3cret"},
    )
    document = tmp_path / "openapi.json"
    document.write_text(json.dumps(app.openapi()))
    quiet = {"REDOCLY_TELEMETRY": "off", "REDOCLY_SUPPRESS_UPDATE_NOTICE": "true"}
    done = subprocess.run(
        [linter, "lint", "--extends=recommended", "--format=json", str(document)],
        cwd=tmp_path, env={**os.environ, **quiet}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    found = json.loads(done.stdout)
    assert found["totals"] == {"errors": 0, "warnings": 0, "ignored": 0}, found["problems"]
    assert done.returncode == 0
