"""Faults: the broker, the disk, the clock or a checkpoint fails while the monitor reads; nothing is lost or repeated.

    python -m tests.chaos.faults [NAME ...] [--outage 60] [--seed 1]

Each fault is a function: traffic flows through a Kafka of this script's own into a real `streameval run`, and in the
middle something breaks. What must be seen meanwhile (readiness, metrics, log) is checked as long as it lasts. When it is
over the monitor reads to the end, and its report and its history must be those of an undisturbed run.
docs/operations.md states the outcomes in a table.
"""

from __future__ import annotations

import argparse
import errno
import json
import logging
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from streameval.simulate.scenario import Scenario
from streameval.store.checkpoints import Checkpoints
from tests.chaos.fleet import PATIENCE_S, Stream, Unexpected, Worker, compare, launch, scenario, until, workplace
from tests.chaos.kill import finish

IMPRESSIONS = 48_000  # four minutes of event time: requests close after 95 s, and only then panes go to the history
SPEED = 4.0  # seconds of event time a second, while something is broken: half of the traffic lasts 30 s
PARTITIONS = 3
HOURS = 3  # by which the clock jumps: events are up to 1 h old, `join.max_future` is 1 h, so 3 h back would refuse them
ORDINARY = '"session.timeout.ms" = 10000'  # after an outage that is longer, the group waits for one more of them


class Missing(Exception):  # noqa: N818
    """This machine lacks what a fault needs."""


@dataclass
class Laboratory:
    """A broker, and what everything is held against."""

    folder: Path
    servers: str
    of: Scenario
    outage: float
    luck: random.Random
    truth: tuple[dict[str, Any], dict[tuple[Any, ...], Any]] | None = None
    half: int = 0  # of the messages; how many there are is by the time of the day

    def broker(self, command: str) -> None:
        """Starts or stops it; its data and its port stay."""
        launch(command, self.folder / "kafka")

    def broker_pid(self) -> int:
        return int((self.folder / "kafka" / "pid").read_text())

    def undisturbed(self) -> None:
        """Counts the traffic in peace."""
        stream = Stream(self.servers, "truth", PARTITIONS)
        stream.create()
        stream.fill(self.of)
        worker = Worker(stream, self.folder / "truth", self.folder / "truth" / "store")
        worker.start()
        report, rows = self.truth = finish(worker, stream)
        if not any(result["impressions"] for result in report["results"]) or not rows:
            raise Unexpected("the undisturbed run has counted nothing")
        self.half = stream.sent * 11 // 20
        print(f"undisturbed: {stream.sent:,} messages, {len(rows):,} rows of history", flush=True)

    @contextmanager
    def disturbed(self, name: str, **more: Any) -> Iterator[Worker]:
        """A worker that has read half of the traffic when the block begins; after it, all must be as if in peace.

        The traffic flows on in the block; what is left of it at its end comes at once.
        """
        stream = Stream(self.servers, name, PARTITIONS)
        stream.create()
        over, given_up = threading.Event(), threading.Event()

        def speed() -> float:
            return 0.0 if stream.sent < self.half or over.is_set() else SPEED

        producer = threading.Thread(target=stream.fill, args=(self.of, speed, given_up.is_set), daemon=True)
        # a static member gets its partitions back at once after a kill; librdkafka's may fence itself while a broker is
        # away (docs/operations.md, Kafka), so faults of the broker are of an ordinary member
        member = f'"group.instance.id" = "{name}"\n"session.timeout.ms" = 6000'
        place = self.folder / name
        worker = Worker(stream, place, **{"store": place / "store", "options": member, **more})
        worker.start()
        producer.start()
        try:
            until("half is read", lambda: worker.read() >= self.half, [worker], pause=0.05)
            until("there are checkpoints", lambda: written(worker) >= 2 * PARTITIONS, [worker])
            yield worker
            over.set()
            producer.join()
            report, rows = finish(worker, stream)
        finally:
            given_up.set()
            worker.kill()
        assert self.truth is not None
        compare("the report", report, self.truth[0])
        compare("the history", rows, self.truth[1])


