"""Prints the tables: `python -m benchmarks [name ...]`, or `python -m benchmarks detection nulls|power|laws ...`."""

from __future__ import annotations

import sys

from benchmarks import (
    auctions,
    checkpoint,
    compare,
    exposure,
    face,
    formats,
    history,
    kafka,
    memory,
    pipeline,
    questions,
    ranking,
    serving,
    snapshot,
    startup,
)
from benchmarks.detection import command

ALL = {
    "pipeline": pipeline.main,
    "memory": memory.main,
    "serving": serving.main,
    "snapshot": snapshot.main,
    "questions": questions.main,
    "history": history.main,
    "startup": startup.main,
    "checkpoint": checkpoint.main,
    "kafka": kafka.main,
    "compare": compare.main,
    "ranking": ranking.main,
    "auctions": auctions.main,
    "exposure": exposure.main,
    "face": face.main,
    "formats": formats.main,
}


def main() -> None:
    """Runs the benchmarks that were named."""
    if sys.argv[1:2] == ["detection"]:
        command.main(sys.argv[2:])
        return
    names = sys.argv[1:] or list(ALL)
    for name in names:
        if name not in ALL:
            sys.exit(f"unknown benchmark {name!r}; there are {', '.join(ALL)}")
        print(f"\n== {name}")
        ALL[name]()


main()
