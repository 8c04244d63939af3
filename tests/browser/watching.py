"""What browser tests look through: a page of which every error is remembered, and the API beside it."""

from __future__ import annotations

import json
import time
import urllib.request
from collections.abc import Callable
from typing import Any

from playwright.sync_api import Page, Request, Response

PATIENCE = 240.0  # seconds for anything awaited here, on a slow machine
BUSY = "the server responded with a status of 503"  # the browser's own line on a 503, whatever the page makes of it

# whether the heading is that of a view, as its link has it
SHOWN = """(view) => {
  const link = document.querySelector(`#views a[data-view=${view}]`);
  return link?.textContent === document.querySelector("main h1")?.textContent;
}"""


class Watched:
    """A page of which every error is remembered."""

    def __init__(self, page: Page, address: str) -> None:
        self.page, self.address = page, address
        self.errors: list[str] = []
        page.on(
            "console",
            lambda message: message.type == "error" and BUSY not in message.text and self.errors.append(message.text),
        )
        page.on("pageerror", lambda error: self.errors.append(str(error)))
        page.on("requestfailed", self._failed)
        page.on("request", self._asked)
        page.on("response", self._answered)

    def open(self, view: str) -> Page:
        """Goes to a view, and waits until it shows the first snapshot. The view before stays until another one is loaded."""
        self.page.goto(f"{self.address}/#/{view}")
        self.page.wait_for_selector("#connection[data-state=live]")
        self.page.evaluate("new Promise((done) => setTimeout(done))")  # it has heard of another address
        self.page.wait_for_function(SHOWN, arg=view.split("?", maxsplit=1)[0])
        return self.page

    def _answered(self, response: Response) -> None:
        # a server that is asked for too much at once says when to come again, and the page does (`patient` in api.js)
        later = response.status == 503 and "retry-after" in response.headers
        if response.status >= 400 and not later:
            self.errors.append(f"{response.status} {response.url}")

    def _failed(self, request: Request) -> None:
        # a question that was overtaken is ended by the page itself, a stream by its going away
        if request.failure != "net::ERR_ABORTED":
            self.errors.append(f"{request.url}: {request.failure}")

    def _asked(self, request: Request) -> None:
        if not request.url.startswith((self.address, "blob:", "data:")):
            self.errors.append(f"outside: {request.url}")


def ask(address: str, path: str) -> Any:
    """An answer of the API."""
    with urllib.request.urlopen(f"{address}/api/v1/{path}", timeout=PATIENCE) as answer:
        return json.load(answer)


def until(done: Callable[[], Any], seconds: float = PATIENCE) -> Any:
    """Waits for something to be true, and returns it."""
    deadline = time.monotonic() + seconds
    while True:
        found = done()
        if found:
            return found
        assert time.monotonic() < deadline, "it did not come"
        time.sleep(0.2)


def first_event(address: str) -> bytes:
    """The first event of the stream."""
    lines: list[bytes] = []
    with urllib.request.urlopen(f"{address}/api/v1/stream", timeout=PATIENCE) as stream:
        for line in stream:
            if not line.strip() and lines:
                break
            lines.append(line)
    return b"".join(lines)
