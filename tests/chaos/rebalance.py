"""Rebalance: workers that join, leave, die and freeze; together they have counted every event once.

    python -m tests.chaos.rebalance [--seconds 600] [--seed 1] [--client confluent]

Three workers of one group share twelve partitions and a store while traffic flows. Every few seconds one of them is
stopped (SIGTERM), killed (SIGKILL) or frozen (SIGSTOP for longer than the session timeout, then SIGCONT: it wakes up
with state and messages of partitions that others have counted on), or comes back. In the end the sum over the workers
must be what one undisturbed worker counts, and every row of the history too.
"""

from __future__ import annotations

import argparse
import random
import signal
import sys
import threading
import time
import uuid
from collections import Counter
from pathlib import Path
from typing import Any

from tests.chaos.fleet import (
    PATIENCE_S,
    Stream,
    Unexpected,
    Worker,
    compare,
    history,
    kafka,
    scenario,
    until,
    workplace,
)

PARTITIONS = 12
WORKERS = 3
SESSION_S = 6
RATE = 200.0  # impressions a second of event time, see `scenario`
SPEED = 10.0  # seconds of event time a second
SUMS = ("impressions", "clicks")
MEANS = ("mean_pclick", "log_loss", "mse", "mae")
OPTIONS = {
    "confluent": f'"session.timeout.ms" = {SESSION_S * 1000}\n"heartbeat.interval.ms" = 500',
    "kafka-python": f"session_timeout_ms = {SESSION_S * 1000}\nheartbeat_interval_ms = 500",
}


def together(workers: list[Worker]) -> dict[str, Any] | None:
    """What the workers have counted, added up; None when they do not have all partitions, each once."""
    events: Counter[str] = Counter()
    sums: dict[tuple[str, ...], Counter[str]] = {}
    partitions: list[int] = []
    offsets = 0
    for worker in workers:
        status, results = worker.get("/api/v1/status"), worker.get("/api/v1/results?window=all")
        if status is None or results is None:
            return None
        partitions += [p["partition"] for p in status["partitions"]]
        offsets += sum(o["value"] for p in status["partitions"] for o in p["offsets"])
        for name, count in status["events"].items():
            many = count if isinstance(count, dict) else {"": count}
            events.update({f"{name}:{reason}": n for reason, n in many.items()})
        for row in results["results"]:
            mine = sums.setdefault((row["model"], row["version"], row["source"], str(row["slice"])), Counter())
            mine.update({name: row[name] for name in SUMS})
            mine.update({name: row[name] * row["impressions"] for name in MEANS})
    if sorted(partitions) != list(range(PARTITIONS)):
        return None
    rounded = {
        "/".join(key): {name: n if name in SUMS else float(f"{n:.9g}") for name, n in of.items()}
        for key, of in sums.items()
    }
    return {"offsets": offsets, "events": {k: n for k, n in events.items() if n}, "sums": rounded}


def written(status: dict[str, Any]) -> bool:
    """True when a worker has written its panes but for the open one of each partition; one that has only begun has not."""
    return status["history"] is not None and status["history"]["unwritten"] <= len(status["partitions"])


def settled(workers: list[Worker], stream: Stream) -> dict[str, Any]:
    """What the workers have counted when they have read everything and written their panes."""
    found: dict[str, Any] | None = None

    def done() -> bool:
        nonlocal found
        found = together(workers)
        if found is None or found["offsets"] < stream.sent:
            return False
        states = [worker.get("/api/v1/status") for worker in workers]
        return all(s is not None and written(s) for s in states)

    try:
        until("everything is read by somebody", done, workers, 2 * PATIENCE_S)
    except Unexpected as error:
        states = [worker.get("/api/v1/status") for worker in workers]
        where = [
            (p["partition"], [o["value"] for o in p["offsets"]], [o["value"] for o in p["lag"]])
            for s in states if s for p in s["partitions"]
        ]  # fmt: skip
        raise Unexpected(
            f"{error}\n{stream.sent} messages; (partition, offsets, lag): {sorted(where)}; histories: {[s and s['history'] for s in states]}"
        ) from None
    assert found is not None
    return found


def disturb(workers: list[Worker], seconds: float, luck: random.Random) -> Counter[str]:
    """Lets something happen to somebody every few seconds; what, how often."""
    seen: Counter[str] = Counter()
    frozen: dict[int, float] = {}  # worker -> when it wakes up
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        time.sleep(luck.uniform(1.0, 4.0))
        for number, until_when in list(frozen.items()):
            if time.monotonic() > until_when:
                workers[number].signal(signal.SIGCONT)
                del frozen[number]
        number = luck.randrange(WORKERS)
        worker = workers[number]
        if number in frozen:
            continue
        if not worker.running:
            worker.start()
            seen["joined"] += 1
            continue
        others = [w for i, w in enumerate(workers) if i != number and w.running and i not in frozen]
        if not others:
            continue
        what = luck.choice(["left", "killed", "frozen", "frozen"])
        if what == "left":
            worker.stop()
        elif what == "killed":
            worker.kill()
        else:
            worker.signal(signal.SIGSTOP)
            frozen[number] = time.monotonic() + SESSION_S * luck.uniform(1.3, 2.2)
        seen[what] += 1
    for number in frozen:
        workers[number].signal(signal.SIGCONT)
    for worker in workers:
        if not worker.running:
            worker.start()
    return seen


def play(servers: str, folder: Path, seconds: float, seed: int, client: str) -> None:
    """Disturbed, and then in peace."""
    name = f"rebalance-{uuid.uuid4().hex[:8]}"
    stream = Stream(servers, name, PARTITIONS)
    stream.create()
    of = scenario(int(seconds * SPEED * RATE))
    producer = threading.Thread(target=stream.fill, args=(of, lambda: SPEED), daemon=True)
    producer.start()
    shared: dict[str, Any] = {"interval": "500ms", "client": client, "options": OPTIONS[client]}
    workers = [Worker(stream, folder / f"worker-{i}", folder / "store", **shared) for i in range(WORKERS)]
    for worker in workers:
        worker.start()
    try:
        begin = time.monotonic()
        seen = disturb(workers, seconds, random.Random(seed))
        producer.join(seconds + 2 * PATIENCE_S)
        found = settled(workers, stream)
        took = time.monotonic() - begin
    finally:
        for worker in workers:
            worker.kill()
    truth = Worker(stream, folder / "truth", folder / "truth" / "store", group=f"{name}-truth", **shared)
    truth.start()
    try:
        expected = settled([truth], stream)
        truth.stop()
    finally:
        truth.kill()
    compare("the sum over the workers", found, expected)
    compare("the history", history(folder / "store"), history(truth.store))
    how = ", ".join(f"{n} {what}" for what, n in seen.items())
    impressions = expected["events"]["impressions:"]
    print(
        f"{client}: {impressions:,} impressions on {PARTITIONS} partitions in {took:.0f} s; workers: {how}; "
        "the sum and the history are identical to one undisturbed worker's",
        flush=True,
    )


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--client", choices=sorted(OPTIONS), default="confluent")
    given = parser.parse_args()
    try:
        with workplace("rebalance") as folder, kafka(folder / "kafka") as servers:
            play(servers, folder, given.seconds, given.seed, given.client)
    except Unexpected as error:
        sys.exit(f"NOT identical: {error}")


if __name__ == "__main__":
    main()
