"""The FastAPI app over a publisher of snapshots."""

from __future__ import annotations

import inspect
import logging
import os
import time
import warnings
from collections.abc import Callable, Mapping
from typing import Any

from fastapi import APIRouter, Depends, FastAPI
from fastapi.routing import APIRoute

from streameval.compare.announce import Announcements
from streameval.metrics.registry import rows as metrics_of
from streameval.results.publish import Publisher
from streameval.server.api import auctions as api_auctions
from streameval.server.api import comparisons as api_comparisons
from streameval.server.api import dead_letters as api_dead_letters
from streameval.server.api import deploys as api_deploys
from streameval.server.api import handlings as api_handlings
from streameval.server.api import results as api_results
from streameval.server.api import series as api_series
from streameval.server.api import status as api_status
from streameval.server.api import strata as api_strata
from streameval.server.api import stream as api_stream
from streameval.server.api import users as api_users
from streameval.server.api.schemas.shape import Problem
from streameval.server.api.schemas.status import Overview
from streameval.server.http import pages, problems
from streameval.server.http.access import Access, AccessMiddleware, exposure, read_token
from streameval.server.http.head import HeadAsGet
from streameval.server.http.limits import Limits
from streameval.server.http.security import SecurityHeaders, security_headers
from streameval.server.http.tls import Renewal, tls_context
from streameval.server.http.turns import InTurn, Turns
from streameval.server.prometheus import route as api_metrics
from streameval.server.prometheus.collector import SnapshotCollector
from streameval.settings.server import Server
from streameval.sources.recent_letters import RecentLetters
from streameval.store.history.reader import HistoryReader

log = logging.getLogger(__name__)

# FastAPI silences this warning about its own fields, but with `warnings.catch_warnings`, which a thread that compiles may undo
warnings.filterwarnings("ignore", message="The 'alias' attribute with value")

_DESCRIPTION = (
    "How good each click model is right now. Undefined numbers are null with a reason, times are RFC 3339 in UTC, "
    "every number has its impressions and clicks beside it, and errors are problem+json (RFC 9457)."
)


_TAGS = {
    "health": "Whether the process is alive and ready.",
    "status": "The state of the monitor, and invalid events.",
    "results": "Metrics by version, window, slice and bucket, and over time.",
    "comparisons": "Deploys, comparisons of candidates with what they replaced, and verdicts.",
    "auctions": "Counterfactual auctions of logged bids.",
    "users": "Single users, by a hash of their id.",
    "stream": "Snapshots as they are published.",
}
_OVERVIEW = {"$ref": "#/components/schemas/Overview"}  # the data of each event
# what access, the limits and the connections may answer on any route
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
    handlings: api_handlings.HandlingBook | None = None,
    letters: RecentLetters | None = None,
    paced: bool = False,
) -> FastAPI:
    """Everything that readers get over HTTP; past ranges only with a `history`, announced deploys go to `announcements`, acknowledged and muted verdicts to `handlings`.

    `letters`: where the source's dead letters pass by. `paced`: an ingest loop runs in this process, so queries get a budget of processor time (see `turns`).
    `clock` (seconds since the epoch) decides when a version has been unseen for `server.version_ttl`; the token may be
    in `environ`. Raises ConfigError when the token or the certificate that is set cannot be used.
    """
    token = read_token(settings.token_file, environ)
    access = Access(token, settings.token_scope)
    if exposed := exposure(settings, token):
        log.warning("%s", exposed)
    streams = api_stream.Streams(publisher, max_streams)
    app = _described(version)
    app.state.streams = streams
    app.state.tls = tls_context(settings)
    app.state.renewal = None if app.state.tls is None else Renewal(settings, app.state.tls, clock)
    app.state.certificate = lambda: None if app.state.renewal is None else app.state.renewal.certificate
    app.state.headers = security_headers(app.state.tls is not None)
    problems.install(app)
    turns = Turns(publisher, paced=paced)
    _guard(app, access, turns)
    for routes in (
        api_status.router(publisher, version, lambda: clock() - publisher.latest().taken_at if paced else 0.0),
        api_results.router(publisher, history),
        api_strata.router(publisher, history),
        api_series.router(publisher, history),
        api_deploys.router(publisher, announcements, clock),
        api_comparisons.router(publisher, access),
        api_handlings.router(publisher, handlings, clock),
        api_users.router(publisher),
        api_auctions.router(publisher),
        api_dead_letters.router(publisher, access, letters),
        api_stream.router(streams),
    ):
        app.include_router(_measured(routes, turns), dependencies=[Depends(problems.each_once)])
    scraped = None if history is None else history.path.with_name(f"scraped-{settings.port}.json")
    ttl = settings.version_ttl / 1000
    collector = SnapshotCollector(
        publisher, version=version, version_ttl=ttl, max_series=settings.max_series, clock=clock, scraped=scraped
    )
    api_metrics.install(app, collector, turns)
    pages.install(app, lambda: metrics_of(publisher.latest().options))
    _describe(app, access)
    return app


def _described(version: str) -> FastAPI:
    """An app without routes, with its description for OpenAPI."""
    return FastAPI(
        title="streameval",
        version=version,
        description=_DESCRIPTION,
        contact={"name": "streameval"},
        openapi_tags=[{"name": name, "description": about} for name, about in _TAGS.items()],
        license_info={"name": "Apache-2.0", "identifier": "Apache-2.0"},
        servers=[{"url": "/"}],  # wherever it was read
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        responses=problems.problem_responses(*_ANYWHERE),
    )


def _guard(app: FastAPI, access: Access, turns: Turns) -> None:
    """What every request passes through; the last one added sees it first."""
    app.add_middleware(InTurn, turns)
    app.add_middleware(Limits, turns.refuse)
    app.add_middleware(AccessMiddleware, access, turns.refuse)
    app.add_middleware(problems.Crashes)
    app.add_middleware(SecurityHeaders, app.state.headers)
    app.add_middleware(HeadAsGet)


def _measured(routes: APIRouter, turns: Turns) -> APIRouter:
    """The routes; the work of those that FastAPI runs in threads is charged to their queries."""
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
            for shape in (Problem, Overview):
                described = shape.model_json_schema(ref_template="#/components/schemas/{model}")
                shapes.update(described.pop("$defs", {}))
                shapes[shape.__name__] = described
            components["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
            for path, methods in tree["paths"].items():
                for method, operation in methods.items():
                    for parameter in operation.get("parameters", ()):
                        if parameter["in"] == "query" and not parameter.get("required"):
                            parameter["allowEmptyValue"] = True  # the same as none, see `queries.SeriesFilter`
                    operation["security"] = []  # said of every operation, or linters take it for forgotten
                    if access.needs_token(method.upper(), path):
                        operation["security"] = [{"token": []}]
                        refusals = problems.problem_responses(401, 403)
                        operation["responses"].update({str(status): what for status, what in refusals.items()})
                    elif "401" in operation["responses"]:  # some of its answers need it
                        operation["security"] = [{}, {"token": []}]
            events = tree["paths"]["/api/v1/stream"]["get"]["responses"]["200"]["content"]["text/event-stream"]
            events.clear()  # FastAPI's `itemSchema` is a word of OpenAPI 3.2, in a document of 3.1
            events["schema"] = {"type": "string", "contentMediaType": "application/json", "contentSchema": _OVERVIEW}
            app.openapi_schema = tree
        return app.openapi_schema

    app.openapi = openapi  # type: ignore[method-assign]  # FastAPI's documented way to extend the schema
