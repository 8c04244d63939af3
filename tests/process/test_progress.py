"""Progress is seen on a terminal only, keeps to one line, and leaves nothing behind."""

from __future__ import annotations

import io
import logging
import re
import sys
import time

import pytest

from streameval.process.progress import ProgressLine, shown


class Screen(io.StringIO):
    """A terminal that keeps what is written to it."""

    def isatty(self) -> bool:
        return True


def test_nothing_is_drawn_where_there_is_no_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = io.StringIO()
    monkeypatch.setattr(sys, "stderr", plain)
    with shown("replay") as line:
        assert line is None
    assert plain.getvalue() == ""


def test_what_ends_soon_shows_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = Screen()
    monkeypatch.setattr(sys, "stderr", screen)
    with shown("replay") as line:
        assert line is not None
        line(0.5, "10 events")
    assert screen.getvalue() == ""


def test_the_line_says_how_far_and_how_long() -> None:
    progress = ProgressLine("replay", Screen())
    assert progress.line(3.0) == "replay: 3 s, the first run on a machine compiles for up to a minute"
    progress(0.25, "1,000 events")
    assert progress.line(10.0) == "replay: [#####---------------]  25%, 1,000 events, 10 s, about 30 s left"
    progress(1.7, "done")
    assert progress.line(10.0) == "replay: [####################] 100%, done, 10 s"


def test_a_line_of_the_log_is_written_on_a_clean_line_and_nothing_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = Screen()
    monkeypatch.setattr(sys, "stderr", screen)
    monkeypatch.setattr(ProgressLine.__init__, "__defaults__", (0.0, "starting"))
    handler = logging.StreamHandler(screen)
    logging.getLogger().addHandler(handler)
    try:
        with shown("replay", "starting"):
            while not re.search(r"replay: \d+ s", screen.getvalue()):
                time.sleep(0.01)
            logging.getLogger("streameval.test").warning("a line")
    finally:
        logging.getLogger().removeHandler(handler)
    assert "\r\x1b[2Ka line\n" in screen.getvalue()
    assert screen.getvalue().endswith(("\r\x1b[2K", "a line\n"))
    assert not handler.filters
