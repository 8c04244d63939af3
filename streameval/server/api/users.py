"""Single users. Their ids never leave the program: lists show the stable hash, queries contain the id."""

from __future__ import annotations

import re
from typing import Annotated, Any
from urllib.parse import urlencode

import numpy as np
from fastapi import APIRouter, Path, Query, Request
from starlette.responses import Response

from streameval.events.batch import Series
from streameval.events.hashing import hash_one
from streameval.results.publish import Publisher
from streameval.results.snapshot import Snapshot
from streameval.server.api import tables
from streameval.server.api.answers import answer, series_json
from streameval.server.api.queries import SeriesFilter, UserDistributionQuery, UsersQuery
from streameval.server.api.schemas import users as schemas
from streameval.server.api.selection import matching_series, one_series
from streameval.server.api.tables import CSV
from streameval.server.api.user_distribution import QUANTILES, Distributions
from streameval.server.api.user_pages import page, rows
from streameval.server.http.problems import Problem, problem_responses


def router(publisher: Publisher) -> APIRouter:
    """/api/v1/users and /api/v1/users/{user_id}, for which `access` has asked for the token; /api/v1/user-distribution."""
    distributions = Distributions()
    routes = APIRouter(prefix="/api/v1", tags=["users"], responses=problem_responses(404, 422))

    @routes.get("/users", response_model=schemas.Users, responses=CSV)
    def get_users(request: Request, query: Annotated[UsersQuery, Query()]) -> Response:
        """Users of one series over the whole run, sorted; ties go by hash, undefined values come last."""
        snapshot = publisher.latest()
        series = one_series(snapshot.users, query)
        users, cursor = page(snapshot.users[series], series, query)
        following = None if cursor is None else _next_link(series, query, cursor)
        body = {**_listed(snapshot, series, query), "users": users, "next": following}
        return answer(request, snapshot, lambda: body, private=True, table=query.table(tables.users))

    @routes.get("/user-distribution", response_model=schemas.UserDistribution, responses=CSV)
    def get_distribution(request: Request, query: Annotated[UserDistributionQuery, Query()]) -> Response:
        """How a metric of single users is distributed over the users of one series. No user is named."""
        snapshot = publisher.latest()
        series = one_series(snapshot.users, query)
        return answer(
            request,
            snapshot,
            lambda: _distribution(snapshot, series, query, distributions),
            table=query.table(tables.distribution),
        )

    @routes.get("/users/{user_id:path}", response_model=schemas.User, responses=CSV)
    def get_user(
        request: Request,
        user_id: Annotated[str, Path(min_length=1, max_length=1024, description="the user id, or ~ and its hash")],
        query: Annotated[SeriesFilter, Query()],
    ) -> Response:
        """One user in every matching series. `~` and 16 hex digits address a user by hash, as listed."""
        snapshot = publisher.latest()
        by_hash = re.fullmatch(r"~([0-9a-fA-F]{16})", user_id)
        user = int(by_hash[1], 16) if by_hash else int(hash_one(user_id))
        found = _find(snapshot, user, query)
        if not found:
            raise Problem(
                404,
                f'user = "{user_id[:200]}": not kept in any of the {len(snapshot.users)} series; an id without '
                "impressions is unknown, and past users.memory only a sample of users is kept",
            )
        body = {"user": f"{user:016x}", "series": found}
        return answer(request, snapshot, lambda: body, private=True, table=query.table(tables.one_user))

    return routes


def _listed(snapshot: Snapshot, series: Series, query: UsersQuery) -> dict[str, Any]:
    """What a list of users is of."""
    return {
        **series_json(series),
        "sort": query.sort,
        "order": query.order,
        "total": len(snapshot.users[series]),
        "users_sampled": _sampled(snapshot, series),
    }


def _distribution(
    snapshot: Snapshot, series: Series, query: UserDistributionQuery, distributions: Distributions
) -> dict[str, Any]:
    found = distributions.of(snapshot.users[series], series, query.metric, query.bins)
    return {
        **series_json(series),
        "metric": query.metric,
        "edges": found.edges,
        "users": found.users,
        "impressions": found.impressions,
        "quantiles": [{"quantile": q, "value": v} for q, v in zip(QUANTILES, found.quantiles, strict=False)],
        "users_total": found.total,
        "users_undefined": found.undefined,
        "users_sampled": _sampled(snapshot, series),
    }


def _find(snapshot: Snapshot, user: int, which: SeriesFilter) -> list[dict[str, Any]]:
    found = []
    for series in matching_series(snapshot.users, which):
        users = snapshot.users[series]
        at = int(np.searchsorted(users.user, np.uint64(user)))
        if at < len(users) and int(users.user[at]) == user:
            row = rows(users, np.array([at]))[0]
            found.append({**series_json(series), **row})
    return found


def _sampled(snapshot: Snapshot, series: Series) -> float:
    for result in snapshot.results.overall:
        if result.series == series and result.window == "all":
            return result.users_sampled
    return 1.0


def _next_link(series: Series, query: UsersQuery, cursor: str) -> str:
    named = {name: value for name, value in series_json(series).items() if value is not None}
    parts = {**named, "sort": query.sort, "order": query.order}
    return "/api/v1/users?" + urlencode({**parts, "limit": query.limit, "cursor": cursor}, errors="replace")
