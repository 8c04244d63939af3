"""/metrics: a plain route (no redirect) in the format that the scraper asks for."""

from __future__ import annotations

from fastapi import FastAPI
from prometheus_client import (
    CollectorRegistry,
    GCCollector,
    PlatformCollector,
    ProcessCollector,
    disable_created_metrics,
)
from prometheus_client.exposition import choose_encoder
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from streameval.server.http.turns import Turns
from streameval.server.prometheus.collector import SnapshotCollector


def install(app: FastAPI, collector: SnapshotCollector, turns: Turns) -> None:
    """Adds the route, with its own registry."""
    # Prometheus before 2.50 would keep each _created as its own series
    disable_created_metrics()
    registry = CollectorRegistry(auto_describe=False)
    registry.register(collector)
    ProcessCollector(registry=registry)
    PlatformCollector(registry=registry)
    GCCollector(registry=registry)

    async def metrics(request: Request) -> Response:
        try:
            encoder, content_type = choose_encoder(request.headers.get("accept", ""))
        except (ValueError, TypeError):  # a version in the Accept header that is no version
            encoder, content_type = choose_encoder("")
        body = await run_in_threadpool(turns.measured(encoder), registry)
        return Response(body, headers={"Content-Type": content_type, "Cache-Control": "no-store"})

    app.add_route("/metrics", metrics, methods=["GET"], include_in_schema=False)
