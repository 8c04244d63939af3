"""A real Chromium, driven by Playwright, and monitors for it to look at."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, sync_playwright

from streameval.results.snapshot import Snapshot
from tests.browser.serving import Serving
from tests.browser.watching import PATIENCE, Watched, ask, until

ROOT = Path(__file__).parents[2]
NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
# of a list of its own Playwright's is lost, so it is written out; the first two are pages behind the address bar, which
# nobody sees: a process each with every window, and half of its processor time
WITHOUT = [
    "WebUIOmniboxPopup", "WebUIOmniboxAimPopup", "AimEnabled", "AvoidCorsURLLoaderRestartOnRedirect",
    "AvoidUnnecessaryBeforeUnloadCheckSync", "DestroyProfileOnBrowserClose", "HttpsFirstBalancedModeAutoEnable", "HttpsUpgrades",
    "LensOverlay", "MediaRouter", "NetworkTimeServiceQuerying", "OptimizationHints", "PaintHolding", "PreconnectToSearch",
    "ThirdPartyStoragePartitioning",
]  # fmt: skip
# no sandbox: tests may run as root; the rest keeps Chromium from asking its makers anything
FLAGS = [
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", f"--disable-features={','.join(WITHOUT)}",
]  # fmt: skip


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Debian's Chromium, or another of its family on the PATH.

    Of a module: while Playwright is there, nobody else can run an event loop in this thread.
    """
    path = next((found for name in NAMES if (found := shutil.which(name))), None)
    if path is None:
        said = f"no Chromium on the PATH (looked for {', '.join(NAMES)})"
        if os.environ.get("STREAMEVAL_REQUIRE_ALL") == "1":
            pytest.fail(said)
        pytest.skip(said)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture
def watch(browser: Browser) -> Iterator[Callable[..., Watched]]:
    """`watch(address, width=, height=, theme=)`: a page that must have had no error in the end (`.errors` is checked)."""
    opened: list[tuple[Any, Watched]] = []

    def make(address: str, width: int = 1280, height: int = 800, theme: Any = "light", **more: Any) -> Watched:
        context = browser.new_context(viewport={"width": width, "height": height}, color_scheme=theme, **more)
        context.set_default_timeout(PATIENCE * 1000)
        page = Watched(context.new_page(), address)
        opened.append((context, page))
        return page

    yield make
    errors = []
    for context, page in opened:
        errors += page.errors
        context.close()
    assert not errors


@pytest.fixture(scope="module")
def young(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a `streameval demo` that has just begun, for a module's first test."""
    said = tmp_path_factory.mktemp("demo") / "said"
    with said.open("wb") as out:  # not a pipe: nobody reads on, and a full one would stop the demo
        process = subprocess.Popen(
            [sys.executable, "-m", "streameval", "demo", "--port", "0"], stderr=out, stdout=out, cwd=ROOT
        )
    try:
        yield until(lambda: re.search(r"page\s+(http://\S+?)/?\s", said.read_text()))[1]
    finally:
        process.terminate()
        process.wait(PATIENCE)


@pytest.fixture(scope="module")
def demo(young: str) -> str:
    """The address of a running `streameval demo` whose bad deploy has its verdict."""
    until(lambda: worse(young))
    return young


def worse(address: str) -> bool:
    """Whether the bad deploy has its verdict. Asked without a filter: who asks for an unknown version gets a 404."""
    return any(
        c["candidate"]["version"] == "v2" and c["verdict"] == "worse"
        for c in ask(address, "comparisons")["comparisons"]
    )


@pytest.fixture(scope="module")
def pictures() -> Path:
    """Where screenshots are kept: CI keeps the folder."""
    folder = Path(os.environ.get("BROWSER_PICTURES", ROOT / "build" / "pictures"))
    folder.mkdir(parents=True, exist_ok=True)
    return folder


@pytest.fixture
def shown() -> Iterator[Callable[[Snapshot], str]]:
    """`shown(snapshot)`: the address of a page that shows it."""
    servers: list[Serving] = []

    def show(snapshot: Snapshot) -> str:
        servers.append(Serving(snapshot))
        return servers[-1].url

    yield show
    for server in servers:
        server.stop()
