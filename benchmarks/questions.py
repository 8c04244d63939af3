"""Ingest at full speed, without requests and with 40 threads of another process that send requests as fast as they are answered.

Phases with and without requests alternate, so that other work on the machine affects both.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

from benchmarks.busy import busy

THREADS = 40
ROUNDS = 3
DENSE = 10  # times as many events a minute as in `Events`, or the history's panes would dominate
SECONDS = 10.0
SETTLE = 6.0  # seconds until a saved-up budget of requests is used up

# requests a mix of everything until its input closes; then prints the counts
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
    with busy(folder, DENSE, "--unpaced" not in sys.argv) as server:
        time.sleep(15)
        alone, asked, said = [], [], []
        for _ in range(ROUNDS):
            alone.append(server.rate(SECONDS))
            asker = subprocess.Popen(
                [sys.executable, "-c", _ASKER, str(server.port), str(THREADS)],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            )  # fmt: skip
            time.sleep(SETTLE)
            asked.append(server.rate(SECONDS))
            said.append(asker.communicate()[0].strip())
            time.sleep(2)
        quiet = _quiet(server.url)
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
