"""A verdict is acknowledged or muted with a name and a reason, kept in the store, and shown beside it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from streameval import __version__
from streameval.compare.reading.handling import Handling, with_handlings
from streameval.outlets.outlets import Outlets
from streameval.results.publish import Publisher
from streameval.results.snapshot import Snapshot, empty_snapshot
from streameval.server import create_app
from streameval.server.api import handlings
from streameval.settings.server import Server
from streameval.settings.tree import Settings
from streameval.store.errors import StoreError
from tests.comparisons import comparison, deploy

TOKEN = {"STREAMEVAL_TOKEN": "sesame"}
AUTH = {"Authorization": "Bearer sesame"}
SAID = {"state": "muted", "by": "ana", "reason": "known: rolled back at 12:10"}
NOW = 1_714_564_800.0
PATH = "/api/v1/comparisons/2-paired/handling"


def shown(outlets: Outlets | None = None, number: int = 1) -> Snapshot:
    comparisons = (comparison(), comparison(setup="split", id="2-split"))
    if outlets is not None:
        comparisons = with_handlings(comparisons, outlets.handlings)  # type: ignore[assignment]
    snapshot = empty_snapshot(NOW)
    return replace(snapshot, number=number, deploys=(deploy(1, "v1"), deploy()), comparisons=comparisons)


class Web:
    """A client of the app over a publisher."""

    def __init__(self, client_of: Any) -> None:
        self._client_of = client_of

    def __call__(self, publisher: Publisher, book: handlings.HandlingBook | None, token: bool = True) -> Any:
        environ = TOKEN if token else {}
        return self._client_of(
            create_app(publisher, Server(), version=__version__, clock=lambda: NOW, environ=environ, handlings=book)
        )


@pytest.fixture
def client(client_of: Any) -> Web:
    return Web(client_of)


def post(web: Any, body: dict[str, Any], path: str = PATH, **headers: str) -> Any:
    headers = {"Content-Type": "application/json", **headers}
    return web.request("POST", path, content=json.dumps(body), headers=headers)


@pytest.fixture
def publisher() -> Publisher:
    return Publisher(shown())


@pytest.fixture
def outlets(publisher: Publisher, tmp_path: Path) -> Any:
    made = Outlets(Settings.model_validate({"store": {"path": str(tmp_path)}}), publisher)
    yield made
    made.close()


def test_what_is_said_is_kept_and_stands_beside_the_verdict(
    client: Web, publisher: Publisher, outlets: Outlets, tmp_path: Path
) -> None:
    web = client(publisher, outlets)
    answer = post(web, SAID, **AUTH)
    assert answer.status_code == 200, answer.text
    on_record = {**SAID, "at": "2024-05-01T12:00:00.000Z", "verdict": "worse"}
    assert answer.json()["handling"] == on_record
    publisher.publish(shown(outlets, 2))
    found = {c["id"]: c["handling"] for c in web.get("/api/v1/comparisons").json()["comparisons"]}
    assert found == {"2-paired": on_record, "2-split": None}
    flat = web.get("/api/v1/models/default/verdict").json()
    assert (flat["handled"], flat["handled_by"], flat["handled_reason"]) == ("muted", "ana", SAID["reason"])
    [in_report, other] = publisher.latest().report()["comparisons"]
    assert (in_report["handling"]["by"], other["handling"]) == ("ana", None)
    samples = [
        line for line in web.get("/metrics").text.splitlines() if line.startswith("streameval_comparison_handled{")
    ]
    assert len(samples) == 1
    assert 'state="muted"' in samples[0]
    outlets.close()
    again = Outlets(Settings.model_validate({"store": {"path": str(tmp_path)}}), publisher)
    assert [*again.handlings.values()] == [Handling("muted", "ana", SAID["reason"], 1_714_564_800_000, "worse")]
    again.close()


def test_the_newest_word_counts_and_open_takes_it_back(client: Web, publisher: Publisher, outlets: Outlets) -> None:
    web = client(publisher, outlets)
    for state in ("muted", "acknowledged"):
        assert post(web, {**SAID, "state": state}, **AUTH).json()["handling"]["state"] == state
    assert len(outlets.handlings) == 1
    assert post(web, {**SAID, "state": "open"}, **AUTH).json()["handling"] is None
    assert outlets.handlings == {}


def test_it_needs_the_token_and_a_monitor(client: Web, publisher: Publisher, outlets: Outlets) -> None:
    assert post(client(publisher, outlets), SAID).status_code == 401
    assert post(client(publisher, outlets, token=False), SAID).status_code == 403
    assert post(client(publisher, None), SAID, **AUTH).status_code == 409
    assert outlets.handlings == {}


@pytest.mark.parametrize(
    ("change", "status"),
    [
        ({"state": "gone"}, 422), ({"by": ""}, 422), ({"reason": ""}, 422), ({"reason": "a\x00b"}, 422),
        ({"by": "x" * 101}, 422), ({"extra": 1}, 422),
    ],
)  # fmt: skip
def test_it_is_said_what_would_be_right(
    client: Web, publisher: Publisher, outlets: Outlets, change: dict[str, Any], status: int
) -> None:
    answer = post(client(publisher, outlets), {**SAID, **change}, **AUTH)
    assert answer.status_code == status
    assert answer.json()["detail"]


def test_an_unknown_comparison_is_404_with_those_that_there_are(
    client: Web, publisher: Publisher, outlets: Outlets
) -> None:
    answer = post(client(publisher, outlets), SAID, "/api/v1/comparisons/9-paired/handling", **AUTH)
    assert answer.status_code == 404
    assert answer.json()["known"] == ["2-paired", "2-split"]


def test_a_store_that_fails_is_503_and_nothing_is_said(client: Web, publisher: Publisher) -> None:
    class Broken:
        def say(self, comparison: str, handling: Handling | None) -> None:
            raise StoreError("/secret/path: disk full")

    answer = post(client(publisher, Broken()), SAID, **AUTH)
    assert answer.status_code == 503
    assert "/secret" not in answer.text
