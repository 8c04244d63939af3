"""The running server under Schemathesis: whatever OpenAPI allows, and what it forbids, gets a documented answer.

Bounded and deterministic. It looks for 5xx, undocumented statuses and content types, bodies and headers against their
schema, bad parameters that are taken, wrong methods, and routes that forget the token.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from streameval.compare.announce import Announcements
from streameval.results.publish import Publisher
from streameval.server import ServerHandle, create_app, serve
from streameval.server.api.schemas.shape import Problem
from streameval.server.api.schemas.status import Overview
from streameval.settings.server import Server
from tests import asking

TOKEN = "s3cret"
STREAM = "/api/v1/stream"
# Names that the snapshot has answers for; with random ones nearly every question ends with 404
KNOWN = """\
[parameters]
"query.model" = "default"
"query.version" = "v1"
"query.source" = "logged"
"path.user_id" = "user-1"
"path.id" = "2-paired"
"path.model" = "default"
"""
# What it imports is no garbage, and what it makes is hardly any: a tenth of its time went into looking for some
SCHEMATHESIS = """\
import gc
from schemathesis.cli import schemathesis
gc.freeze()
gc.set_threshold(50_000)
schemathesis()
"""
# How a bad request may be refused: an address or a header may be too long before its parameters are looked at
REFUSALS = """
[checks.negative_data_rejection]
expected-statuses = [400, 401, 403, 404, 405, 413, 414, 422, 431]
"""


@pytest.fixture
def server(build) -> Iterator[ServerHandle]:
    """The server, with a full snapshot and a token."""
    inbox = Announcements(most=1_000_000)  # nobody takes what is announced here
    app = create_app(
        Publisher(build.snapshot()),
        Server(),
        version="1",
        environ={"STREAMEVAL_TOKEN": TOKEN},
        announcements=inbox,
    )
    handle = serve(app, "127.0.0.1", 0)
    yield handle
    handle.stop()


@pytest.mark.slow
@pytest.mark.parametrize("parameters", ["", KNOWN], ids=["any names", "known names"])
def test_every_answer_is_documented_and_none_is_a_5xx(server, tmp_path: Path, parameters: str) -> None:
    (tmp_path / "schemathesis.toml").write_text(parameters + REFUSALS)
    command = [
        sys.executable, "-c", SCHEMATHESIS,
        "--config-file", "schemathesis.toml", "run", server.url + "/openapi.json",
        "--header", f"Authorization: Bearer {TOKEN}",
        "--exclude-path", STREAM,  # has no end; below
        # what fits its schema may still name no series, or several: 422 says so, and is documented
        "--exclude-checks", "positive_data_acceptance",
        "--phases", "examples,coverage,fuzzing", "--max-examples", "60", "--generation-deterministic",
        "--workers", "1", "--continue-on-failure", "--no-color",
    ]  # fmt: skip
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=850)
    said = "\n".join(line[:300] for line in done.stdout.splitlines())
    assert done.returncode == 0, said[-8000:] + done.stderr[-2000:]
    tested = re.search(r"(\d+) generated", done.stdout)
    assert tested is not None
    assert int(tested[1]) > 500, done.stdout
    routes = asking.get(server.url + "/openapi.json").json()["paths"]
    assert f"Tested: {sum(map(len, routes.values())) - 1}" in done.stdout


headers = st.text(st.characters(min_codepoint=0x20, max_codepoint=0xFF, exclude_characters="\x7f"), max_size=80)


@pytest.mark.slow
@settings(
    max_examples=40, derandomize=True, database=None, deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)  # fmt: skip
@given(headers, st.dictionaries(st.text(max_size=5), st.text(max_size=5), max_size=2))
def test_the_stream_answers_whatever_it_is_asked_with(server, last_event_id: str, query: dict[str, str]) -> None:
    sent = {"Last-Event-ID": last_event_id.strip().encode("latin-1")}
    seen = sent["Last-Event-ID"] == b"1"
    patience = httpx.Timeout(120, read=1 if seen else 120)
    try:
        with asking.stream("GET", server.url + STREAM, headers=sent, params=query, timeout=patience) as answer:
            if answer.status_code == 200:
                assert answer.headers["content-type"].startswith("text/event-stream")
                data = next(line for line in answer.iter_lines() if line.startswith("data: "))
                Overview.model_validate_json(data.removeprefix("data: "))
            else:
                assert answer.status_code in (422, 503)  # a place is given back a moment after its client has left
                Problem.model_validate_json(answer.read())
    except httpx.ReadTimeout:
        assert seen  # nothing newer than what the client has seen
