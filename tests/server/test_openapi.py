"""OpenAPI, /docs and docs/http.md say the same."""

from __future__ import annotations

import re
from pathlib import Path

from starlette.routing import Mount, Route

from streameval.server import connections, limits
from streameval.server.answers import MAX_ANSWER
from streameval.server.api_stream import MAX_CLIENTS

DOC = Path(__file__).parents[2] / "docs" / "http.md"


def documented() -> set[str]:
    return set(re.findall(r"^### `GET (\S+?)`$", DOC.read_text(encoding="utf-8"), re.MULTILINE))


def served(app) -> set[str]:
    plain = {r.path for r in app.routes if isinstance(r, Route) and not r.path.startswith("/api")}
    mounts = {r.path + "/{file}" for r in app.routes if isinstance(r, Mount)}
    return plain | mounts | set(app.openapi()["paths"])


def test_every_route_is_documented_and_every_documented_route_exists(app) -> None:
    assert documented() == served(app)


def test_every_query_parameter_is_documented_where_it_is_taken(app) -> None:
    text = DOC.read_text(encoding="utf-8")
    for path, methods in app.openapi()["paths"].items():
        section = text.split(f"### `GET {path}`")[1].split("\n### ")[0]
        for parameter in methods["get"].get("parameters", []):
            name = parameter["name"]
            assert f"`{name}`" in section, f"{path} takes {name}"


def test_errors_are_documented_as_problems_and_nothing_else(app) -> None:
    for path, methods in app.openapi()["paths"].items():
        for status, answer in methods["get"]["responses"].items():
            if int(status) >= 400:
                assert list(answer["content"]) == ["application/problem+json"], (path, status)


def test_every_reference_in_openapi_leads_somewhere(client) -> None:
    text = client.get("/openapi.json").text
    schemas = client.get("/openapi.json").json()["components"]["schemas"]
    references = set(re.findall(r'"\$ref":"#/components/schemas/(\w+)"', text))
    assert references <= set(schemas)
    assert {"Problem", "Overview"} <= set(schemas)


def test_the_docs_page_names_every_route_and_parameter_and_needs_nothing_from_outside(client, app) -> None:
    page = client.get("/docs").text
    for path, methods in app.openapi()["paths"].items():
        assert f"GET {path}</code>" in page
        for parameter in methods["get"].get("parameters", []):
            assert f"<code>{parameter['name']}</code>" in page
    assert not re.search(r"(?:src|href)=\"(?:https?:)?//", page)
    assert "<script" not in page


def test_every_limit_is_documented_with_its_number() -> None:
    limit_table = DOC.read_text(encoding="utf-8").split("## Limits")[1].split("## ")[0]
    for number in (
        limits.MAX_ADDRESS, limits.MAX_HEADERS, limits.MAX_BODY, connections.MAX_CONNECTIONS, connections.MAX_SPARE,
        MAX_CLIENTS, MAX_ANSWER,
    ):  # fmt: skip
        assert re.search(rf"\b{number}\b", limit_table), number
    for seconds in (limits.BODY_SECONDS, *(connections.PATIENCE[state] for state in ("idle", "asking", "reading"))):
        assert f"| {seconds:g} s |" in limit_table
