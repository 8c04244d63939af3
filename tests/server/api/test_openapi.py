"""OpenAPI, /docs and docs/http.md say the same."""

from __future__ import annotations

import re
from pathlib import Path

from starlette.routing import Mount, Route

from streameval.server.api.answers import MAX_ANSWER
from streameval.server.api.stream import MAX_CLIENTS
from streameval.server.http import connections, limits

DOC = Path(__file__).parents[3] / "docs" / "http.md"


def documented() -> set[str]:
    """`METHOD path` of every route."""
    return set(re.findall(r"^### `([A-Z]+ \S+?)`$", DOC.read_text(encoding="utf-8"), re.MULTILINE))


def served(app) -> set[str]:
    plain = {r.path for r in app.routes if isinstance(r, Route) and not r.path.startswith("/api")}
    mounts = {r.path + "/{file}" for r in app.routes if isinstance(r, Mount)}
    described = {f"{method.upper()} {path}" for path, methods in app.openapi()["paths"].items() for method in methods}
    return {f"GET {path}" for path in plain | mounts} | described


def operations(app) -> list[tuple[str, str, dict]]:
    """(method, path, what OpenAPI says of it)"""
    paths = app.openapi()["paths"].items()
    return [(method.upper(), path, operation) for path, methods in paths for method, operation in methods.items()]


def test_every_route_is_documented_and_every_documented_route_exists(app) -> None:
    assert documented() == served(app)


def test_the_threat_model_names_every_route_that_writes(app) -> None:
    text = (DOC.parent / "operations.md").read_text(encoding="utf-8")
    threat = next(line for line in text.splitlines() if line.startswith("| | change something |"))
    writes = {f"{method} {path}" for method, path, _ in operations(app) if method != "GET"}
    assert set(re.findall(r"`([A-Z]+ /\S+?)`", threat)) == writes


def test_every_query_parameter_is_documented_where_it_is_taken(app) -> None:
    text = DOC.read_text(encoding="utf-8")
    shapes = app.openapi()["components"]["schemas"]
    for method, path, operation in operations(app):
        section = text.split(f"### `{method} {path}`")[1].split("\n### ")[0]
        names = [parameter["name"] for parameter in operation.get("parameters", [])]
        for body in operation.get("requestBody", {}).get("content", {}).values():
            names += shapes[body["schema"]["$ref"].rsplit("/", 1)[-1]]["properties"]
        for name in names:
            assert f"`{name}`" in section or f"`{{{name}}}`" in section, f"{path} takes {name}"


def test_errors_are_documented_as_problems_and_nothing_else(app) -> None:
    for method, path, operation in operations(app):
        for status, answer in operation["responses"].items():
            if int(status) >= 400:
                assert list(answer["content"]) == ["application/problem+json"], (method, path, status)


def test_every_reference_in_openapi_leads_somewhere(client) -> None:
    text = client.get("/openapi.json").text
    schemas = client.get("/openapi.json").json()["components"]["schemas"]
    references = set(re.findall(r'"\$ref":"#/components/schemas/(\w+)"', text))
    assert references <= set(schemas)
    assert {"Problem", "Overview"} <= set(schemas)


def test_linters_have_nothing_to_say(client, app) -> None:
    """What Redocly's and Spectral's recommended rules found: words of a later version, and what a reader would miss."""
    tree = client.get("/openapi.json").json()
    assert tree["openapi"].startswith("3.1.")
    assert [server["url"] for server in tree["servers"]] == ["/"]
    assert tree["info"]["license"]["identifier"] == "Apache-2.0"
    assert tree["info"]["contact"]
    tags = [tag["name"] for tag in tree["tags"]]
    found = operations(app)
    assert {tag for _, _, operation in found for tag in operation["tags"]} == set(tags)
    for method, path, operation in found:
        token = [{"token": []}] if "401" in operation["responses"] else []
        if path == "/api/v1/dead-letters":
            token = [{}, *token]  # only its table needs it
        assert operation["security"] == token, (method, path)
        for answer in operation["responses"].values():
            for media, content in answer.get("content", {}).items():
                assert set(content) <= {"schema", "example", "examples", "encoding"}, (method, path, media)
    text = client.get("/openapi.json").text
    unused = {name for name in tree["components"]["schemas"] if f'"#/components/schemas/{name}"' not in text}
    assert not unused


def test_the_docs_page_names_every_route_and_parameter_and_needs_nothing_from_outside(client, app) -> None:
    page = client.get("/docs").text
    for method, path, operation in operations(app):
        assert f"{method} {path}</code>" in page
        for parameter in operation.get("parameters", []):
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
    for seconds in (
        limits.BODY_SECONDS,
        *(connections.STATE_SECONDS[state] for state in ("idle", "asking", "reading")),
    ):
        assert f"| {seconds:g} s |" in limit_table
