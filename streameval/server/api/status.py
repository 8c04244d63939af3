"""Health and status."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from starlette.responses import Response

from streameval.results.publish import Publisher
from streameval.server.api import tables
from streameval.server.api.answers import answer
from streameval.server.api.degraded import degraded
from streameval.server.api.overview import checks, status
from streameval.server.api.queries import StatusQuery
from streameval.server.api.schemas import status as schemas
from streameval.server.api.tables import CSV
from streameval.server.http.problems import Problem, problem_responses

_OLD = 30.0  # seconds
_HEALTH: dict[str, Any] = {"tags": ["health"], "response_model": schemas.Health, "response_model_exclude_unset": True}


def router(publisher: Publisher, version: str, age: Callable[[], float]) -> APIRouter:
    """/livez, /readyz, /healthz and /api/v1/status. `age`: s since the latest snapshot was taken."""
    routes = APIRouter()

    @routes.get("/livez", **_HEALTH)
    async def livez() -> dict[str, Any]:
        """The process answers. Nothing else decides that, so an outage elsewhere never restarts it."""
        awaited = publisher.awaited()
        return {"status": "alive", "checks": {}} | ({"awaited": awaited} if awaited else {})

    @routes.get("/readyz", **_HEALTH, responses=problem_responses(503))
    async def readyz() -> dict[str, Any]:
        """Partitions assigned, state restored, caught up; 503 names the checks that fail.

        What is `degraded` does not make it fail: the logged path continues without a suspended online model.
        """
        snapshot = publisher.latest()
        found, amiss = checks(snapshot), degraded(snapshot)
        if age() > _OLD:  # the loop hangs, or is starved: none of the others is known
            found["fresh"] = False
        failing = [name for name, passed in found.items() if not passed]
        if failing:
            cause = snapshot.preparing or publisher.awaited()
            why = f" ({cause})" if cause else ""
            raise Problem(
                503,
                f"not ready: {', '.join(failing)}{why}",
                extra={"checks": found, "degraded": amiss, "preparing": snapshot.preparing or None},
                headers={"Retry-After": "5"},
            )
        return {"status": "ready", "checks": found, "degraded": amiss}

    routes.add_api_route(
        "/healthz",
        readyz,
        **_HEALTH,
        responses=problem_responses(503),
        operation_id="healthz",
        summary="Healthz",
        description="The same as `/readyz`.",
    )

    @routes.get(
        "/api/v1/status",
        tags=["status"],
        response_model=schemas.Status,
        responses={**problem_responses(422), **CSV},
    )
    def get_status(request: Request, query: Annotated[StatusQuery, Query()]) -> Response:
        """Build, checks, event counters, partitions, and the names that the other routes know."""
        snapshot = publisher.latest()
        rows = query.table(tables.STATUS[query.rows])
        return answer(request, snapshot, lambda: status(snapshot, version), table=rows)

    return routes
