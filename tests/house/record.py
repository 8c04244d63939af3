"""The golden record: `python -m tests.house.record` makes it anew, which is a decision to change what users see.

With names of runs only those are taken anew, as far as the record has what they give, from the store that an older program
wrote: for a fault that is mended, so that all the rest is still compared with what it was.

`golden/record.json.xz` is what `runs.py` took down of the program at the commit it names. It is read with
`xz -dc golden/record.json.xz | python -m json.tool`.
"""

from __future__ import annotations

import json
import lzma
import math
import platform
import subprocess
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path
from typing import Any

from tests.house import runs, traffic
from tests.house.monitor import ROOT
from tests.house.questions import without_the_clock

RECORD = runs.GOLDEN / "record.json.xz"
SECOND_HALF = "ten minutes, the second half from the store of the first"


def load() -> dict[str, Any]:
    """The record; what was found to be of the clock after it was made is taken out of it too."""
    found = dict(json.loads(lzma.decompress(RECORD.read_bytes())))
    for run in found["runs"].values():
        if "GET /metrics" in run:
            run["GET /metrics"] = without_the_clock(run["GET /metrics"])
    return found


def digests() -> dict[str, str]:
    """Of the streams that the record is made of."""
    return {"hour": traffic.digest(traffic.stream()), "ten minutes": traffic.digest(runs.short())}


def machine() -> dict[str, str]:
    """What the last bit of a logarithm may depend on."""
    libraries = {name: version(name) for name in ("numpy", "numba", "llvmlite", "river", "pyarrow")}
    return {
        "machine": platform.machine(),
        "libc": " ".join(platform.libc_ver()),
        "python": platform.python_version(),
        **libraries,
    }


def differences(old: Any, new: Any, where: str = "", close: float = 0.0) -> list[str]:
    """Every place where two values differ, with both.

    Numbers are equal when they are the same to the bit; floating-point numbers also when they differ by no more than
    `close`, relatively.
    """
    if isinstance(old, dict) and isinstance(new, dict):
        out = [f"{where} / {key}: is gone, was {_short(old[key])}" for key in old if key not in new]
        out += [f"{where} / {key}: is new, {_short(new[key])}" for key in new if key not in old]
        return out + [
            d for key in old if key in new for d in differences(old[key], new[key], f"{where} / {key}", close)
        ]
    if isinstance(old, list) and isinstance(new, list):
        out = [] if len(old) == len(new) else [f"{where}: had {len(old)} elements, has {len(new)}"]
        pairs = enumerate(zip(old, new, strict=False))
        return out + [d for i, (a, b) in pairs for d in differences(a, b, f"{where}[{_name(i, a)}]", close)]
    same = type(old) is type(new) and repr(old) == repr(new)
    if not same and close:
        numbers = _number(old), _number(new)
        same = None not in numbers and math.isclose(*numbers, rel_tol=close)  # type: ignore[arg-type]
    return [] if same else [f"{where}: was {_short(old)}, is {_short(new)}"]


def _number(value: Any) -> float | None:
    """A number that is not whole, or its spelling in /metrics."""
    try:
        return None if isinstance(value, bool | int) else float(value)
    except (TypeError, ValueError):
        return None


def without_additions(old: Any, new: Any) -> Any:
    """What is new, less the keys that the old has not: more of a report or an answer is no change of it.

    In a list of names, or of objects that each name a `metric`, a name that the old has not is an addition likewise; so is
    a parameter of a route that nobody needs to give.
    """
    if isinstance(old, dict) and isinstance(new, dict):
        return {key: without_additions(old[key], value) for key, value in new.items() if key in old}
    if isinstance(old, list) and isinstance(new, list):
        new = [element for element in new if not _is_optional(element) or element in old]
        names = {_named(element) for element in old}
        if names and None not in names:
            new = [element for element in new if _named(element) in names]
        return [without_additions(a, b) for a, b in zip(old, new, strict=False)] + new[len(old) :]
    return new


def _is_optional(element: Any) -> bool:
    """As `questions.shape_of` has the parameters of a route."""
    return isinstance(element, str) and element.startswith("query ") and not element.endswith(" *")


def _named(element: Any) -> str | None:
    name = element.get("metric") if isinstance(element, dict) else element
    return name if isinstance(name, str) else None


def _name(place: int, element: Any) -> str:
    """An element of a list as a reader would name it."""
    if not isinstance(element, dict):
        return str(place)
    names = [element.get(key) for key in ("id", "model", "version", "window", "slice", "name", "reason")]
    return " ".join(
        [str(place), *(str(list(n.values()) if isinstance(n, dict) else n) for n in names if n is not None)]
    )


def _short(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 200 else f"{text[:200]}..."


def make() -> None:
    """Writes `golden/`."""
    runs.GOLDEN.mkdir(exist_ok=True)
    asked = ["git", "log", "-1", "--format=%H", "--", "streameval"]
    commit = subprocess.run(asked, cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()
    out: dict[str, Any] = {"commit": commit, "machine": machine(), "traffic": digests(), "runs": {}}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for number, (run, take) in enumerate(runs.RUNS.items()):
            print(run, flush=True)
            out["runs"][run] = take(folder / str(number))
        print(SECOND_HALF, flush=True)
        runs.first_half(folder / "first")
        runs.pack(folder / "first" / "store")
        out["runs"][SECOND_HALF] = runs.second_half(folder / "second", runs.unpack(folder))
    _write(out)


def renew(names: list[str]) -> None:
    """Takes these runs anew, and writes what has changed into the record."""
    out = load()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for number, run in enumerate(names):
            where = folder / str(number)
            found = runs.second_half(where, runs.unpack(folder)) if run == SECOND_HALF else runs.RUNS[run](where)
            changed = without_additions(out["runs"][run], found)
            print(run, *differences(out["runs"][run], changed), sep="\n", flush=True)
            out["runs"][run] = changed
    _write(out)


def _write(out: dict[str, Any]) -> None:
    text = json.dumps(out, sort_keys=True, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    RECORD.write_bytes(lzma.compress(text.encode(), preset=9))
    for path in (RECORD, runs.STORE):
        print(f"{path}: {path.stat().st_size:,} bytes")


if __name__ == "__main__":
    renew(sys.argv[1:]) if sys.argv[1:] else make()
