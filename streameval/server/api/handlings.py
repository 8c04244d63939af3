"""Acknowledging and muting verdicts, with a name and a reason."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Annotated, Protocol

from fastapi import APIRouter, Path
from starlette.responses import Response

from streameval.compare.reading.as_json import as_json
from streameval.compare.reading.handling import Handling, comparison_key
from streameval.results.publish import Publisher
from streameval.server.api.answers import answer_of_write, rfc3339
from streameval.server.api.queries import HandlingBody
from streameval.server.api.schemas import comparisons as schemas
from streameval.server.api.selection import one_comparison
from streameval.server.http.problems import Problem, problem_responses
from streameval.store.errors import StoreError

log = logging.getLogger(__name__)


class HandlingBook(Protocol):
    """Stores handlings; called by any thread."""

    def say(self, comparison: str, handling: Handling | None) -> None:
        """Stores it under the key of a comparison; None removes it. Raises StoreError."""


def router(publisher: Publisher, book: HandlingBook | None, clock: Callable[[], float]) -> APIRouter:
    """POST /api/v1/comparisons/{id}/handling; `access` asks for the token before it gets here."""
    routes = APIRouter(prefix="/api/v1", tags=["comparisons"], responses=problem_responses(404, 409, 422, 503))

    @routes.post("/comparisons/{id}/handling", response_model=schemas.Handled)
    def post_handling(
        id: Annotated[str, Path(min_length=1, max_length=128, description="as listed")], body: HandlingBody
    ) -> Response:
        """Acknowledges or mutes a comparison's verdict, with a name and a reason; `open` takes that back."""
        if book is None:
            raise Problem(409, "this server stores nothing: no monitor is running")
        snapshot = publisher.latest()
        found = one_comparison(snapshot, id)
        said = None
        if body.state != "open":
            said = Handling(body.state, body.by, body.reason, round(clock() * 1000), found.verdict)
        try:
            book.say(comparison_key(found), said)
        except StoreError as error:
            log.error("comparison %s: the acknowledgement or mute cannot be stored: %s", id, error)
            detail = "it cannot be stored now; the log says why"
            raise Problem(503, detail, headers={"Retry-After": "5"}) from None
        log.info("comparison %s: %s", id, body.state)
        return answer_of_write(snapshot, {"comparison": id, "handling": said and as_json(said, rfc3339)}, 200)

    return routes
