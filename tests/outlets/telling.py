"""A process that tells of changes, to be killed: `python -m tests.outlets.telling STORE URL_FILE CHANGES`.

It sees one more change with every snapshot, as a monitor that counts again from its last checkpoint does: always from the first.
"""

from __future__ import annotations

import sys
import time
from dataclasses import replace
from pathlib import Path

from streameval.compare.reading.reading import Comparison, VerdictChange
from streameval.outlets.notify.notifier import Notifier
from streameval.outlets.notify.receivers import make_receiver
from streameval.results.snapshot import Snapshot, empty_snapshot
from streameval.settings import toml
from streameval.store.outbox import Outbox
from tests.comparisons import NOON, comparison

EVERY = 1_000  # ms of event time between two changes


def story(changes: int) -> tuple[Comparison, ...]:
    """Comparisons with so many changes in all, worse and not worse in turn."""
    told = []
    for number in range(changes):
        verdict, kind = ("worse", "not_worse")[number % 2], "contrary" if number else "verdict"
        told.append(VerdictChange(NOON + number * EVERY, kind, verdict, f"change {number}"))  # type: ignore[arg-type]
    return (comparison(changes=tuple(told), verdict="worse" if changes % 2 else "not_worse"),)


def seen(changes: int) -> Snapshot:
    """The snapshot after so many changes."""
    return replace(empty_snapshot(time.time()), number=changes + 1, whole=True, comparisons=story(changes))


def main(store: Path, url_file: Path, changes: int) -> None:
    settings = toml.validate({"notify": [{"kind": "webhook", "url_file": str(url_file)}]})
    notifier = Notifier([make_receiver(one) for one in settings.notify], Outbox(store), "")
    notifier.start()
    print("ready", flush=True)
    for number in range(1, changes + 1):
        notifier.see(seen(number))
        time.sleep(0.02)
    while notifier.states()[0].waiting:
        time.sleep(0.02)
    print("told", flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]))
