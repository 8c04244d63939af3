"""Which comparison represents a deploy, and which deploy a model."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from streameval.compare.reading.reading import SETUPS, VERDICTS, Comparison, Deploy
from streameval.events.durations import HOUR

AWAITED = HOUR  # ms of event time for which an announced version stands for its model before its traffic has come


def newest_first(deploys: Iterable[Deploy]) -> list[Deploy]:
    """Returns deploys sorted by time, newest first; if two have the same time, the one that became known last comes
    first.
    """
    return sorted(deploys, key=lambda d: (d.at, int(d.id) if d.id.isdecimal() else -1), reverse=True)


def serves_nobody(comparison: Comparison) -> bool:
    """Whether the candidate only scores in shadow: worth knowing, but no reason for an alarm."""
    role = comparison.roles[1]
    return role is not None and role.name in ("shadow", "learning")


def begun(deploys: Sequence[Deploy], comparisons: Sequence[Comparison], comparison: Comparison) -> int:
    """Returns when the candidate's deploy began, in ms; for one that serves nobody, when it was first compared with any
    version.
    """
    if serves_nobody(comparison):
        return min((c.start for c in comparisons if c.candidate == comparison.candidate), default=comparison.start)
    return next((d.at for d in deploys if d.id == comparison.deploy), comparison.start)


def _is_over(comparison: Comparison) -> bool:
    """Whether it gets no more data: a side of `split` no longer serves, or one of `paired` no longer scores.

    Never of `before_after`, which goes on without its baseline; nor where the roles are not known.
    """
    names = [role.name for role in comparison.roles if role is not None]
    if comparison.setup == "split":
        return any(name != "live" for name in names)
    return comparison.setup == "paired" and "retired" in names


def best(comparisons: Iterable[Comparison]) -> Comparison | None:
    """Returns the most reliable one: evidence floors met before not met, then by setup, then the newest.

    One that is over says nothing of the time since, unless it has found `worse`: it comes behind those that get data,
    and together with `before_after` by verdict, so that a warning is seen, and a certificate stands until there is one.
    """
    return min(comparisons, key=_rank, default=None)


def _is_worse_live(comparison: Comparison) -> bool:
    role = comparison.roles[1]
    return comparison.verdict == "worse" and role is not None and role.name == "live"


def _rank(c: Comparison) -> tuple[bool, bool, int, int, int]:
    thin = not c.floors_met and c.verdict == "undecided"
    behind = c.setup == "before_after" or (c.verdict != "worse" and _is_over(c))
    return thin, behind, VERDICTS.index(c.verdict) if behind else 0, SETUPS.index(c.setup), -c.start


def deploy_and_comparison(
    deploys: Sequence[Deploy], comparisons: Sequence[Comparison], model: str, candidate: str | None = None
) -> tuple[Deploy | None, Comparison | None]:
    """Returns the newest deploy of a model (of the version `candidate`, if given) and its best comparison.

    Without `candidate`, versions that only score in shadow and online models do not count as long as there is another
    deploy. A deploy without comparisons yet gets None: an older deploy's verdict says nothing about it. But one that was
    announced, and has no traffic, does not hide that the version which serves is worse, and after `AWAITED` nothing else
    either. A comparison whose deploy is no longer on record counts only when no deploy is on record.
    """
    mine = [c for c in comparisons if c.candidate.model == model and candidate in (None, c.candidate.version)]
    known = newest_first(d for d in deploys if d.model == model and candidate in (None, d.version))
    if candidate is None:
        known.sort(key=lambda d: d.kind == "shadow")
    if known:
        newest, serving = known[0], next((d for d in known if d.noticed is not None and d.kind != "shadow"), None)
        if candidate is None and newest.noticed is None and serving is not None:
            found = best(c for c in comparisons if c.deploy == serving.id)
            if found is not None and (_is_worse_live(found) or (found.looked or 0) > newest.at + AWAITED):
                return serving, found
        return newest, best(c for c in comparisons if c.deploy == newest.id)
    last = max(mine, key=lambda c: c.start, default=None)
    return None, last and best(c for c in mine if c.deploy == last.deploy)


def worse_live(
    deploys: Sequence[Deploy], comparisons: Sequence[Comparison], most: int = 20
) -> dict[str, list[Comparison]]:
    """Returns the comparisons of live versions that are `worse`, by model, up to `most` models: a newer deploy says
    nothing about an older version that goes on serving.

    A version has one, the best of its newest deploy. Those that current data support come first, then the latest decision.
    """
    names = dict.fromkeys((c.candidate.model, c.candidate.version) for c in comparisons if _is_worse_live(c))
    found: dict[str, list[Comparison]] = {}
    for model, version in names:
        chosen = deploy_and_comparison(deploys, comparisons, model, version)[1]
        if chosen is not None and chosen.verdict == "worse":
            found.setdefault(model, []).append(chosen)
    for own in found.values():
        own.sort(key=lambda c: (c.supported_now is False, -(c.decided_at or 0), c.id))
    return dict(list(found.items())[:most])


def headlines(deploys: Sequence[Deploy], comparisons: Sequence[Comparison], most: int = 20) -> list[Comparison]:
    """Returns what to say first: the comparison of each model, up to `most` of them.

    Versions that serve come before those that serve nobody, and `worse` before other verdicts.
    """
    models = dict.fromkeys([*(d.model for d in newest_first(deploys)), *(c.candidate.model for c in comparisons)])
    found = [c for model in models if (c := deploy_and_comparison(deploys, comparisons, model)[1]) is not None]
    order = ("worse", "undecided", "not_worse")
    return sorted(found, key=lambda c: (serves_nobody(c), order.index(c.verdict)))[:most]
