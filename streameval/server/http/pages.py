"""The page at `/`, its static files, and `/docs`: the OpenAPI description as plain HTML, nothing from outside."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from html import escape
from pathlib import Path
from typing import Any

from fastapi import FastAPI
from starlette.requests import Request
from starlette.responses import FileResponse, HTMLResponse, Response
from starlette.staticfiles import StaticFiles
from starlette.types import Scope

from streameval.metrics.metric import Metric

_FILES = Path(__file__).parent.parent / "page"
_DOCS = "https://github.com/streameval/streameval/blob/main/docs"  # what the page links to


class _PageFiles(StaticFiles):
    """The files in the folder, and one that is made of the table of metrics."""

    def __init__(self, metrics: Callable[[], Sequence[Metric]]) -> None:
        super().__init__(directory=_FILES)
        self._metrics = metrics

    async def get_response(self, path: str, scope: Scope) -> Response:
        if path == "registry.js" and scope["method"] in ("GET", "HEAD"):
            return Response(
                metrics_module(self._metrics()), media_type="text/javascript", headers={"Cache-Control": "no-cache"}
            )
        return await super().get_response(path, scope)


def install(app: FastAPI, metrics: Callable[[], Sequence[Metric]]) -> None:
    """Adds `/`, `/docs` and `/page/...`; `metrics`: those that there are now."""

    async def index(request: Request) -> Response:
        return FileResponse(_FILES / "index.html", headers={"Cache-Control": "no-cache"})

    async def docs(request: Request) -> Response:
        return HTMLResponse(render_docs(app.openapi()), headers={"Cache-Control": "no-cache"})

    app.add_route("/", index, methods=["GET"], include_in_schema=False)
    app.add_route("/docs", docs, methods=["GET"], include_in_schema=False)
    app.mount("/page", _PageFiles(metrics), name="page")


def metrics_module(metrics: Sequence[Metric]) -> str:
    """What the page says about each metric, as a module: name, meaning, unit (absent: a ratio), digits, and which way is better."""
    shown = sorted(((m, m.column) for m in metrics if m.column is not None), key=lambda pair: pair[1].place)
    table = {
        metric.name: {
            "name": column.title,
            "about": metric.explanation,
            **({} if metric.unit == "ratio" else {"unit": metric.unit}),
            "digits": column.digits,
            "better": {"higher": 1, "lower": -1}.get(metric.better, 0),  # up, down, neither
            "range": [column.least, column.most],
            **{"one": {"ideal": 1}, "zero": {"ideal": 0}}.get(metric.better, {}),
        }
        for metric, column in shown
    }
    overview = [metric.name for metric, column in shown if column.overview]
    exported = {"METRICS": table, "OVERVIEW": overview, "DOCS": _DOCS}
    return "".join(f"export const {name} = {json.dumps(value)};\n" for name, value in exported.items())


def render_docs(openapi: dict[str, Any]) -> str:
    """One readable page out of an OpenAPI description."""
    routes = "".join(
        _operation(path, method, operation)
        for path, methods in openapi["paths"].items()
        for method, operation in methods.items()
    )
    schemas = "".join(_schema(name, s) for name, s in openapi.get("components", {}).get("schemas", {}).items())
    info = openapi["info"]
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(info['title'])} API</title>"
        '<link rel="icon" href="page/favicon.svg"><link rel="stylesheet" href="page/style.css"></head>'
        f'<body><header><h1><a href="./">{escape(info["title"])}</a> API</h1>'
        f'<span class="quiet">{escape(info["version"])}</span></header><main class="docs">'
        f"<p>{escape(info.get('description', ''))}</p>"
        '<p>For programs: <a href="openapi.json">/openapi.json</a> (OpenAPI) and <a href="metrics">/metrics</a> '
        "(Prometheus).</p>"
        f"<h2>Routes</h2>{routes}<h2>Shapes</h2>{schemas}</main></body></html>"
    )


def _operation(path: str, method: str, operation: dict[str, Any]) -> str:
    rows = "".join(
        f"<tr><td><code>{escape(p['name'])}</code></td><td>{escape(p['in'])}</td>"
        f"<td>{_type(p.get('schema', {}))}{' (required)' if p.get('required') else ''}</td>"
        f"<td>{escape(p.get('description', p.get('schema', {}).get('description', '')))}</td></tr>"
        for p in operation.get("parameters", [])
    )
    table = f"<table><thead><tr><th>parameter<th>in<th>type<th>meaning</tr></thead>{rows}</table>" if rows else ""
    sent = _content(operation.get("requestBody", {})).removeprefix(": ")
    body = f"<p>Body: {sent}</p>" if sent else ""
    answers = "".join(
        f"<li><code>{escape(status)}</code> {escape(response.get('description', ''))}{_content(response)}</li>"
        for status, response in operation.get("responses", {}).items()
    )
    guarded = "<p>Needs the bearer token, when one is set.</p>" if operation["security"] == [{"token": []}] else ""
    return (
        f"<section><h3><code>{escape(method.upper())} {escape(path)}</code></h3>"
        f"<p>{escape(operation.get('description', operation.get('summary', '')))}</p>"
        f"{guarded}{table}{body}<ul>{answers}</ul></section>"
    )


def _content(response: dict[str, Any]) -> str:
    parts = [
        f"<code>{escape(media)}</code> {_type(body['schema'])}"
        for media, body in response.get("content", {}).items()
        if body.get("schema")
    ]
    return ": " + ", ".join(parts) if parts else ""


def _schema(name: str, schema: dict[str, Any]) -> str:
    required = set(schema.get("required", []))
    rows = "".join(
        f"<tr><td><code>{escape(field)}</code></td><td>{_type(s)}{'' if field in required else ' (optional)'}</td></tr>"
        for field, s in schema.get("properties", {}).items()
    )
    return (
        f'<details id="{escape(name)}"><summary><code>{escape(name)}</code> '
        f'<span class="quiet">{escape(schema.get("description", ""))}</span></summary><table>{rows}</table></details>'
    )


def _type(schema: dict[str, Any]) -> str:
    if "$ref" in schema:
        name = escape(schema["$ref"].rsplit("/", 1)[-1])
        return f'<a href="#{name}">{name}</a>'
    for choice in ("anyOf", "oneOf"):
        if choice in schema:
            return " or ".join(_type(option) for option in schema[choice])
    if "enum" in schema:
        return " | ".join(f"<code>{escape(str(value))}</code>" for value in schema["enum"])
    if schema.get("type") == "array":
        return "list of " + _type(schema.get("items", {}))
    if isinstance(schema.get("additionalProperties"), dict):
        return "map of " + _type(schema["additionalProperties"])
    bounds = [
        f"{word} {schema[key]}"
        for key, word in (("minimum", "from"), ("maximum", "to"), ("default", "default"))
        if schema.get(key) is not None
    ]
    return escape(str(schema.get("type", "any"))) + (f" ({escape(', '.join(bounds))})" if bounds else "")
