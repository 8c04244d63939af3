"""Deploys: those on record, and the announcements of CI/CD."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from starlette.responses import Response

from streameval.compare.announce import Announcement, Announcements, Full, announced_deploy, with_announcement
from streameval.compare.reading.as_json import as_json
from streameval.compare.reading.choice import newest_first
from streameval.compare.reading.reading import Deploy
from streameval.events.names import spelled
from streameval.results.publish import Publisher
from streameval.server.api import tables
from streameval.server.api.answers import answer, answer_of_write, counted, parse_time, rfc3339
from streameval.server.api.queries import DeployBody, DeploysQuery
from streameval.server.api.schemas import comparisons as schemas
from streameval.server.api.selection import check_model, warning_of_unseen
from streameval.server.api.tables import CSV
from streameval.server.http.problems import Problem, bad_parameter, problem_responses

_EARLIEST = 978_307_200_000  # ms: 2001, before anybody's deploy
_AHEAD = 3_600_000  # ms that an announced time may lie ahead: a clock that is wrong must not be the newest for years


def router(publisher: Publisher, announcements: Announcements | None, clock: Callable[[], float]) -> APIRouter:
    """/api/v1/deploys; `access` asks for the token before an announcement gets here."""
    routes = APIRouter(prefix="/api/v1", tags=["comparisons"], responses=problem_responses(422))

    @routes.get("/deploys", response_model=schemas.Deploys, responses={**problem_responses(404), **CSV})
    def get_deploys(request: Request, query: Annotated[DeploysQuery, Query()]) -> Response:
        """The deploys on record, newest first."""
        snapshot = publisher.latest()
        check_model(snapshot, query.model)
        found = newest_first(d for d in snapshot.deploys if query.model in (None, d.model))
        return answer(
            request,
            snapshot,
            lambda: {
                **counted(len(found), query.limit),
                "deploys": [as_json(d, rfc3339) for d in found[: query.limit]],
            },
            table=query.table(tables.deploys),
        )

    @routes.post(
        "/deploys",
        response_model=schemas.Announced,
        status_code=201,
        responses={
            200: {"model": schemas.Announced, "description": "Already known: note and link updated"},
            **problem_responses(409, 503),
        },
    )
    def post_deploy(body: DeployBody) -> Response:
        """Announces a deploy. The same version again within ten minutes is the same deploy, and renews note and link."""
        if announcements is None:
            raise Problem(409, "this server accepts no announcements: no monitor is running")
        now = round(clock() * 1000)
        at = now if body.at is None else parse_time(body.at)
        if at > now + _AHEAD:
            raise bad_parameter("at", str(body.at), "is more than an hour ahead; give the time of the deploy", "body")
        if at < _EARLIEST:
            raise bad_parameter("at", str(body.at), "is before 2001; give the time of the deploy", "body")
        snapshot = publisher.latest()
        said = Announcement(spelled(body.model), spelled(body.version), at, body.note, body.link)
        on_record = announced_deploy(snapshot.deploys, said)
        try:
            left, again = announcements.put(said)
        except Full:
            detail = "too many announcements are waiting; try again in a moment"
            raise Problem(503, detail, headers={"Retry-After": "2"}) from None
        deploy = _new(left) if on_record is None else with_announcement(on_record, left)
        status = 201 if on_record is None and not again else 200
        warning = warning_of_unseen(snapshot, said.model)
        return answer_of_write(snapshot, {"deploy": _shown(deploy), "warning": warning}, status)

    return routes


def _new(announcement: Announcement) -> Deploy:
    a = announcement
    return Deploy("", a.model, a.version, None, a.at, "deploy", None, announced=True, note=a.note, link=a.link)


def _shown(deploy: Deploy) -> dict[str, Any]:
    return {**as_json(deploy, rfc3339), "id": deploy.id or None}
