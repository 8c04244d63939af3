"""Which comparison represents a deploy, and which deploy a model."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from streameval.compare.reading.reading import SETUPS, Comparison, Deploy


def newest_first(deploys: Iterable[Deploy]) -> list[Deploy]:
    """By time; of two at the same time, the one that became known last."""
    return sorted(deploys, key=lambda d: (d.at, int(d.id) if d.id.isdecimal() else -1), reverse=True)


def serves_nobody(comparison: Comparison) -> bool:
    """Whether its candidate only scores in shadow: worth knowing, but no reason for an alarm."""
    role = comparison.roles[1]
    return role is not None and role.name in ("shadow", "learning")


def begun(deploys: Sequence[Deploy], comparisons: Sequence[Comparison], comparison: Comparison) -> int:
    """When the deploy of its candidate began, ms; of one that serves nobody, since when it has been compared with any version."""
    if serves_nobody(comparison):
        return min((c.start for c in comparisons if c.candidate == comparison.candidate), default=comparison.start)
    return next((d.at for d in deploys if d.id == comparison.deploy), comparison.start)


def best(comparisons: Iterable[Comparison]) -> Comparison | None:
    """The one to trust: with its evidence floors met before one without, then by setup, then the newest."""
    return min(
        comparisons,
        key=lambda c: (not c.floors_met and c.verdict == "undecided", SETUPS.index(c.setup), -c.start),
        default=None,
    )


def deploy_and_comparison(
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
    """What to say first: for each model its comparison; at most `most`.

    Of versions that serve before those that serve nobody, and `worse` before all else.
    """
    models = dict.fromkeys([*(d.model for d in newest_first(deploys)), *(c.candidate.model for c in comparisons)])
    found = [c for model in models if (c := deploy_and_comparison(deploys, comparisons, model)[1]) is not None]
    order = ("worse", "undecided", "not_worse")
    return sorted(found, key=lambda c: (serves_nobody(c), order.index(c.verdict)))[:most]