# -- faults ----------------------------------------------------------------------------------------------------------


def broker_stopped(lab: Laboratory) -> str:
    """The broker is gone for a minute."""
    with lab.disturbed("broker-stopped", options=ORDINARY) as worker:
        lab.broker("stop")
        begin = time.monotonic()
        until("readiness names the broker", lambda: unready(worker), [worker])
        noticed = time.monotonic() - begin
        while time.monotonic() < begin + lab.outage:
            if not unready(worker) or not alive(worker):
                raise Unexpected(f"not alive and unready while there is no broker:\n{worker.tail()}")
            time.sleep(0.5)
        lab.broker("start")
        begin = time.monotonic()
        until("it is ready again", lambda: ready(worker), [worker])
        recovered = time.monotonic() - begin
        reads_on(worker, 1_000)
    return (
        f"gone for {lab.outage:.0f} s: alive, unready (broker) after {noticed:.0f} s, ready {recovered:.0f} s after its "
        "return"
    )


def broker_hangs(lab: Laboratory) -> str:
    """The broker's connections stay open, but nothing answers (SIGSTOP)."""
    with lab.disturbed("broker-hangs", options=ORDINARY) as worker:
        pid = lab.broker_pid()
        os.kill(pid, signal.SIGSTOP)
        try:
            begin = time.monotonic()
            until("readiness names the broker", lambda: unready(worker), [worker])
            noticed = time.monotonic() - begin
            if not alive(worker):
                raise Unexpected(f"not alive:\n{worker.tail()}")
        finally:
            os.kill(pid, signal.SIGCONT)
        until("it is ready again", lambda: ready(worker), [worker])
        reads_on(worker, 1_000)
    return f"hung for {noticed:.0f} s: alive, unready (broker), ready again"


def broker_restarted(lab: Laboratory) -> str:
    """The broker restarts with its data, once under the monitor and once while the monitor is down."""
    with lab.disturbed("broker-restarted", options=ORDINARY) as worker:
        lab.broker("stop")
        lab.broker("start")
        reads_on(worker, 1_000)
        worker.stop()
        lab.broker("stop")
        lab.broker("start")
        worker.start()
        until("it goes on where it was", lambda: "restored from" in worker.tail(), [worker])
    return "under the monitor, and while the monitor is down: it reads on where it was"


def disk_full(lab: Laboratory) -> str:
    """The disk of the store is full for a while; then the monitor is killed."""
    with small_disk(lab.folder / "small-disk") as store, lab.disturbed("disk-full", store=store) as worker:
        filler = store / "filler"

        def failing() -> bool:
            fill(filler)  # again and again: the worker makes room when it deletes old checkpoints
            return metric(worker, "checkpoint_failures_total") >= 3 and metric(worker, "history_failures_total") >= 1

        def ready_on_full() -> bool:
            fill(filler)
            return ready(worker)

        def reads_on_full() -> bool:
            fill(filler)
            return worker.read() >= min(goal, worker.stream.sent)

        until("checkpoints and history fail", failing, [worker])
        goal = worker.read() + 2_000
        until("ingest goes on while the disk is full", reads_on_full, [worker])
        last = metric(worker, "checkpoint_last_success_timestamp_seconds")
        for _ in range(10):
            fill(filler)
            time.sleep(0.1)
        age = metric(worker, "checkpoint_last_success_timestamp_seconds")
        if age != last:
            raise Unexpected(f"checkpoints of {last} and then {age} on a full disk")
        until("it is ready while the disk is full", ready_on_full, [worker])
        said = worker.log.read_text(errors="replace")
        for line in (
            "the checkpoint cannot be written: No space left on device",
            "ERROR streameval.loop.keeper: history: ",
        ):
            if line not in said:
                raise Unexpected(f"the log does not say {line!r}:\n{said[-6000:]}")
        panes = metric(worker, "history_panes_written_total")  # before there is room: the stream may end soon after
        filler.unlink()
        freed = time.time()
        until(
            "every partition is written again",
            lambda: metric(worker, "checkpoint_last_success_timestamp_seconds") > freed,
            [worker],
        )
        until("panes are written again", lambda: metric(worker, "history_panes_written_total") > panes, [worker])
        checkpoints, panes = metric(worker, "checkpoint_failures_total"), metric(worker, "history_failures_total")
        worker.kill()
        worker.start()
    return (
        f"ingest goes on, {checkpoints:.0f} checkpoints and {panes:.0f} transactions failed and were said; both recover, "
        "and a kill after it loses nothing"
    )


