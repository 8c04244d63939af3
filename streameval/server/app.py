"""The FastAPI app over a publisher of snapshots."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from fastapi import FastAPI

from streameval.config import Server
from streameval.publish import Publisher
from streameval.server import (
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
from streameval.server.collector import SnapshotCollector
from streameval.server.security import HEADERS, SecurityHeaders, read_token, token_guard
from streameval.store.history_reader import HistoryReader

_DESCRIPTION = (
    "How good each click model is right now. Undefined numbers are null with a reason, times are RFC 3339 in UTC, "
    "every number has its impressions and clicks beside it, and errors are problem+json (RFC 9457)."
)


def create_app(
    publisher: Publisher,
    settings: Server,
    *,
    version: str,
    clock: Callable[[], float] = time.time,
    max_streams: int = api_stream.MAX_CLIENTS,
    history: HistoryReader | None = None,
) -> FastAPI:
    """Everything that readers get over HTTP; past ranges only with a `history`.

    `clock` (seconds since the epoch) decides when a version has been unseen for `server.version_ttl`. Raises
    ConfigError when `server.token_file` holds no usable token.
    """
    guard = token_guard(read_token(settings.token_file))
    streams = api_stream.Streams(publisher, max_streams)
    app = FastAPI(
        title="streameval",
        version=version,
        description=_DESCRIPTION,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
    )
    app.state.streams = streams
    problems.install(app, HEADERS)
    app.add_middleware(SecurityHeaders)
    app.include_router(api_status.router(publisher, version))
    app.include_router(api_results.router(publisher, history))
    app.include_router(api_series.router(publisher, history))
    app.include_router(api_users.router(publisher, guard))
    app.include_router(api_stream.router(streams))
    collector = SnapshotCollector(
        publisher,
        version=version,
        version_ttl=settings.version_ttl / 1000,
        max_series=settings.max_series,
        clock=clock,
    )
    api_metrics.install(app, collector)
    pages.install(app)
    _describe_problems(app)
    return app


def _describe_problems(app: FastAPI) -> None:
    # FastAPI only lists shapes that a route returns; problems and overviews are written by hand, so they are added
    generate = app.openapi

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            tree = generate()
            shapes = tree.setdefault("components", {}).setdefault("schemas", {})
            for shape in (schemas.Problem, schemas.Overview):
                described = shape.model_json_schema(ref_template="#/components/schemas/{model}")
                shapes.update(described.pop("$defs", {}))
                shapes[shape.__name__] = described
            app.openapi_schema = tree
        return app.openapi_schema

    app.openapi = openapi  # type: ignore[method-assign]  # FastAPI's documented way to extend the schema
