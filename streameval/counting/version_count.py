"""Impressions of a version that came in some stretch of its log, and how many of them were late."""

from __future__ import annotations

from typing import NamedTuple

_MANY = 0.2  # of a version's impressions: fewer late ones are stragglers, more are a producer that lags


class VersionCount(NamedTuple):
    """Of one version. `impressions` includes the late ones."""

    impressions: int = 0
    late: int = 0

    def plus(self, other: VersionCount) -> VersionCount:
        """Both."""
        return VersionCount(self.impressions + other.impressions, self.late + other.late)

    @property
    def is_behind(self) -> bool:
        """Whether so many are late that those in time do not stand for all of them."""
        return self.late > _MANY * self.impressions

    @property
    def serving(self) -> int:
        """Impressions that tell what serves now: stragglers tell what served before."""
        return self.of(self)

    def of(self, some: VersionCount) -> int:
        """The same of some of them."""
        return some.impressions if self.is_behind else some.impressions - some.late


NOTHING_CAME = VersionCount()
