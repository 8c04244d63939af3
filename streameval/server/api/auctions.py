"""Replayed auctions: every version at every operating point, and at matched mainline ads."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from starlette.responses import Response

from streameval.auction.rows import rows
from streameval.results.auctions import WindowAuctions
from streameval.results.publish import Publisher
from streameval.results.snapshot import Snapshot
from streameval.server.api import tables
from streameval.server.api.answers import answer, rfc3339
from streameval.server.api.queries import AuctionsQuery
from streameval.server.api.schemas import auctions as schemas
from streameval.server.api.tables import CSV
from streameval.server.http.problems import problem_responses, unknown


def router(publisher: Publisher) -> APIRouter:
    """/api/v1/auctions."""
    routes = APIRouter(prefix="/api/v1", tags=["auctions"], responses=problem_responses(404, 422))

    @routes.get(
        "/auctions",
        response_model=schemas.Auctions,
        responses=CSV,
    )
    def get_auctions(request: Request, query: Annotated[AuctionsQuery, Query()]) -> Response:
        """Requests replayed under every version's scores at every operating point; nothing without `[[auction.points]]`."""
        snapshot = publisher.latest()
        found = _matching(snapshot, query)
        skipped = snapshot.events.get("auction_skipped", {})
        return answer(
            request,
            snapshot,
            lambda: {"skipped": dict(skipped), "auctions": _rows(found)},
            table=query.table(tables.auctions),
        )

    return routes


def _matching(snapshot: Snapshot, query: AuctionsQuery) -> list[WindowAuctions]:
    """What the query selects; an unknown name is a 404, unless there are no auctions at all."""
    found = list(snapshot.auctions)
    for kind, value in (("window", query.window), ("model", query.model)):
        names = list(dict.fromkeys(_name(one, kind) for one in found))
        if value is not None and found:
            if value not in names:
                raise unknown(kind, value, names)
            found = [one for one in found if _name(one, kind) == value]
    return found


def _name(one: WindowAuctions, kind: str) -> str:
    return one.window if kind == "window" else one.series[0].model


def _rows(found: Sequence[WindowAuctions]) -> list[dict[str, Any]]:
    return [
        {
            "window": one.window,
            "window_start": rfc3339(one.start),
            "window_end": rfc3339(one.end),
            "matched_to": one.series[one.reference].version,
            **row,
        }
        for one in found
        for row in rows(one.frontier(), one.series, one.settings.points)
    ]
