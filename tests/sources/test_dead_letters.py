"""Dead letters in a file that is none."""

from __future__ import annotations

import os
from pathlib import Path

from streameval.sources.dead_letters import JsonlDeadLetters
from streameval.sources.protocol import DeadLetter


def test_letters_may_go_to_a_pipe_which_has_no_disk_to_wait_for(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    letters = JsonlDeadLetters(pipe)
    letters.write([DeadLetter(b"{", "malformed", "", "not JSON", "events.jsonl", 0, 0)])
    letters.flush()
    assert b'"reason":"malformed"' in os.read(reader, 1000)
    letters.close()
    os.close(reader)