def clock_jumps(lab: Laboratory) -> str:
    """The wall clock jumps, both ways and back."""
    knobs = lab.folder / "clock-knobs"
    knobs.mkdir()
    with lab.disturbed("clock-jumps", program=("tests.chaos.tampered", str(knobs))) as worker:
        for hours in (-HOURS, HOURS, 0, HOURS, -HOURS, 0):
            turn(knobs / "clock", str(3600 * hours))
            before = written(worker)
            shift = hours * 3600 + time.time()
            until("it sees the clock", lambda shift=shift: abs(taken_at(worker) - shift) < 600, [worker])  # type: ignore[misc]
            reads_on(worker, 1_000)
            until("checkpoints go on", lambda before=before: written(worker) >= before + PARTITIONS, [worker])  # type: ignore[misc]
            until(f"it is ready with the clock off by {hours} h", lambda: ready(worker), [worker])
    return f"{HOURS} h back and forth, six times: no event refused, checkpoints go on"


def checkpoint_truncated(lab: Laboratory) -> str:
    """The newest checkpoints are cut short: at every KB in this process, at random lengths under a real one."""
    with lab.disturbed("checkpoint-truncated", interval="1s") as worker:
        worker.kill()
        checkpoints = worker.store / "checkpoints"
        lengths = every_length(checkpoints / "partition-00000", lab.folder / "truncated")
        restarts = 3
        for _ in range(restarts):
            cut = {}
            for partition in sorted(checkpoints.iterdir()):
                *_, before, newest = sorted(partition.glob("*.checkpoint"))
                os.truncate(newest, lab.luck.randrange(newest.stat().st_size))
                cut[newest] = before
            worker.start()
            until("checkpoints are written again", lambda: written(worker) >= PARTITIONS, [worker])
            said = worker.log.read_text()
            for newest, before in cut.items():
                if f"checkpoint refused: {newest}: " not in said or f"restored from {before.name}" not in said:
                    raise Unexpected(f"{newest} was cut short, and the log does not say so:\n{said}")
            until("nothing damaged is kept", lambda cut=cut: not any(p.exists() for p in cut), [worker])  # type: ignore[misc]
            worker.kill()
        worker.start()
    return f"{lengths} lengths, and {restarts} restarts with every newest file cut: named, and the one before is used"


