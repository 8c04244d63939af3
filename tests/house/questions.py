"""What is asked of a monitor that has read everything, and what of the answers is of the moment or mere wording."""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from hashlib import sha256
from pathlib import Path
from typing import Any
from urllib.parse import quote

from streameval.sketches.codec import decode, encode
from streameval.sketches.sparse import SparseVector
from streameval.store.history.stored import TALLIES
from tests.house.monitor import Monitor

CLOCK, WORDING = "<clock>", "<wording>"

# Keys of JSON whose values are of the wall clock, of the process, or of how reading went; they must be there all the same.
OF_THE_CLOCK = frozenset(
    {"as_of", "snapshot", "started_at", "uptime_seconds", "last_seen"}
    | {"stage_seconds", "table_bytes", "budget_used", "checkpoints", "history"}  # of /api/v1/status
    | {"join_rate"}  # as it is now: a click that waits for its impression is counted once it was given up
    | {"samples"}  # of /api/v1/dead-letters: the first that came, of whichever partition
)
# Texts for people: something must be said exactly where something was said.
TEXTS = frozenset({"words", "text", "detail", "title", "message", "reliable_reason", "headline", "degraded"})
# Samples of /metrics of the process, its memory, its disk and its clock.
SAMPLES_OF_THE_CLOCK = re.compile(
    r"process_|python_|streameval_(build_info|start_timestamp|snapshot_|checkpoint|history_|table_bytes|budget_used"
    r"|collect_duration|join_ratio|restarts|http_|series$)"
)
# Counters of `__other__`: which values it stands for changes while reading, and a counter never falls: it stands at the
# largest sum that any snapshot published, and when those were made is of the clock. The API's sums are compared.
HELD_COUNTERS = re.compile(r'streameval_slice_\w+_total\{.*slice_value="__other__"')

SERIES = (("ctr", "v1"), ("ctr", "v2"), ("ctr", "v3-shadow"), ("feed", "größe/ü 1"))
METRICS = ("auc", "gauc", "log_loss", "calibration", "ece", "gauc_request", "ctr", "rig")


def routes(first: str, last: str) -> Iterator[str]:
    """Every GET route with parameters that matter; `first` and `last`: a past range, in whole panes."""
    past = f"from={first}&to={last}"
    yield from ("/livez", "/readyz", "/healthz", "/api/v1/status")
    yield from (
        "/api/v1/results?slice=none",
        "/api/v1/results?window=all&slice=country",
        "/api/v1/results?limit=2&model=feed",
    )
    yield f"/api/v1/results?window=5m&slice={quote('placement:slot 3')}"
    yield f"/api/v1/results?window=30m&slice={quote('country:~__other__')}&version=v2"
    yield f"/api/v1/results?{past}&slice=none"
    yield f"/api/v1/results?{past}&slice=position&model=ctr&version=v1"
    yield from (
        "/api/v1/buckets?kind=fixed&slice=none&window=30m",
        "/api/v1/buckets?kind=quantiles&slice=none&window=all",
    )
    yield f"/api/v1/buckets?kind=quantiles&slice=none&{past}"
    for model, version in SERIES:
        one = f"model={quote(model)}&version={quote(version, safe='')}"
        yield f"/api/v1/roc?{one}&max_points=60"
        yield f"/api/v1/scores?{one}&window=30m&bins=20"
        yield f"/api/v1/users?{one}&limit=20&sort=log_loss_nats"
        yield f"/api/v1/user-distribution?{one}&metric=auc&bins=10"
    one = "model=ctr&version=v1"
    yield f"/api/v1/roc?{one}&{past}&max_points=30"
    yield f"/api/v1/scores?{one}&{past}&bins=10"
    yield f"/api/v1/users?{one}&limit=5&sort=auc&order=asc"
    yield f"/api/v1/user-distribution?{one}&metric=calibration&bins=10"
    for user in ("bot-1", "żółw/ogród", "~0123456789abcdef", "nobody"):
        yield f"/api/v1/users/{quote(user, safe='')}"
    for metric in METRICS:
        yield f"/api/v1/series?metric={metric}&model=ctr&version=v2&shape=columns"
    yield f"/api/v1/series?metric=log_loss&{past}&limit=3"
    yield "/api/v1/series?metric=auc&step=20m"
    yield f"/api/v1/series?metric=calibration&step=10m&slice={quote('country:fr')}&{one}"
    yield f"/api/v1/series?metric=auc&slice=position:0&{past}&{one}"
    yield from ("/api/v1/deploys", "/api/v1/comparisons", "/api/v1/comparisons?setup=split&limit=1")
    yield from ("/api/v1/models/ctr/verdict", "/api/v1/models/ctr/verdict?candidate=v2", "/api/v1/models/feed/verdict")
    yield "/api/v1/dead-letters"
    # what goes wrong
    yield from ("/api/v1/results?model=nobody", "/api/v1/results?window=7m", "/api/v1/results?nonsense=1")
    yield from ("/api/v1/roc?model=ctr", "/api/v1/series?metric=nothing", "/api/v1/series?metric=auc&step=90s")
    yield from (
        "/api/v1/users?limit=0",
        "/api/v1/comparisons/999-paired",
        "/api/v1/models/nobody/verdict",
        "/api/v1/nothing",
    )


