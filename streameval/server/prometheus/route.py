"""/metrics: a plain route (no redirect) in the format that the scraper asks for, and compressed where it takes that."""

from __future__ import annotations

import gzip

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

_LEVEL = 1  # 350 kB become 23 kB in 0.5 ms; level 5 makes 20 kB of them in twice the time


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
        zips = _takes_gzip(request.headers.get("accept-encoding", ""))

        def exposition() -> bytes:
            body = encoder(registry)
            return gzip.compress(body, _LEVEL) if zips else body

        headers = {"Content-Type": content_type, "Cache-Control": "no-store", "Vary": "Accept, Accept-Encoding"}
        if zips:
            headers["Content-Encoding"] = "gzip"
        return Response(await run_in_threadpool(turns.measured(exposition)), headers=headers)

    app.add_route("/metrics", metrics, methods=["GET"], include_in_schema=False)


def _takes_gzip(accepted: str) -> bool:
    """Whether `Accept-Encoding` names gzip, and not as what is not wanted (`q=0`)."""
    for one in accepted.lower().split(","):
        name, _, weight = one.replace(" ", "").partition(";")
        if name == "gzip":
            return weight.removeprefix("q=").strip("0.") != "" if weight else True
    return False
