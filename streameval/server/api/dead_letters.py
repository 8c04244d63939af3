"""Invalid events: counts, and the latest samples for clients that may see single users."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from starlette.responses import Response

from streameval.results.publish import Publisher
from streameval.server.api import tables
from streameval.server.api.answers import answer_in_private, rfc3339
from streameval.server.api.queries import DeadLettersQuery
from streameval.server.api.schemas import status as schemas
from streameval.server.api.tables import CSV
from streameval.server.http.access import Access
from streameval.server.http.problems import problem_responses
from streameval.sources.protocol import REASONS
from streameval.sources.recent_letters import LetterSample, RecentLetters

_WITHHELD = 'samples show the content of events; send "Authorization: Bearer <token>" with the request'


def router(publisher: Publisher, access: Access, letters: RecentLetters | None) -> APIRouter:
    """/api/v1/dead-letters. Without `letters` there are no samples: nothing is read here."""
    routes = APIRouter(prefix="/api/v1", tags=["status"])

    @routes.get("/dead-letters", response_model=schemas.DeadLetters, responses=CSV | problem_responses(401, 422))
    def get_dead_letters(request: Request, query: Annotated[DeadLettersQuery, Query()]) -> Response:
        """Counts by reason, and the latest samples of each, newest first. The table has the samples, for the token only."""
        snapshot = publisher.latest()
        authorization = request.headers.getlist("authorization")
        if query.format == "csv":
            access.check_users(authorization)
        allowed = access.may_see_users(authorization)
        counts = dict.fromkeys(REASONS, 0) | dict(snapshot.events.get("invalid", {}))
        samples = None
        if allowed:
            samples = [] if letters is None else [_sample(sample) for sample in letters.samples()]
        return answer_in_private(
            snapshot,
            {
                "total": sum(counts.values()),
                "counts": counts,
                "samples": samples,
                "samples_withheld": None if allowed else _WITHHELD,
            },
            query.table(tables.dead_letters),
        )

    return routes


def _sample(sample: LetterSample) -> dict[str, Any]:
    return {
        "at": rfc3339(round(sample.at * 1000)),
        "reason": sample.reason,
        "field": sample.field,
        "topic": sample.topic,
        "partition": sample.partition,
        "offset": sample.offset,
        "message": sample.message,
        "value": sample.value,
        "value_bytes": sample.value_bytes,
    }
