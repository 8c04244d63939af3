"""Ingest flat out, with nobody asking and with 40 threads of another process that ask as fast as they are answered.

Phases with and without questions take turns, so that other work on the machine touches both alike.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from pathlib import Path

from benchmarks.events import Events
from benchmarks.pipeline import settings
from benchmarks.serving import later
from streameval import __version__
from streameval.app import PUBLISH_SHARE, new_publisher, open_store
from streameval.config import Slices, Store
from streameval.pipeline import Pipeline
from streameval.server.app import create_app
from streameval.server.serve import serve

THREADS = 40
ROUNDS = 3
SECONDS = 10.0
SETTLE = 6.0  # until what may have been saved up is spent

# asks a mix of everything, for ever; prints what came of it when its input closes
_ASKER = """
import collections, http.client, itertools, json, random, sys, threading, time
port, threads = int(sys.argv[1]), int(sys.argv[2])
mix = ["/api/v1/results", "/api/v1/results?limit={n}", "/api/v1/roc?max_points={n}", "/api/v1/scores?bins={n}",
       "/api/v1/buckets?limit={n}", "/api/v1/users?limit={n}", "/api/v1/user-distribution?metric=auc&bins={b}",
       "/api/v1/results?from={t}&limit={n}", "/api/v1/series?metric=auc&step=5m&limit={n}", "/api/v1/status",
       "/api/v1/series?metric=log_loss&limit={n}", "/api/v1/comparisons", "/metrics", "/livez", "/readyz"]
counts, waits, stop = collections.Counter(), collections.defaultdict(list), threading.Event()
def ask(seed):
    luck = random.Random(seed)
    connection = None
    while not stop.is_set():
        path = luck.choice(mix).format(n=luck.randint(2, 1000), b=luck.randint(5, 60), t=1700000000 + luck.randint(0, 3600))
        try:
            connection = connection or http.client.HTTPConnection("127.0.0.1", port, timeout=60)
            begin = time.monotonic()
            connection.request("GET", path)
            answer = connection.getresponse()
            answer.read()
            counts[answer.status] += 1
            if path in ("/livez", "/readyz", "/metrics"):
                waits[path].append(time.monotonic() - begin)
        except OSError:
            counts["failed"] += 1
            connection = None
for seed in range(threads):
    threading.Thread(target=ask, args=(seed,), daemon=True).start()
sys.stdin.read()
stop.set()
slowest = {path: round(max(seen), 3) for path, seen in waits.items()}
print(json.dumps([dict(counts), slowest]))
"""


def main() -> None:
    """Prints the table."""
    with tempfile.TemporaryDirectory() as folder:
        _measure(Path(folder))


def _measure(folder: Path) -> None:
    tree = settings(False).model_copy(
        update={"slices": Slices(dimensions=("country",)), "store": Store(path=str(folder))}
    )
    events = Events(1_000_000)
    publisher = new_publisher(tree)
    pipeline = Pipeline(tree, time.time)
    keeper, history = open_store(tree, pipeline)
    assert keeper is not None
    keeper.take(frozenset({0}))
    app = create_app(publisher, tree.server, version=__version__, history=history, paced="--unpaced" not in sys.argv)
    server = serve(app, "127.0.0.1", 0)
    events.name_slices(pipeline.catalog)
    batches = list(events.batches(pipeline.catalog, 10_000))
    stop = threading.Event()
    done = [0]

    def ingest() -> None:
        due, number = 0.0, 0
        while True:
            for batch in batches:
                if stop.is_set():
                    return
                pipeline.take(later(batch, number))
                keeper.tick()
                done[0] += len(batch.impressions)
                now = time.monotonic()
                if now >= due:
                    publisher.publish(pipeline.snapshot(history=keeper.history_state()))
                    due = now + max(1.0, PUBLISH_SHARE * (time.monotonic() - now))
            number += 1

    thread = threading.Thread(target=ingest, daemon=True)
    thread.start()
    time.sleep(15)
    alone, asked, said = [], [], []
    for _ in range(ROUNDS):
        alone.append(_rate(done))
        asker = subprocess.Popen(
            [sys.executable, "-c", _ASKER, str(server.port), str(THREADS)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        time.sleep(SETTLE)
        asked.append(_rate(done))
        said.append(asker.communicate()[0].strip())
        time.sleep(2)
    quiet = _quiet(server.url)
    stop.set()
    thread.join()
    server.stop()
    keeper.close()
    ratio = statistics.median(b / a for a, b in zip(alone, asked, strict=True))
    print("| what | measured | goal |")
    print("|---|---|---|")
    print(f"| ingest, nobody asks (median of {ROUNDS}) | {statistics.median(alone):,.0f} impressions/s | |")
    print(f"| ingest, {THREADS} threads ask | {statistics.median(asked):,.0f} impressions/s | |")
    print(f"| of the undisturbed rate | {ratio:.0%} (median of pairs) | 80% |")
    print(f"| one question at a time, nobody else asks, p50 | {quiet * 1e3:.0f} ms | |")
    print("answers by status, slowest answer in s of health and metrics, by round:")
    for line in said:
        print("  " + line)


def _rate(done: list[int]) -> float:
    begin, at = time.monotonic(), done[0]
    time.sleep(SECONDS)
    return (done[0] - at) / (time.monotonic() - begin)


def _quiet(url: str) -> float:
    taken = []
    for i in range(20):
        time.sleep(0.5)
        begin = time.perf_counter()
        with urllib.request.urlopen(f"{url}/api/v1/results?limit={100 + i}", timeout=30) as answer:
            answer.read()
        taken.append(time.perf_counter() - begin)
    return statistics.median(taken)


if __name__ == "__main__":
    main()
