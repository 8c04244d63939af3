"""The HTTP reference, from the OpenAPI description that the server gives out."""

from __future__ import annotations

from typing import Any

from docs.make.markdown import code, one_line, table, whole
from docs.make.schemas import default, words
from streameval.results.publish import Publisher
from streameval.results.snapshot import empty_snapshot
from streameval.server import create_app
from streameval.settings.server import Server

_INTRODUCTION = """\
[http.md](../http.md) says what they mean, with examples, errors and limits. `/openapi.json` of a running monitor is the
same for programs. `/metrics`, `/docs`, `/openapi.json` and the page are not in it.
"""


def page() -> str:
    """The Markdown of every route and shape."""
    tree = _openapi()
    operations = [
        (method.upper(), path, operation)
        for path, methods in tree["paths"].items()
        for method, operation in methods.items()
    ]
    anywhere = set.intersection(*({s for s in o["responses"] if int(s) >= 400} for _, _, o in operations))
    text = ["## Any route\n\n", _answers(operations[0][2]["responses"], anywhere)]
    for method, path, operation in operations:
        text.append(_route(method, path, operation, set(operation["responses"]) - anywhere))
    text.append("## Shapes\n\n")
    for name, shape in sorted(tree["components"]["schemas"].items()):
        text.append(_shape(name, shape))
    return whole("HTTP: every route", _INTRODUCTION, text)


def _openapi() -> dict[str, Any]:
    # with an empty environment: no token of whoever makes the pages
    app = create_app(Publisher(empty_snapshot(0.0)), Server(), version="any", environ={})
    return app.openapi()


def _route(method: str, path: str, operation: dict[str, Any], own: set[str]) -> str:
    text = [f"## `{method} {path}`\n\n{one_line(operation.get('description', ''))}"]
    text.append(" Needs the token.\n\n" if operation["security"] == [{"token": []}] else "\n\n")
    parameters = operation.get("parameters", ())
    if parameters:
        rows = [
            (
                code(p["name"]),
                p["in"],
                words(_without_null(p["schema"])),
                "required" if p.get("required") else default(p["schema"]),
                p.get("description", ""),
            )
            for p in parameters
        ]
        text.append(table(("parameter", "in", "type", "default", "meaning"), rows))
    for kind, body in operation.get("requestBody", {}).get("content", {}).items():
        text.append(f"Body: {words(body['schema'])}, as {code(kind)}.\n\n")
    text.append(_answers(operation["responses"], own))
    return "".join(text)


def _answers(responses: dict[str, Any], statuses: set[str]) -> str:
    # without the words of a status: those of Python's `http` differ from version to version
    rows = [
        (status, code(kind), words(content["schema"]) if content.get("schema") else "")
        for status in sorted(statuses)
        for kind, content in (responses[status].get("content") or {"": {}}).items()
    ]
    return table(("status", "content", "shape"), rows)


def _shape(name: str, shape: dict[str, Any]) -> str:
    text = [f"### {name}\n\n"]
    if "description" in shape:
        text.append(one_line(shape["description"]) + "\n\n")
    fields = shape.get("properties", {})
    explained = any("description" in field for field in fields.values())
    rows = [
        (code(key), words(field).replace(" or null", " or `null`"), *([field.get("description", "")] * explained))
        for key, field in fields.items()
    ]
    return "".join(text) + table(("field", "type", *(["meaning"] * explained)), rows)


def _without_null(schema: dict[str, Any]) -> dict[str, Any]:
    parts = [part for part in schema.get("anyOf", ()) if part.get("type") != "null"]
    return parts[0] if len(parts) == 1 else schema
