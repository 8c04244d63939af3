"""Comparisons of versions, and the verdict that a gate asks for."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

from fastapi import APIRouter, Path, Query, Request
from starlette.convertors import PathConvertor, register_url_convertor
from starlette.responses import Response

from streameval.compare.reading.as_json import comparison_json, looks_json
from streameval.compare.reading.reading import SETUPS, USER, Comparison
from streameval.results.publish import Publisher
from streameval.results.snapshot import Snapshot
from streameval.server.api import tables
from streameval.server.api.answers import answer, counted, rfc3339
from streameval.server.api.queries import ComparisonQuery, ComparisonsQuery, VerdictQuery
from streameval.server.api.schemas import comparisons as schemas
from streameval.server.api.selection import check_model, one_comparison
from streameval.server.api.tables import CSV
from streameval.server.api.verdicts import verdict_json
from streameval.server.http.access import Access
from streameval.server.http.problems import problem_responses, unknown


class _Name(PathConvertor):
    """A name from an event: as a path, which has slashes, and it may have line breaks, too."""

    regex = r"[\s\S]*"


register_url_convertor("name", _Name())


def router(publisher: Publisher, access: Access) -> APIRouter:
    """/api/v1/comparisons and /api/v1/models/{model}/verdict. Users are named only to clients that may see single users."""
    routes = APIRouter(prefix="/api/v1", tags=["comparisons"], responses=problem_responses(404, 422))

    @routes.get("/comparisons", response_model=schemas.Comparisons, responses=CSV)
    def get_comparisons(request: Request, query: Annotated[ComparisonsQuery, Query()]) -> Response:
        """The comparisons of candidates with what they replaced, newest first, without their looks."""
        snapshot = publisher.latest()
        found = _matching(snapshot, query)
        return answer(
            request,
            snapshot,
            lambda: {
                **counted(len(found), query.limit),
                "comparisons": [
                    comparison_json(_shown(c, request, access), rfc3339, snapshot.taken_ms)
                    for c in found[: query.limit]
                ],
            },
            private=True,
            table=query.table(tables.comparisons),
        )

    @routes.get("/comparisons/{id}", response_model=schemas.ComparisonWithLooks, responses=CSV)
    def get_comparison(
        request: Request,
        id: Annotated[str, Path(min_length=1, max_length=128, description="as listed")],
        query: Annotated[ComparisonQuery, Query()],
    ) -> Response:
        """One comparison, with the e-process and the intervals over time."""
        snapshot = publisher.latest()
        found = one_comparison(snapshot, id)
        return answer(
            request,
            snapshot,
            lambda: {
                **comparison_json(_shown(found, request, access), rfc3339, snapshot.taken_ms),
                "looks": looks_json(found.looks, rfc3339),
            },
            private=True,
            table=query.table(tables.part(query.rows)),
        )

    @routes.get("/models/{model:name}/verdict", response_model=schemas.Verdict)
    def get_verdict(
        request: Request,
        model: Annotated[str, Path(min_length=1, max_length=512, description="model name; it may contain slashes")],
        query: Annotated[VerdictQuery, Query()],
    ) -> Response:
        """The verdict on a model's newest deploy (of `candidate`), flat, for a gate. Undecided until there is one."""
        snapshot = publisher.latest()
        check_model(snapshot, model)
        return answer(request, snapshot, lambda: verdict_json(snapshot, model, query.candidate))

    return routes


def _shown(c: Comparison, request: Request, access: Access) -> Comparison:
    """Without the users that carry the difference, unless the client may see them."""
    if access.may_see_users(request.headers.getlist("authorization")):
        return c
    return replace(c, findings=tuple(f for f in c.findings if f.dimension != USER))


def _matching(snapshot: Snapshot, query: ComparisonsQuery) -> list[Comparison]:
    check_model(snapshot, query.model)
    left = [c for c in snapshot.comparisons if query.model in (None, c.candidate.model)]
    if query.candidate is not None:
        versions = {c.candidate.version for c in left}
        versions |= {d.version for d in snapshot.deploys if query.model in (None, d.model)}
        if query.candidate not in versions:
            raise unknown("candidate", query.candidate, sorted(versions))
        left = [c for c in left if c.candidate.version == query.candidate]
    left = [c for c in left if query.setup in (None, c.setup)]
    return sorted(left, key=lambda c: (-c.start, SETUPS.index(c.setup)))
