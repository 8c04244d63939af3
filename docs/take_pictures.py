"""Takes the pictures of docs/tour.md from a running demo: `python docs/take_pictures.py` writes docs/pictures/*.png.

Needs `pip install playwright pillow` (no browser of Playwright's own) and Debian's package `chromium`. It starts
`streameval demo` on a free port, waits until the verdict on the bad deploy has fallen, visits every view, and ends the demo:
two to three minutes.
"""

from __future__ import annotations

import argparse
import json
import re
import signal
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent / "pictures"
CHROMIUM = "/usr/bin/chromium"
FLAGS = [
    "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update", "--disable-sync",
    "--no-first-run",
]  # fmt: skip
WIDE, NARROW = (1280, 800), (390, 844)
# name -> (address, viewport); {comparison} is the id of the bad deploy's comparison
VIEWS = {
    "overview": ("/#/overview?window=5m", WIDE),
    "history": ("/#/history?model=ctr&metric=auc&versions=v1,v2", WIDE),
    "calibration": ("/#/calibration?model=ctr&a=v1&b=v2&window=5m", WIDE),
    "users": ("/#/users?model=ctr&version=v2", WIDE),
    "comparisons": ("/#/comparisons?id={comparison}", WIDE),
    "flow": ("/#/flow", WIDE),
    "overview-narrow": ("/#/overview?window=5m", NARROW),
}
MOST_BYTES = 150_000  # of a picture, so that the repository stays small
VERDICT_SECONDS = 300.0  # how long the verdict may take: the first start compiles
AFTERWARDS = 45.0  # seconds that the bad deploy goes on before the pictures, to have lines to look at
SETTLE = 4.0  # seconds for a view to load its data and stand still


@contextmanager
def demo() -> Iterator[str]:
    """A demo; gives its address, and ends it."""
    command = [sys.executable, "-m", "streameval", "demo", "--port", "0"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)
    assert process.stderr is not None
    try:
        for line in process.stderr:
            if found := re.search(r"page +(http://\S+?)/?$", line.rstrip()):
                break
        else:
            raise SystemExit(f"the demo ended with status {process.wait()}")
        # somebody must read on, or the demo stands still when the pipe is full
        threading.Thread(target=process.stderr.read, daemon=True).start()
        yield found[1]
    finally:
        process.send_signal(signal.SIGINT)
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()


def ask(url: str) -> dict[str, Any]:
    """An answer of the API; an error is an empty one."""
    try:
        with urllib.request.urlopen(url, timeout=10) as answer:
            return json.load(answer)
    except (urllib.error.URLError, TimeoutError):
        return {}


def bad_deploy(url: str) -> str:
    """Waits for the verdict on v2; the id of its comparison."""
    end = time.monotonic() + VERDICT_SECONDS
    while time.monotonic() < end:
        if ask(f"{url}/api/v1/models/ctr/verdict?candidate=v2").get("verdict") == "worse":
            found = ask(f"{url}/api/v1/comparisons?model=ctr&candidate=v2")["comparisons"]
            return next(c["id"] for c in found if c["verdict"] == "worse")
        time.sleep(1)
    raise SystemExit(f"no verdict on v2 within {VERDICT_SECONDS:g} s")


def few_colours(image: Any) -> Any:
    """256 colours: the most frequent as they are, so that all pictures have one background; the others by the nearest of a
    palette that covers them all, so that what is small keeps its colour, as the green of "live" does.
    """
    import numpy as np
    from PIL import Image

    pixels = np.asarray(image).reshape(-1, 3)
    seen, where, count = np.unique(pixels, axis=0, return_inverse=True, return_counts=True)
    often = seen[np.argsort(-count)[:128]]
    covering = image.quantize(128, Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE).getpalette()
    palette = np.concatenate([often, np.asarray(covering, np.uint8).reshape(-1, 3)])[:256]
    far = ((seen[:, None].astype(np.int32) - palette[None].astype(np.int32)) ** 2).sum(axis=2)
    nearest = far.argmin(axis=1).astype(np.uint8)
    made = Image.fromarray(nearest[where.reshape(-1)].reshape(image.height, image.width))
    made.putpalette(palette.tobytes())
    return made


def main(arguments: list[str]) -> int:
    """Takes the pictures that are named, or all; 1 when one is too large."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help=f"of {', '.join(VIEWS)}; all by default")
    parser.add_argument("--folder", type=Path, default=FOLDER)
    wanted = parser.parse_args(arguments)
    if unknown := set(wanted.names) - set(VIEWS):
        parser.error(f"unknown: {', '.join(sorted(unknown))}")
    from PIL import Image
    from playwright.sync_api import sync_playwright

    status = 0
    wanted.folder.mkdir(exist_ok=True)
    with demo() as url, sync_playwright() as playwright:
        print(f"{url}: waiting for the verdict", flush=True)
        comparison = bad_deploy(url)
        time.sleep(AFTERWARDS)
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        for name in wanted.names or VIEWS:
            address, (width, height) = VIEWS[name]
            page = browser.new_page(
                viewport={"width": width, "height": height}, color_scheme="light", reduced_motion="reduce"
            )
            page.goto(url + address.format(comparison=comparison))
            page.wait_for_timeout(SETTLE * 1000)
            path = wanted.folder / f"{name}.png"
            page.screenshot(path=path)
            page.close()
            few_colours(Image.open(path).convert("RGB")).save(path, optimize=True)
            size = path.stat().st_size
            print(f"{path}: {size / 1000:.0f} kB", flush=True)
            if size >= MOST_BYTES:
                print(f"{path}: must be below {MOST_BYTES / 1000:.0f} kB", file=sys.stderr)
                status = 1
        browser.close()
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