def disk_hangs(lab: Laboratory) -> str:
    """A write to the disk never ends, and the monitor is asked to."""
    knobs = lab.folder / "disk-knobs"
    knobs.mkdir()
    drain = 6.0
    program = ("tests.chaos.tampered", str(knobs))
    with lab.disturbed("disk-hangs", program=program, drain=f"{drain:.0f}s") as worker:

        def hang() -> None:
            (knobs / "hanging").unlink(missing_ok=True)
            (knobs / "hang").touch()
            until("a write hangs", (knobs / "hanging").exists, [worker])
            reads_on(worker, 500)  # ingest waits for no disk

        hang()
        before = written(worker)
        (knobs / "hang").unlink()
        until("checkpoints go on when it ends", lambda: written(worker) >= before + PARTITIONS, [worker])
        hang()
        one = ended(worker, signal.SIGTERM)
        if "store.drain_timeout exceeded" not in worker.tail():
            raise Unexpected(f"the log does not say that state was not written:\n{worker.tail()}")
        (knobs / "hang").unlink()
        worker.drain = f"{2 * PATIENCE_S:.0f}s"  # so that what ends it is the second signal, however late that is sent
        worker.start()
        until("it goes on where it was", lambda: written(worker) >= PARTITIONS, [worker])
        hang()
        worker.signal(signal.SIGTERM)
        until("it has taken the first signal", lambda: stands_still(worker), [worker])  # it still waits for the disk
        two = ended(worker, signal.SIGTERM)
        if two[0] != 128 + signal.SIGTERM:
            raise Unexpected(f"status {two[0]} after a second SIGTERM:\n{worker.tail()}")
        (knobs / "hang").unlink()
        worker.start()
    return (
        f"ingest goes on, checkpoints when it is over; SIGTERM ends it after {one[1]:.1f} s (drain_timeout {drain:.0f} s, "
        f"status {one[0]}), a second one after {two[1]:.1f} s; nothing is lost"
    )


FAULTS: dict[str, Callable[[Laboratory], str]] = {
    function.__name__.replace("_", "-"): function
    for function in (
        disk_full, clock_jumps, checkpoint_truncated, disk_hangs, broker_restarted, broker_hangs, broker_stopped
    )
}  # fmt: skip


# -- what they look at, and turn -------------------------------------------------------------------------------------


def reads_on(worker: Worker, messages: int) -> None:
    """Waits for a worker to have read so many more, or, when the traffic runs out before that, all there is."""
    goal = worker.read() + messages
    time.sleep(0.5)
    until(
        f"it reads {messages:,} more, to {goal:,} of {worker.stream.sent:,}",
        lambda: worker.read() >= min(goal, worker.stream.sent),
        [worker],
    )


def alive(worker: Worker) -> bool:
    """By /livez."""
    return (worker.ask("/livez") or (0,))[0] == 200


def ready(worker: Worker) -> bool:
    """By /readyz."""
    return (worker.ask("/readyz") or (0,))[0] == 200


def unready(worker: Worker) -> bool:
    """/readyz is 503 and names the broker."""
    status, text = worker.ask("/readyz") or (0, "")
    return status == 503 and "broker" in json.loads(text)["detail"]


def metric(worker: Worker, name: str) -> float:
    """A metric without labels; 0 while it is not there."""
    _, text = worker.ask("/metrics") or (0, "")
    found = re.search(rf"^streameval_{name} (\S+)$", text, re.MULTILINE)
    return float(found[1]) if found else 0.0


def written(worker: Worker) -> float:
    """Checkpoints of this process so far."""
    return metric(worker, "checkpoints_total")


def taken_at(worker: Worker) -> float:
    """What the worker's wall clock says."""
    return metric(worker, "snapshot_timestamp_seconds")


def stands_still(worker: Worker) -> bool:
    """Whether there are no more snapshots: its loop has ended, and what is left is to write its state."""
    before = taken_at(worker)
    time.sleep(2.0)
    return 0 < before == taken_at(worker)


def ended(worker: Worker, number: signal.Signals) -> tuple[int, float]:
    """Status and seconds of a worker that must end after a signal."""
    assert worker.process is not None
    begin = time.monotonic()
    worker.signal(number)
    try:
        status = worker.process.wait(PATIENCE_S)
    except subprocess.TimeoutExpired:
        raise Unexpected(f"still there {PATIENCE_S:.0f} s after {number.name}:\n{worker.tail()}") from None
    return status, time.monotonic() - begin


def turn(knob: Path, value: str) -> None:
    """Writes a file at once."""
    partial = knob.with_name("partial")
    partial.write_text(value)
    partial.replace(knob)


