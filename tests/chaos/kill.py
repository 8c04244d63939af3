"""Kill: a replay through a real Kafka, killed again and again, ends with the report of an undisturbed one.

    python -m tests.chaos.kill [--kills 200] [--impressions 200000] [--seed 1]

Two streams: logged models on two partitions and two topics, with clicks that come later than they can be corrected, and
online models on one partition. Each is read once in peace, and once by a monitor that gets SIGKILL at random moments: while
it starts, restores, counts, and (every third time) in the middle of writing a checkpoint. The one of two topics is also read
live, as it is written, and in peace by the other client. All but the first keep rows on disk. The reports must be equal, with
everything in them, and so must every row of the histories.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import sys
import time
import uuid
from pathlib import Path
from typing import Any

from tests.chaos.fleet import (
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

LIVE_SPEED = 20.0  # seconds of event time a second, at which the stream of two topics is written


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


def disturb(worker: Worker, stream: Stream, kills: int, luck: random.Random) -> dict[str, int]:
    """Kills a worker `kills` times before it has read everything; how often in which situation."""
    seen = {"starting": 0, "counting": 0, "writing a checkpoint": 0, "having rows on disk": 0}
    worker.start()
    for number in range(kills):
        goal = stream.sent * (number + luck.random()) / (kills + 1)
        if luck.random() < 0.2:
            time.sleep(luck.uniform(0.0, 3.0))
            situation = "starting"
        else:
            until("it reads on", lambda goal=goal: worker.read() >= goal, [worker], pause=0.05)  # type: ignore[misc]
            situation = "counting"
            if number % 3 == 0 and _caught_writing(worker):
                situation = "writing a checkpoint"
            else:
                time.sleep(luck.uniform(0.0, 0.3))
        worker.kill()
        seen[situation] += 1
        seen["having rows on disk"] += any(worker.store.glob("checkpoints/*/rows-*"))
        worker.start()
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
    """One stream, in peace and disturbed."""
    name = f"kill-{uuid.uuid4().hex[:8]}"
    stream = Stream(servers, name, partitions=1 if online else 2, shared=online)
    stream.create()
    # a static member gets its partitions back at once; a new one waits until the group has given up the dead one
    member = f'"group.instance.id" = "{name}"\n"session.timeout.ms" = 6000'
    # snapshots say how far it has read, so they are as frequent as the kills' moments are to differ
    what = {"models": online, "batch": 1 if online else 2_000, "options": member, "snapshots": "200ms"}
    live = Worker(stream, folder / f"{name}-live", folder / f"{name}-live" / "store", group=f"{name}-live", **what)
    if online:  # what they learn depends on how it was read
        stream.fill(scenario(impressions))
    else:
        live.start()
        until("its page is there", lambda: live.get("/api/v1/status") is not None, [live])
        stream.fill(scenario(impressions), speed=lambda: LIVE_SPEED, wire=late_wire)
    truth = Worker(stream, folder / f"{name}-truth", folder / f"{name}-truth" / "store", segment_rows=0, **what)
    begin = time.monotonic()
    truth.start()
    report, rows = finish(truth, stream)
    whole = sum(r["impressions"] for r in report["results"] if r["window"] == "all" and r["slice"] is None)
    print(
        f"undisturbed: {stream.sent:,} messages, {whole:,} scores, {len(rows):,} rows of history "
        f"in {time.monotonic() - begin:.0f} s",
        flush=True,
    )
    if not whole or not rows:
        raise Unexpected("the undisturbed run has counted nothing")
    if not online:
        events = report["events"]
        lacking = [f for f in ("corrected", "unmatched_clicks", "late_impressions") if not events[f]]
        if not any(comparison["since"] for comparison in report["comparisons"]):
            lacking.append("a verdict")
        if lacking:
            raise Unexpected(f"the stream does not try enough, it is without {', '.join(lacking)}")
        found, found_rows = finish(live, stream)
        compare("the report of the one that read live", found, report)
        compare("the history of the one that read live", found_rows, rows)
        other = Worker(stream, folder / f"{name}-other", folder / f"{name}-other" / "store", group=f"{name}-other")
        other.client, other.batch = "kafka-python", 700
        other.start()
        found, found_rows = finish(other, stream)
        compare("the report by kafka-python", found, report)
        compare("the history by kafka-python", found_rows, rows)
        print("read live, and by kafka-python: report and history are identical", flush=True)
    worker = Worker(stream, folder / name, folder / name / "store", **what)
    begin = time.monotonic()
    seen = disturb(worker, stream, kills, random.Random(seed))
    if not online and not seen["having rows on disk"]:
        raise Unexpected("no rows went to the disk")
    found, found_rows = finish(worker, stream)
    compare("the report", found, report)
    compare("the history", found_rows, rows)
    how = ", ".join(f"{n} while {situation}" for situation, n in seen.items())
    print(
        f"killed {kills} times in {time.monotonic() - begin:.0f} s ({how}): report and history are identical",
        flush=True,
    )
    shutil.rmtree(folder / name)


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
