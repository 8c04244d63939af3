"""Which comparison speaks for a deploy, and which deploy for a model."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from streameval.compare.reading import SETUPS, Comparison, Deploy


def newest_first(deploys: Iterable[Deploy]) -> list[Deploy]:
    """By time; of two at the same time, the one that became known last."""
    return sorted(deploys, key=lambda d: (d.at, int(d.id) if d.id.isdecimal() else -1), reverse=True)


def serves_nobody(comparison: Comparison) -> bool:
    """Whether its candidate only scores what others serve: worth knowing, and no reason for alarm."""
    role = comparison.roles[1]
    return role is not None and role.name in ("shadow", "learning")


def best(comparisons: Iterable[Comparison]) -> Comparison | None:
    """The one to believe: with its evidence floors met before one without, then by setup, then the newest."""
    return min(
        comparisons,
        key=lambda c: (not c.floors_met and c.verdict == "undecided", SETUPS.index(c.setup), -c.start),
        default=None,
    )


def speaks_for(
    deploys: Sequence[Deploy], comparisons: Sequence[Comparison], model: str, candidate: str | None = None
) -> tuple[Deploy | None, Comparison | None]:
    """The newest deploy of a model (of the version `candidate`, when that is given) and its best comparison.

    Without `candidate` versions that only score in shadow, and online models, do not count as long as there is a deploy. A
    deploy that nothing is compared for yet has None beside it: an older deploy's verdict says nothing about it. A
    comparison whose deploy is not on record any more counts when no deploy is.
    """
    mine = [c for c in comparisons if c.candidate.model == model and candidate in (None, c.candidate.version)]
    known = newest_first(d for d in deploys if d.model == model and candidate in (None, d.version))
    if candidate is None:
        known.sort(key=lambda d: d.kind == "shadow")
    for deploy in known:
        return deploy, best(c for c in comparisons if c.deploy == deploy.id)
    newest = max(mine, key=lambda c: c.start, default=None)
    return None, newest and best(c for c in mine if c.deploy == newest.deploy)


def headlines(deploys: Sequence[Deploy], comparisons: Sequence[Comparison], most: int = 20) -> list[Comparison]:
    """What to say first: for each model the comparison that speaks for it; at most `most`.

    Of versions that serve before those that serve nobody, and `worse` before all else.
    """
    models = dict.fromkeys([*(d.model for d in newest_first(deploys)), *(c.candidate.model for c in comparisons)])
    found = [c for model in models if (c := speaks_for(deploys, comparisons, model)[1]) is not None]
    order = ("worse", "undecided", "not_worse")
    return sorted(found, key=lambda c: (serves_nobody(c), order.index(c.verdict)))[:most]
