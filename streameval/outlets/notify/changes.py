"""Detects changes of verdicts in a snapshot, with keys that depend on the event stream alone.

A comparison carries the changes of its verdict, in checkpoints too, so a change is found in every later snapshot, also
by a process that starts after a kill: remembering the keys is enough to send each change once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from streameval.compare.reading.as_json import finite
from streameval.compare.reading.choice import serves_nobody
from streameval.compare.reading.handling import comparison_key
from streameval.compare.reading.notified import change_key
from streameval.compare.reading.reading import Comparison, VerdictChange
from streameval.compare.reading.words import clock_time, headline, reason_words
from streameval.results.snapshot import Snapshot
from streameval.settings.outlets import NotifyOn


@dataclass(frozen=True, slots=True)
class Change:
    """One change to send. `at`: event time in ms; for missing data, wall clock."""

    key: str
    kind: NotifyOn
    at: int
    model: str
    text: str
    quiet: bool = False  # of a version that serves nobody: recorded, and nobody is notified
    ends: str = (
        ""  # the key of the change that it ends; whoever was notified of that must hear of this, even if it is quiet
    )
    comparison: str = ""  # its key
    incident: str = ""  # what changes of the same thing have in common, so that one can resolve another
    after: int | None = None  # no_data: ms without data, for those who asked for so many
    more: Mapping[str, Any] = field(default_factory=dict)  # of the comparison
    titled: str = ""  # what the title begins with; "": as all of its kind

    def body(self) -> dict[str, Any]:
        """What is kept and sent, without what depends on the receiver."""
        told = {"kind": self.kind, "model": self.model, "at": self.at, "text": self.text}
        return {**told, "titled": self.titled, "incident": self.incident, **self.more}


def verdict_changes(snapshot: Snapshot) -> Iterator[Change]:
    """Every change that the comparisons on record have had, oldest first in each."""
    now = snapshot.taken_ms
    for c in snapshot.comparisons:
        key = comparison_key(c)
        begun: dict[str, str] = {}  # by incident: the key of the change that began it
        for change, kind in zip(c.changes, kinds(c), strict=True):
            if kind is not None:
                yield _change(c, key, change_key(key, change), kind, change, begun, now)
        if c.verdict == "worse" and c.supported_now is False and c.looked is not None:  # stands, but no longer shown
            said = VerdictChange(c.looked, "contrary", "worse", "current data no longer support the verdict")
            yield _change(c, key, f"{key}-{c.decided_at}-unsupported", "recovered", said, begun, now)


def kinds(c: Comparison) -> list[NotifyOn | None]:
    """The message of each of its changes."""
    before = ["undecided", *(change.verdict for change in c.changes)]
    return [_kind(change, was) for change, was in zip(c.changes, before, strict=False)]


def _kind(change: VerdictChange, was: str) -> NotifyOn | None:
    """The message of a change; None: there is nothing to send."""
    if change.kind == "withheld":
        return "withheld"
    if change.kind == "restored":
        return "recovered"
    if change.kind == "anew":
        return None
    if change.verdict == was and change.kind == "contrary":  # it stands; `supported_now` says more, and earlier
        return None
    if was == "worse" and change.verdict != "worse":
        return "recovered"
    if change.kind == "retracted":
        return "withheld"
    return None if change.verdict == "undecided" else change.verdict


def _change(
    c: Comparison, comparison: str, key: str, kind: NotifyOn, change: VerdictChange, begun: dict[str, str], now: int
) -> Change:
    on = c.decided_on
    more = {
        "comparison": c.id,
        "candidate": c.candidate.version,
        "baseline": c.baseline.version,
        "setup": c.setup,
        "verdict": c.verdict,
        "warning_only": c.setup == "before_after",
        "change": reason_words(change.text),
        "decided_on": None if on is None else on.metric,
        **{name: None if on is None else finite(getattr(on.then, name)) for name in ("difference", "lower", "upper")},
        "impressions": c.impressions,
        "clicks": c.clicks,
    }
    incident = f"{comparison}-labels" if change.kind in ("withheld", "restored") else comparison
    ends = ""
    if kind in ("worse", "withheld"):
        begun[incident] = key
    else:
        ends = begun.pop(incident, "")
    return Change(
        key,
        kind,
        change.at,
        c.candidate.model,
        _text(c, kind, change, now),
        quiet=_is_quiet(c, kind),
        ends=ends,
        comparison=comparison,
        incident=incident,
        more=more,
        titled="Labels reliable again" if change.kind == "restored" else "",  # "Recovered" would be said of the version
    )


def _is_quiet(c: Comparison, kind: NotifyOn) -> bool:
    """Whether nobody needs to know. What a retired version has served may still be judged, since labels come late; whether its
    labels are reliable later on is no news.
    """
    role = c.roles[1]
    gone = role is not None and role.name == "retired"
    return serves_nobody(c) or (gone and kind in ("withheld", "recovered"))


def _text(c: Comparison, kind: NotifyOn, change: VerdictChange, now: int) -> str:
    text = headline(c, now)
    if kind == c.verdict:
        return text
    # it describes another state than the words do
    said = f"{reason_words(change.text)} ({clock_time(change.at, now)})"
    stands = c.verdict != "undecided" and change.verdict == c.verdict and c.supported_now is not False
    if change.kind == "restored" and stands and not c.withheld:
        return f"{said}; the verdict stands: {text}"
    if change.kind == "withheld" and c.withheld:
        until = f"{said}: no new verdict until labels are reliable again"
        return f"{until}; the last one stands: {text}" if stands else f"{until}. Now: {text}"
    return f"{said}. Now: {text}"