def ask(monitor: Monitor, first: str, last: str) -> dict[str, Any]:
    """Route -> what it answers, without what is of the moment."""
    out: dict[str, Any] = {}
    paths = list(routes(first, last))
    for path in paths:
        status, kind, body = monitor.get(path)
        answer = json.loads(body)
        out[f"GET {path}"] = {"status": status, "type": kind, "body": settled(answer)}
        if path == "/api/v1/comparisons":
            more = [f"/api/v1/comparisons/{c['id']}" for c in answer["comparisons"]]
            paths += [p for p in more if p not in paths]
        if path.startswith("/api/v1/users?") and answer.get("next"):
            out[f"GET {path}, the next page"] = settled(json.loads(monitor.get(answer["next"])[2]))
    out["GET /metrics"] = samples(monitor.get("/metrics")[2].decode())
    out["GET /openapi.json"] = shape_of(json.loads(monitor.get("/openapi.json")[2]))
    out["GET /api/v1/stream"] = settled(monitor.first_of_stream())
    return out


def settled(answer: Any, key: str = "") -> Any:
    """The same without what is of the moment."""
    if key in OF_THE_CLOCK and answer is not None:
        keys_count = isinstance(answer, dict) and key != "stage_seconds"  # a stage is there once it was needed
        return dict.fromkeys(answer, CLOCK) if keys_count else CLOCK
    if key in TEXTS and answer:
        return WORDING
    if isinstance(answer, dict):
        return {k: settled(v, k) for k, v in answer.items()}
    if isinstance(answer, list):
        return [settled(v) for v in answer]
    return answer


def samples(text: str) -> dict[str, str]:
    """Sample -> value, and family -> type; help is wording, and the order of families is nobody's business."""
    out = {}
    for line in text.splitlines():
        if line.startswith("# TYPE "):
            _, _, name, kind = line.split(" ")
            out[f"# TYPE {name}"] = kind
        elif line and not line.startswith("#"):
            name, _, value = line.rpartition(" ")
            if not name.startswith("streameval_stage_seconds_total"):  # a stage is there once it was needed
                out[name] = value
    return without_the_clock(out)


def without_the_clock(found: dict[str, str]) -> dict[str, str]:
    """Samples of /metrics, with what is of the moment taken out."""
    return {
        name: CLOCK if SAMPLES_OF_THE_CLOCK.match(name) or HELD_COUNTERS.match(name) else value
        for name, value in found.items()
    }


def shape_of(openapi: dict[str, Any]) -> dict[str, Any]:
    """Every route's methods, with parameters and statuses."""
    return {
        f"{method.upper()} {path}": {
            "parameters": sorted(
                f"{p['in']} {p['name']}{' *' if p.get('required') else ''}" for p in one.get("parameters", [])
            ),
            "statuses": sorted(one["responses"]),
        }
        for path, methods in openapi["paths"].items()
        for method, one in methods.items()
    }


ROWS = {
    "parts": "SELECT level, partition, 'all', start, panes, seen, matured, clicks, corrected, newest FROM parts",
    "vectors": "SELECT level, partition, model || ' ' || version || ' ' || source || ' ' || coalesce(dimension || ':' || value, 'overall'), "
    "start, impressions, sums, scores FROM vectors JOIN series ON series.id = series LEFT JOIN slices ON slices.id = slice",
    "samples": "SELECT level, partition, model || ' ' || version || ' ' || source, start, k, entries "
    "FROM samples JOIN series ON series.id = series",
}  # fmt: skip


def _without_tallies(blob: bytes) -> bytes:
    """A stored vector less the sums that settings add to it: a program that has more of them keeps the others as they were."""
    vector = decode(blob)
    always = vector.cells < TALLIES
    return blob if always.all() else encode(SparseVector(vector.cells[always], vector.values[always]))


def history(path: Path) -> dict[str, Any]:
    """What the history file holds, by names: of every line of rows how many, and a hash of all of them."""
    out: dict[str, Any] = {}
    with closing(sqlite3.connect(path)) as db:
        out["user_version"] = db.execute("PRAGMA user_version").fetchone()[0]
        for table, query in ROWS.items():
            lines: dict[str, list[tuple[Any, ...]]] = {}
            for level, partition, line, *row in db.execute(query):
                lines.setdefault(f"{table} {line} level {level} partition {partition}", []).append(tuple(row))
            for line, rows in sorted(lines.items()):
                sha = sha256()
                for row in sorted(rows):
                    for cell in row:
                        blob = isinstance(cell, bytes) and table == "vectors"
                        sha.update(
                            _without_tallies(cell) if blob else cell if isinstance(cell, bytes) else str(cell).encode()
                        )
                        sha.update(b"|")
                out[line] = f"{len(rows)} rows {sha.hexdigest()[:16]}"
    return out
