"""The FastAPI app over a publisher of snapshots."""

from __future__ import annotations

import inspect
import logging
import os
import time
from collections.abc import Callable, Mapping
from typing import Any

from fastapi import APIRouter, FastAPI
from fastapi.routing import APIRoute

from streameval.compare.announce import Announcements
from streameval.config import Server
from streameval.publish import Publisher
from streameval.server import (
    api_comparisons,
    api_dead_letters,
    api_deploys,
    api_metrics,
    api_results,
    api_series,
    api_status,
    api_stream,
    api_users,
    pages,
    problems,
    schemas,
)
from streameval.server.access import Access, Door, exposure, read_token
from streameval.server.collector import SnapshotCollector
from streameval.server.head import HeadAsGet
from streameval.server.limits import Limits
from streameval.server.security import SecurityHeaders, security_headers
from streameval.server.tls import tls_context
from streameval.server.turns import InTurn, Turns
from streameval.sources.recent_letters import RecentLetters
from streameval.store.history_reader import HistoryReader

log = logging.getLogger(__name__)

_DESCRIPTION = (
    "How good each click model is right now. Undefined numbers are null with a reason, times are RFC 3339 in UTC, "
    "every number has its impressions and clicks beside it, and errors are problem+json (RFC 9457)."
)


# what the door, the limits and the connections may answer on any route
_ANYWHERE = (400, 408, 413, 414, 431, 503)


def create_app(
    publisher: Publisher,
    settings: Server,
    *,
    version: str,
    clock: Callable[[], float] = time.time,
    environ: Mapping[str, str] = os.environ,
    max_streams: int = api_stream.MAX_CLIENTS,
    history: HistoryReader | None = None,
    announcements: Announcements | None = None,
    letters: RecentLetters | None = None,
    paced: bool = False,
) -> FastAPI:
    """Everything that readers get over HTTP; past ranges only with a `history`, deploys are left in `announcements`.

    `letters`: where the source's dead letters pass by.

    `paced`: an ingest loop runs in this process, so questions get a budget of processor time (see `turns`).

    `clock` (seconds since the epoch) decides when a version has been unseen for `server.version_ttl`; the token may be
    in `environ`. Raises ConfigError when the token or the certificate that is set cannot be used.
    """
    token = read_token(settings.token_file, environ)
    access = Access(token, settings.token_scope)
    exposed = exposure(settings, token)
    if exposed:
        log.warning("%s", exposed)
    streams = api_stream.Streams(publisher, max_streams)
    app = FastAPI(
        title="streameval",
        version=version,
        description=_DESCRIPTION,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        responses=problems.problem_responses(*_ANYWHERE),
    )
    app.state.streams = streams
    app.state.tls = tls_context(settings)
    app.state.headers = security_headers(app.state.tls is not None)
    problems.install(app)
    turns = Turns(publisher, paced=paced)
    # the last one added sees a request first
    app.add_middleware(InTurn, turns)
    app.add_middleware(Limits, turns.refuse)
    app.add_middleware(Door, access, turns.refuse)
    app.add_middleware(problems.Crashes)
    app.add_middleware(SecurityHeaders, app.state.headers)
    app.add_middleware(HeadAsGet)
    for routes in (
        api_status.router(publisher, version),
        api_results.router(publisher, history),
        api_series.router(publisher, history),
        api_deploys.router(publisher, announcements, clock),
        api_comparisons.router(publisher, access),
        api_users.router(publisher),
        api_dead_letters.router(publisher, access, letters),
        api_stream.router(streams),
    ):
        app.include_router(_measured(routes, turns))
    collector = SnapshotCollector(
        publisher,
        version=version,
        version_ttl=settings.version_ttl / 1000,
        max_series=settings.max_series,
        clock=clock,
    )
    api_metrics.install(app, collector, turns)
    pages.install(app)
    _describe(app, access)
    return app


def _measured(routes: APIRouter, turns: Turns) -> APIRouter:
    """The routes, with what those that FastAPI runs in threads work charged to their questions."""
    for route in routes.routes:
        if isinstance(route, APIRoute) and not (
            inspect.iscoroutinefunction(route.endpoint) or inspect.isasyncgenfunction(route.endpoint)
        ):
            route.endpoint = turns.measured(route.endpoint)
    return routes


def _describe(app: FastAPI, access: Access) -> None:
    # FastAPI only knows what a route returns and takes: problems and overviews are written by hand, an empty value is
    # dropped before it is looked at, and the token is asked for before a route is looked for
    generate = app.openapi

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            tree = generate()
            components = tree.setdefault("components", {})
            shapes = components.setdefault("schemas", {})
            for shape in (schemas.Problem, schemas.Overview):
                described = shape.model_json_schema(ref_template="#/components/schemas/{model}")
                shapes.update(described.pop("$defs", {}))
                shapes[shape.__name__] = described
            components["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
            for path, methods in tree["paths"].items():
                for method, operation in methods.items():
                    for parameter in operation.get("parameters", ()):
                        if parameter["in"] == "query" and not parameter.get("required"):
                            parameter["allowEmptyValue"] = True  # the same as none, see `queries.Which`
                    if access.needs_token(method.upper(), path):
                        operation["security"] = [{"token": []}]
                        refusals = problems.problem_responses(401, 403)
                        operation["responses"].update({str(status): what for status, what in refusals.items()})
            app.openapi_schema = tree
        return app.openapi_schema

    app.openapi = openapi  # type: ignore[method-assign]  # FastAPI's documented way to extend the schema
