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
    quiet: bool = False  # a version that serves nobody: recorded, and nobody is notified
    comparison: str = ""  # its key
    incident: str = ""  # what changes of the same thing have in common, so that one can resolve another
    after: int | None = None  # no_data: ms without data, for those who asked for so many
    more: Mapping[str, Any] = field(default_factory=dict)  # of the comparison

    def body(self) -> dict[str, Any]:
        """What is kept and sent, without what depends on the receiver."""
        told = {"kind": self.kind, "model": self.model, "at": self.at, "text": self.text}
        return {**told, "incident": self.incident, **self.more}


def verdict_changes(snapshot: Snapshot) -> Iterator[Change]:
    """Every change that the comparisons on record have had, oldest first in each."""
    for c in snapshot.comparisons:
        key = comparison_key(c)
        for change, kind in zip(c.changes, kinds(c), strict=True):
            if kind is not None:
                yield _change(c, key, change_key(key, change), kind, change)
        if c.verdict == "worse" and c.supported_now is False and c.looked is not None:  # stands, but no longer shown
            said = VerdictChange(c.looked, "contrary", "worse", "current data no longer support the verdict")
            yield _change(c, key, f"{key}-{c.decided_at}-unsupported", "recovered", said)


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


def _change(c: Comparison, comparison: str, key: str, kind: NotifyOn, change: VerdictChange) -> Change:
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
    text = headline(c)
    if kind != c.verdict:  # it describes another state than the words do
        text = f"{reason_words(change.text)} ({clock_time(change.at, c.looked)}). Now: {text}"
    incident = f"{comparison}-labels" if change.kind in ("withheld", "restored") else comparison
    return Change(
        key, kind, change.at, c.candidate.model, text, serves_nobody(c), comparison, incident=incident, more=more
    )