@contextmanager
def small_disk(folder: Path) -> Iterator[Path]:
    """A file system of 48 MB. Raises Missing where none can be mounted."""
    folder.mkdir()
    options = ["-t", "tmpfs", "-o", "size=48m,mode=0700", "tmpfs", str(folder)]
    try:
        mounted = subprocess.run(["mount", *options], capture_output=True, text=True, check=False)
    except FileNotFoundError:
        raise Missing("a full disk needs `mount`") from None
    if mounted.returncode:
        raise Missing(f"a full disk needs the right to mount a tmpfs (root): {mounted.stderr.strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", str(folder)], check=True)


def fill(path: Path) -> None:
    """Makes a file as long as there is room."""
    with path.open("ab", buffering=0) as file:
        for size in (1 << 20, 4096):
            try:
                while file.write(bytes(size)):
                    pass
            except OSError as error:
                if error.errno != errno.ENOSPC:
                    raise


def every_length(folder: Path, copy: Path) -> int:
    """Cuts a copy of the newest checkpoint at every KB; each time the one before must be loaded. How many times."""
    shutil.copytree(folder, copy)
    *_, before, newest = sorted(copy.glob("*.checkpoint"))
    said: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: said.append(record.getMessage())  # type: ignore[method-assign]
    log = logging.getLogger("streameval.store.checkpoints")
    log.addHandler(handler)
    log.propagate = False
    good = Checkpoints(copy, keep=3).load()
    if good is None or good[2] != newest or said:
        raise Unexpected(f"{newest}: not loaded while it was whole: {said}")
    lengths = range(0, newest.stat().st_size, 1024)
    for length in reversed(lengths):  # from long to short: each cut is of the file itself
        os.truncate(newest, length)
        said.clear()
        found = Checkpoints(copy, keep=3).load()
        if found is None or found[2] != before or not any(str(newest) in line for line in said):
            raise Unexpected(f"{newest} of {length} bytes: {found and found[2]} was loaded; the log: {said}")
    log.removeHandler(handler)
    return len(lengths)


def play(names: list[str], outage: float, seed: int) -> bool:
    """Runs faults by name, says each one's outcome; whether all were run."""
    whole = True
    with workplace("faults") as folder:
        # the mark of the traffic's end is an hour behind it: the newest that will pass as not in the future
        start = int(time.time() - 3_600 - IMPRESSIONS / 200.0) // 60 * 60_000
        try:
            servers = launch("start", folder / "kafka")
            lab = Laboratory(folder, servers, scenario(IMPRESSIONS, start), outage, random.Random(seed))
            lab.undisturbed()
            for name in names:
                begin = time.monotonic()
                try:
                    outcome = FAULTS[name](lab)
                except Missing as why:
                    print(f"{name}: SKIPPED: {why}", flush=True)
                    whole = False
                    continue
                except Unexpected as error:
                    raise Unexpected(f"{name}: {error}") from None
                took = time.monotonic() - begin
                print(f"{name}: {outcome}; report and history are identical ({took:.0f} s)", flush=True)
        finally:
            launch("stop", folder / "kafka")
    return whole


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", nargs="*", help=f"of {', '.join(FAULTS)}; default: all")
    parser.add_argument("--outage", type=float, default=60.0, help="seconds without a broker")
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    if unknown := sorted(set(given.name) - FAULTS.keys()):
        parser.error(f"{unknown[0]}: no such fault; there are {', '.join(FAULTS)}")
    try:
        whole = play(given.name or list(FAULTS), given.outage, given.seed)
    except Unexpected as error:
        sys.exit(f"NOT as stated: {error}")
    if not whole and os.environ.get("STREAMEVAL_REQUIRE_ALL") == "1":
        sys.exit("a fault was skipped, and STREAMEVAL_REQUIRE_ALL=1")


if __name__ == "__main__":
    main()
