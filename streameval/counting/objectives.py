"""Objectives: additional labels, by which the scores of some versions are counted a second time.

An impression is positive for an objective if it was clicked and the value of the click is at least the threshold. Its
scores are then counted in further series (`Series.objective`), which have everything that a series has. A later click
may raise the value of an impression above the threshold, so the objective's label changes although the click label does
not: the joiner reports that as a changed row, which is subtracted and counted again.

An objective that is new after a restart, or that has other versions, begins with impressions newer than all that were
read before: a late click on an older one would otherwise subtract what was never counted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streameval.counting.scoreboard import Labelled
from streameval.events.batch import RETIRED, Catalog
from streameval.events.codes import Codes
from streameval.events.columns import Scored, ScoreList
from streameval.events.fields import FIELDS, Field, Join

# The value of a click when its label was due: it shows for every objective whether a label was corrected.
_IN_TIME = replace(FIELDS["value"], name="value_in_time", join=Join.LARGEST_IN_TIME, given_as="value")
_NEVER = -(1 << 62)
_Codes = NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class ObjectiveRule:
    """One objective: clicks with a value of `at_least` are positive, for versions that match one of the patterns."""

    name: str
    at_least: float
    versions: tuple[str, ...]

    def state(self, since: int) -> list[Any]:
        """What identifies it in a checkpoint, and the time of the first impressions that it counts (ms)."""
        return [self.name, self.at_least, list(self.versions), since]


def kept(fields: Sequence[Field]) -> tuple[Field, ...]:
    """Returns the fields that rows keep, `fields` and those of objectives; fields of clicks come first."""
    return (*(f for f in fields if f.join is not None), _IN_TIME, *(f for f in fields if f.join is None))


class Objectives:
    """Which scores count for which objective, and under which codes. One per partition."""

    def __init__(self, rules: Sequence[ObjectiveRule], catalog: Catalog) -> None:
        self._rules = tuple(rules)
        self._catalog = catalog
        self._changes = -1  # of the catalog, at the last update
        self._codes: list[_Codes] = []
        self._since = [_NEVER] * len(self._rules)  # by rule: only impressions from this time on count, ms

    def state(self) -> list[Any]:
        """For `restore`."""
        return [rule.state(since) for rule, since in zip(self._rules, self._since, strict=True)]

    def restore(self, saved: Sequence[Sequence[Any]] | None, newest: int, codes: Codes) -> None:
        """Restores what `state` returned; other objectives begin after `newest`, the time of the newest event.

        Without `saved`, as in older checkpoints, those that have series count all impressions.
        """
        if saved is None:
            names = {self._catalog.series[code].objective for code in codes.series}
            saved = [rule.state(_NEVER) for rule in self._rules if rule.name in names]
        for number, rule in enumerate(self._rules):
            before = (one[-1] for one in saved if list(one) == rule.state(one[-1]))
            self._since[number] = next(before, newest + 1)

    def codes(self) -> list[_Codes]:
        """Returns, by objective and plain series, the code that it counts under, or -1. Called by the loop's thread."""
        if self._changes != self._catalog.changes:
            plain = [(code, one) for code, one in enumerate(self._catalog.series) if not one.objective]
            self._codes = [np.full(len(self._catalog.series), -1, np.int32) for _ in self._rules]
            for rule, codes in zip(self._rules, self._codes, strict=True):
                for code, series in plain:
                    if series != RETIRED and any(fnmatchcase(series.version, one) for one in rule.versions):
                        codes[code] = self._catalog.objective_code(code, rule.name)
            self._changes = self._catalog.changes
        return self._codes

    def of(self, labelled: Labelled, scored: Scored, codes: Sequence[_Codes]) -> list[tuple[Labelled, Scored]]:
        """Returns the same impressions with the label of each objective, and the scores that count for it. `codes`:
        from `codes`.
        """
        out = []
        for rule, code, since in zip(self._rules, codes, self._since, strict=True):
            new = None if since == _NEVER else labelled.ts >= since
            some = _counted_as(scored, code, new)
            policies = None if labelled.policies is None else _policies_as(labelled.policies, code, new)
            # a version may have policies and, for these impressions, no scores
            if some.series.size or (policies is not None and policies.series.size):
                value = labelled.fields["value"]
                label = (labelled.label == 1) & (value >= rule.at_least)
                late = label & (labelled.fields.get(_IN_TIME.name, value) < rule.at_least)
                out.append((replace(labelled, label=label.astype(np.int8), corrected=late, policies=policies), some))
        return out


def _policies_as(policies: ScoreList, codes: _Codes, new: NDArray[np.bool_] | None) -> ScoreList:
    series = codes[policies.series]
    on = _on(series, policies.row, new)
    return ScoreList(policies.row[on], series[on], policies.p[on])


def _on(series: _Codes, row: NDArray[Any], new: NDArray[np.bool_] | None) -> NDArray[np.bool_]:
    return series >= 0 if new is None else (series >= 0) & new[row]


def _counted_as(scored: Scored, codes: _Codes, new: NDArray[np.bool_] | None) -> Scored:
    """Returns the scores of the series that have a code there, under that code; of `new` rows only, if given."""
    series = codes[scored.series]
    on = _on(series, scored.row, new)
    if on.all():
        return replace(scored, series=series)
    before = np.concatenate((np.zeros(1, np.int64), np.cumsum(on)))
    bounds = tuple(before[list(scored.bounds)].tolist())
    return Scored(bounds, scored.row[on], series[on], scored.p[on], scored.violation[on])
