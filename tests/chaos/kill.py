"""Kill: a replay through a real Kafka, killed again and again, ends with the report of an undisturbed one.

    python -m tests.chaos.kill [--kills 200] [--impressions 200000] [--seed 1]

Two streams: logged models on two partitions and two topics, with clicks that come later than they can be corrected, and
online models on one partition. A monitor reads each while it is written and gets SIGKILL at random moments: while it starts,
restores, counts, and (every third time) in the middle of writing a checkpoint. What comes between two kills is written when
the first has been survived, because a monitor reads a whole stream faster than it can be killed twice. Another reads it once
in peace. The one of two topics is also read in peace as it is written, and by the other client. All but the one whose report
is the truth keep rows on disk. The reports must be equal, with everything in them, and so must every row of the histories.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import shutil
import sys
import threading
import time
import uuid
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from streameval.simulate.encode import Message, events
from streameval.simulate.traffic import Traffic
from tests.chaos.fleet import (
    PATIENCE_S,
    Stream,
    Unexpected,
    Worker,
    compare,
    history,
    kafka,
    late_wire,
    scenario,
    until,
    workplace,
)


class Gate:
    """Lets a stream be written up to a message."""

    def __init__(self, messages: Iterable[Message]) -> None:
        self.messages = list(messages)
        self._open = 0

    def open(self, share: float) -> int:
        """Lets that share of the messages through; how many that is."""
        self._open = max(self._open, math.ceil(share * len(self.messages)))
        return self._open

    def through(self, _: Iterator[Message]) -> Iterator[Message]:
        """The messages, each once the gate is open for it."""
        for number, message in enumerate(self.messages):
            while number >= self._open:
                time.sleep(0.01)
            yield message


def finish(worker: Worker, stream: Stream) -> tuple[dict[str, Any], dict[tuple[Any, ...], Any]]:
    """Lets a worker read to the end of the stream and stops it: its report, and its history."""
    until("everything is read", lambda: worker.read() >= stream.sent, [worker])
    until("the last pane is written", lambda: _written(worker), [worker])
    worker.stop()
    return json.loads(worker.report.read_text()), history(worker.store)


def _written(worker: Worker) -> bool:
    status = worker.get("/api/v1/status")
    return (
        status is not None and bool(status["history"]) and status["history"]["unwritten"] <= len(status["partitions"])
    )


def disturb(worker: Worker, gate: Gate, kills: int, luck: random.Random) -> dict[str, int]:
    """Kills a worker `kills` times before everything is written; how often in which situation."""
    seen = {"starting": 0, "counting": 0, "writing a checkpoint": 0, "having rows on disk": 0}
    worker.start()
    for number in range(kills):
        goal = gate.open((number + luck.random()) / (kills + 1))
        if luck.random() < 0.2:
            time.sleep(luck.uniform(0.0, 3.0))
            situation = "starting"
        else:
            until("it reads on", lambda goal=goal: worker.read() >= goal, [worker], pause=0.05)  # type: ignore[misc]
            gate.open((number + 1) / (kills + 1))  # so that it has something to do
            situation = "counting"
            if number % 3 == 0 and _caught_writing(worker):
                situation = "writing a checkpoint"
            else:
                time.sleep(luck.uniform(0.0, 0.3))
        worker.kill()
        seen[situation] += 1
        seen["having rows on disk"] += any(worker.store.glob("checkpoints/*/rows-*"))
        worker.start()
    gate.open(1.0)
    return seen


def _caught_writing(worker: Worker) -> bool:
    """Whether there is half a checkpoint on the disk, now; waits for it a while."""
    deadline = time.monotonic() + 3.0
    while time.monotonic() < deadline and worker.running:
        if any(worker.store.glob("checkpoints/*/*.partial")):
            return True
        time.sleep(0.0005)  # a checkpoint takes milliseconds, and the worker wants the processor
    return False


def play(servers: str, folder: Path, kills: int, impressions: int, seed: int, online: bool) -> None:
    """One stream, disturbed and in peace."""
    name = f"kill-{uuid.uuid4().hex[:8]}"
    stream = Stream(servers, name, partitions=1 if online else 2, shared=online)
    stream.create()
    # a static member gets its partitions back at once; a new one waits until the group has given up the dead one
    member = f'"group.instance.id" = "{name}"\n"session.timeout.ms" = 6000'
    # snapshots say how far it has read, so they are as frequent as the kills' moments are to differ
    what = {"models": online, "batch": 1 if online else 2_000, "options": member, "snapshots": "200ms"}

    def reader(kind: str, **other: Any) -> Worker:
        place = folder / f"{name}-{kind}"
        return Worker(stream, place, place / "store", group=f"{name}-{kind}", **(what | other))

    of = scenario(impressions)
    gate = Gate(events(Traffic(of)) if online else late_wire(events(Traffic(of))))
    writing = threading.Thread(target=stream.fill, args=(of,), kwargs={"wire": gate.through}, daemon=True)
    writing.start()
    killed, live, truth = reader("killed"), reader("live"), reader("truth", segment_rows=0)
    if not online:  # what online models learn depends on how they were read
        live.start()
    begin = time.monotonic()
    seen = disturb(killed, gate, kills, random.Random(seed))
    if not online and not seen["having rows on disk"]:
        raise Unexpected("no rows went to the disk")
    how = ", ".join(f"{n} while {situation}" for situation, n in seen.items())
    print(f"killed {kills} times in {time.monotonic() - begin:.0f} s ({how})", flush=True)
    writing.join(PATIENCE_S)
    found = {"was killed": finish(killed, stream)}
    truth.start()
    report, rows = finish(truth, stream)
    whole = sum(r["impressions"] for r in report["results"] if r["window"] == "all" and r["slice"] is None)
    print(f"undisturbed: {stream.sent:,} messages, {whole:,} scores, {len(rows):,} rows of history", flush=True)
    if not whole or not rows:
        raise Unexpected("the undisturbed run has counted nothing")
    if not online:
        _has_everything(report)
        found["read live"] = finish(live, stream)
        other = reader("other", client="kafka-python", batch=700, options="")
        other.start()
        found["read by kafka-python"] = finish(other, stream)
    for which, (its_report, its_rows) in found.items():
        compare(f"the report of the one that {which}", its_report, report)
        compare(f"the history of the one that {which}", its_rows, rows)
        print(f"the one that {which}: report and history are identical", flush=True)
    shutil.rmtree(killed.folder)


def _has_everything(report: dict[str, Any]) -> None:
    """Raises Unexpected if the stream of two topics was too easy."""
    lacking = [f for f in ("corrected", "unmatched_clicks", "late_impressions") if not report["events"][f]]
    if not any(comparison["since"] for comparison in report["comparisons"]):
        lacking.append("a verdict")
    if lacking:
        raise Unexpected(f"the stream does not try enough, it is without {', '.join(lacking)}")


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--impressions", type=int, default=200_000, help="of the logged stream; a twentieth online")
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    online = max(1, given.kills // 5)
    try:
        with workplace("kill") as folder, kafka(folder / "kafka") as servers:
            play(servers, folder, given.kills - online, given.impressions, given.seed, online=False)
            play(servers, folder, online, given.impressions // 20, given.seed, online=True)
    except Unexpected as error:
        sys.exit(f"NOT identical: {error}")


if __name__ == "__main__":
    main()
