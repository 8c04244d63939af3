"""Every error has one shape: problem+json (RFC 9457) that says how to fix it."""

from __future__ import annotations

import json
import logging
from collections.abc import Awaitable, Callable, Mapping
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse, Response
from starlette.routing import Match, Mount
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from streameval.process.logs import trace

MEDIA_TYPE = "application/problem+json"
_SHOWN = 200  # characters of a bad value that are repeated in the answer
_METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
_MOST = 20  # wrong parameters that are explained: an address has room for thousands

log = logging.getLogger(__name__)


Refuse = Callable[[Scope, Receive, Send, "Problem"], Awaitable[None]]  # answers a request with a problem


class Problem(Exception):  # noqa: N818  the RFC's word
    """An error to tell the client. `detail` names the thing, the value and the fix; `extra` adds members."""

    def __init__(
        self,
        status: int,
        detail: str,
        *,
        errors: list[dict[str, str]] | None = None,
        extra: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(detail)
        self.status = status
        self.detail = detail
        self.errors = errors
        self.extra = dict(extra or {})
        self.headers = dict(headers or {})


def bad_parameter(name: str, value: str, right: str, where: str = "query") -> Problem:
    """422: a parameter that is well formed but cannot be used; `right` says what can be used."""
    detail = f"{name} = {quoted(value)}: {right}"
    return Problem(422, detail, errors=[{"parameter": name, "in": where, "value": _shown(value), "detail": right}])


def unknown(kind: str, value: str, known: list[str]) -> Problem:
    """404: no such model, version, window, ...; says which there are."""
    have = f"there are: {listed(known)}" if known else "there is none yet"
    return Problem(404, f"{kind} = {quoted(value)}: unknown; {have}", extra={"known": known[:50]})


def quoted(value: str) -> str:
    """The value as an error shows it."""
    return '"' + _shown(value) + '"'


def listed(names: list[str]) -> str:
    """The first 50 names, quoted."""
    return ", ".join(quoted(name) for name in names[:50]) + (", ..." if len(names) > 50 else "")


def problem_responses(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """The OpenAPI `responses` of a route that can answer with these problems."""
    schema = {"$ref": "#/components/schemas/Problem"}
    return {s: {"description": HTTPStatus(s).phrase, "content": {MEDIA_TYPE: {"schema": schema}}} for s in statuses}


def install(app: FastAPI) -> None:
    """Makes every error that `app` raises a problem; `Crashes` does the same for unexpected ones."""
    app.add_exception_handler(Problem, _on_problem)
    app.add_exception_handler(RequestValidationError, _on_invalid)
    app.add_exception_handler(HTTPException, _on_http)


class Crashes:
    """ASGI middleware: a crash is a 500 without internals, and a log entry without a user's id or a message's text."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """An answer that has begun is cut off: uvicorn hangs up when it does not end."""
        begun = False

        async def watched(message: Message) -> None:
            nonlocal begun
            begun = begun or message["type"] == "http.response.start"
            await send(message)

        try:
            await self._app(scope, receive, watched)
        except Exception as error:
            if scope["type"] != "http":
                raise
            route = getattr(scope.get("route"), "path", "(no route)")  # its pattern: a path may hold a user id
            log.error("%s %s failed", scope["method"][:_SHOWN], route, extra={"trace": trace(error)})
            log.debug("full traceback", exc_info=error)
            if not begun:
                problem = Problem(500, "internal server error; the log says why")
                await problem_response(Request(scope), problem)(scope, receive, send)


def problem_json(problem: Problem, instance: str) -> dict[str, Any]:
    """The body of a problem's answer."""
    body: dict[str, Any] = {
        "type": "about:blank",
        "title": HTTPStatus(problem.status).phrase,
        "status": problem.status,
        "detail": problem.detail,
        "instance": _shown(instance),
    }
    if problem.errors is not None:
        body["errors"] = problem.errors
    return {**body, **problem.extra}


def problem_response(request: Request, problem: Problem) -> Response:
    """The HTTP answer of a problem."""
    headers = {"Cache-Control": "no-store", **problem.headers}
    return JSONResponse(problem_json(problem, request.url.path), problem.status, headers, MEDIA_TYPE)


async def each_once(request: Request) -> None:
    """Of a query parameter that is given twice only one would be read: it is a 422."""
    given = {name: request.query_params.getlist(name) for name in _known_parameters(request, "query")}
    errors = [
        {"parameter": name, "in": "query", "value": _shown(values[-1]), "detail": f"is given {len(values)} times"}
        for name, values in given.items()
        if len(values) > 1
    ]
    if errors:
        raise Problem(422, _detail(errors), errors=errors)


async def _on_problem(request: Request, error: Exception) -> Response:
    assert isinstance(error, Problem)
    return problem_response(request, error)


async def _on_invalid(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    errors = [_explained(request, problem, error.body) for problem in error.errors()[:_MOST]]
    return problem_response(request, Problem(422, _detail(errors), errors=errors))


async def _on_http(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    headers = dict(error.headers or {})
    detail = str(error.detail)
    if error.status_code == 404:
        detail = f"{_shown(request.url.path)}: no such page; /docs lists every route"
    elif error.status_code == 405:
        allowed = headers["Allow"] = _allowed(request) or headers.get("Allow", "GET, HEAD")
        detail = f"{request.method}: not allowed here; use {allowed}"
    return problem_response(request, Problem(error.status_code, detail, headers=headers))


def _allowed(request: Request) -> str:
    """The methods that some route takes at this path: the router names those of the first route only."""
    routes = [route for route in request.app.routes if not isinstance(route, Mount)]  # static files match them all
    asked = {method: {**request.scope, "method": method} for method in _METHODS}
    taken = {m for m, scope in asked.items() if any(r.matches(scope)[0] == Match.FULL for r in routes)}
    return ", ".join(m for m in _METHODS if m in taken or (m == "HEAD" and "GET" in taken))


def _detail(errors: list[dict[str, str]]) -> str:
    return "; ".join(f"{e['parameter']} = {quoted(e['value'])}: {e['detail']}" for e in errors)


def _explained(request: Request, problem: Mapping[str, Any], body: object) -> dict[str, str]:
    where, *path = [str(part) for part in problem["loc"]] or ["request"]
    right = str(problem["msg"]).removeprefix("Value error, ")
    right = right.replace("Input should be", "must be").replace("String should", "must")
    if problem["type"] == "extra_forbidden":
        right = "unknown parameter; known here: " + ", ".join(_known_parameters(request, where))
    elif problem["type"] == "json_invalid":
        path, right = ["body"], f"must be JSON: {problem.get('ctx', {}).get('error', 'it cannot be read')}"
    elif problem["type"] == "model_attributes_type":
        right = "must be a JSON object, sent with Content-Type: application/json"
    elif problem["type"] == "missing":
        right = "is required"
    elif right.startswith("must be a valid integer"):
        right = "must be an integer"
    given = body if problem["type"] == "json_invalid" else problem["input"]  # FastAPI has {} there
    value = "" if problem["type"] == "missing" else _shown(given)
    return {"parameter": ".".join(path) or where, "in": where, "value": value, "detail": right}


def _known_parameters(request: Request, where: str) -> list[str]:
    names: list[str] = []
    dependant = getattr(request.scope.get("route"), "dependant", None)
    for parameter in getattr(dependant, f"{where}_params", ()):
        annotation = parameter.field_info.annotation
        if isinstance(annotation, type) and issubclass(annotation, BaseModel):
            names += [field.alias or name for name, field in annotation.model_fields.items()]
        else:
            names.append(parameter.alias)
    return names


def _shown(value: object) -> str:
    text = value if isinstance(value, str) else json.dumps(value, default=str)
    text = text.encode("utf-8", "backslashreplace").decode()
    return text if len(text) <= _SHOWN else text[:_SHOWN] + "..."
