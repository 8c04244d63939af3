"""Prints the tables: `python -m benchmarks [name ...]`.

Or `python -m benchmarks detection nulls|power|laws ...`, `python -m benchmarks against BASE name ...`, `record name ...` or `plot`.
"""

from __future__ import annotations

import sys

from streameval.process.memory import settle
from streameval.process.quick_sort import choose_sort
from streameval.process.start import quick_imports, take_short_turns

# all of it as `streameval run` does
choose_sort()  # before NumPy is imported
settle()
take_short_turns()
with quick_imports():
    from benchmarks import (
        against,
        auctions,
        checkpoint,
        cliffs,
        cold,
        compare,
        exposure,
        face,
        formats,
        history,
        kafka,
        live,
        memory,
        partitions,
        pipeline,
        questions,
        ranking,
        record,
        rivals,
        sampling,
        scaling,
        serving,
        snapshot,
        stages,
        startup,
    )
    from benchmarks.detection import command

ALL = {
    "pipeline": pipeline.main,
    "stages": stages.main,
    "rivals": rivals.main,
    "scaling": scaling.main,
    "memory": memory.main,
    "serving": serving.main,
    "snapshot": snapshot.main,
    "live": live.main,
    "questions": questions.main,
    "history": history.main,
    "startup": startup.main,
    "checkpoint": checkpoint.main,
    "cold": cold.main,
    "kafka": kafka.main,
    "partitions": partitions.main,
    "cliffs": cliffs.main,
    "compare": compare.main,
    "ranking": ranking.main,
    "auctions": auctions.main,
    "exposure": exposure.main,
    "sampling": sampling.main,
    "face": face.main,
    "formats": formats.main,
}


def main() -> None:
    """Runs the named benchmarks, or all."""
    if sys.argv[1:2] == ["detection"]:
        command.main(sys.argv[2:])
        return
    if sys.argv[1:2] == ["against"]:
        against.main(sys.argv[2:])
        return
    if sys.argv[1:2] == ["record"]:
        record.main(sys.argv[2:])
        return
    if sys.argv[1:] == ["plot"]:
        record.plot()
        return
    names = sys.argv[1:] or list(ALL)
    for name in names:
        if name not in ALL:
            sys.exit(f"unknown benchmark {name!r}; there are {', '.join(ALL)}")
    print(f"On {record.machine()}")
    for name in names:
        print(f"\n== {name}")
        ALL[name]()


if __name__ == "__main__":  # importing it must not run them all
    main()
