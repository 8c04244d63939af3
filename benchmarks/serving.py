"""/metrics with about 600 and 2,000 series, while the same process ingests at full speed."""

from __future__ import annotations

import time
import urllib.request

from benchmarks.busy import busy


def main() -> None:
    """Prints the table."""
    print("| what | measured | limit |")
    print("|---|---|---|")
    for countries in (20, 70):
        _measure(countries)


def _measure(countries: int) -> None:
    with busy(countries=countries) as server:
        time.sleep(8)
        taken: list[float] = []
        body = b""
        begin, at = time.monotonic(), server.impressions
        for _ in range(200):
            t = time.perf_counter()
            with urllib.request.urlopen(f"{server.url}/metrics", timeout=30) as answer:
                body = answer.read()
            taken.append(time.perf_counter() - t)
            time.sleep(0.02)
        rate = (server.impressions - at) / (time.monotonic() - begin)
    taken.sort()
    series = sum(1 for line in body.splitlines() if line and not line.startswith(b"#"))
    print(f"| /metrics with {series:,} series, p50 | {taken[100] * 1e3:.1f} ms | |")
    print(f"| /metrics with {series:,} series, p99 | {taken[197] * 1e3:.1f} ms | 50 ms |")
    print(f"| ingest meanwhile, {series:,} series | {rate:,.0f} impressions/s | |")
