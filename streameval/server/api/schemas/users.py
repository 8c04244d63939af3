"""Answers about users."""

from __future__ import annotations

from streameval.server.api.schemas.shape import Named, Shape, Stamped


class UserRow(Shape):
    """One user; `user` is the stable hash of the user id, 16 hex digits."""

    user: str
    impressions: int
    clicks: int
    predicted_clicks: float
    ctr: float | None
    mean_pclick: float | None
    auc: float | None
    log_loss: float | None
    log_loss_nats: float
    calibration: float | None
    reasons: dict[str, str]


class Users(Stamped, Named):
    """A page of users; `next` is the link to the next page, null on the last."""

    sort: str
    order: str
    total: int
    users_sampled: float
    users: list[UserRow]
    next: str | None


class UserQuantile(Shape):
    """Below `value` is a fraction `quantile` of the users."""

    quantile: float
    value: float


class UserDistribution(Stamped, Named):
    """How a metric of single users is distributed: bin i has those in [edges[i], edges[i + 1]), the last one closed.

    `users_undefined`, those without a value, are among `users_total` and in no bin. `users_sampled`: the fraction of
    users that is kept.
    """

    metric: str
    edges: list[float]
    users: list[int]
    impressions: list[int]
    quantiles: list[UserQuantile]
    users_total: int
    users_undefined: int
    users_sampled: float


class UserInSeries(UserRow, Named):
    """One user as one series scored it."""


class User(Stamped):
    """One user in every series that kept it."""

    user: str
    series: list[UserInSeries]
