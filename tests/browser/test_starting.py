"""The page of a monitor that is being started: it waits for it by itself."""

from __future__ import annotations

import pytest

from streameval.process.opening import Opening
from streameval.results.publish import Publisher
from streameval.server import create_app
from streameval.server.http.serve import serve
from streameval.settings.server import Server
from tests.server.conftest import Build

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


def test_a_page_that_was_opened_before_the_program_was_loaded_becomes_the_view_asked_for(watch) -> None:
    """Also with a fragment, where a browser takes `meta refresh` for a way within the page."""
    with Opening("127.0.0.1", 0) as opening:
        address = f"http://127.0.0.1:{opening.port}"
        watched = watch(address)
        page = watched.page
        page.goto(f"{address}/#/overview?window=all")
        assert "its program is being loaded" in page.inner_text("p")
        page.wait_for_timeout(1500)
        assert "its program is being loaded" in page.inner_text("p")
        server = serve(
            create_app(Publisher(Build().snapshot()), Server(), version="test"), "127.0.0.1", 0, opening=opening
        )
        try:
            page.wait_for_selector("#connection[data-state=live]")
            assert page.url == f"{address}/#/overview?window=all"
        finally:
            server.stop()
