"""Completion in the real shells: the script is loaded as the docs say, and the Tab key is pressed."""

from __future__ import annotations

import os
import pty
import re
import select
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

TAB = "\t"


@pytest.fixture
def home(tmp_path: Path) -> dict[str, str]:
    """An environment with `streameval` on its path, and a folder with a config."""
    program = tmp_path / "bin" / "streameval"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -c "from streameval.commands.cli import main; main()" "$@"\n')
    program.chmod(0o755)
    (tmp_path / "nightly.toml").write_text("")
    kept = {name: os.environ[name] for name in ("PYTHONPATH",) if name in os.environ}
    path = os.pathsep.join([str(program.parent), os.environ["PATH"]])
    return {**kept, "PATH": path, "HOME": str(tmp_path), "TERM": "dumb", "LANG": "C.UTF-8", "PS1": "$ "}


def shell(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        if os.environ.get("STREAMEVAL_REQUIRE_ALL"):
            pytest.fail(f"{name} is not installed")
        pytest.skip(f"install {name}: completion is tried in the real shell")
    return found


class Terminal:
    """A shell at a terminal, in which keys are pressed."""

    def __init__(self, command: list[str], environment: dict[str, str]) -> None:
        self._pid, self._end = pty.fork()
        if self._pid == 0:
            os.chdir(environment["HOME"])
            os.execve(command[0], command, environment)
        self.seen = ""

    def press(self, keys: str, until: str, patience: float = 240.0) -> None:
        """Presses keys, and waits until the text after them holds `until`."""
        begin = len(self.seen)
        os.write(self._end, keys.encode())
        deadline = time.monotonic() + patience
        while not re.search(until, self.seen[begin:]):
            assert time.monotonic() < deadline, f"{until!r} never came: {self.seen[begin:]!r}"
            if select.select([self._end], [], [], 0.5)[0]:
                self.seen += os.read(self._end, 65536).decode(errors="replace").replace("\a", "")

    def close(self) -> None:
        os.close(self._end)
        os.kill(self._pid, 9)
        os.waitpid(self._pid, 0)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "options", "load"),
    [
        ("bash", ["--norc", "--noprofile", "-i"], 'eval "$(streameval completion bash)"'),
        ("zsh", ["-f", "-i"], 'autoload -Uz compinit && compinit -u; eval "$(streameval completion zsh)"'),
    ],
)
def test_the_tab_key_completes_commands_options_and_files(name, options, load, home) -> None:
    terminal = Terminal([shell(name), *options], home)
    try:
        terminal.press(f"{load}; echo rea''dy\n", "ready")
        terminal.press(f"streameval ver{TAB}", "streameval versions ")
        terminal.press(f"--jso{TAB}", "--json ")
        terminal.press("\x15", "")  # the line is taken away
        terminal.press(f"streameval run -c nigh{TAB}", r"nightly\.toml")
        terminal.press("\x15", "")
        terminal.press(f"streameval demo --client kaf{TAB}", "kafka-python")
    finally:
        terminal.close()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("typed", "offered"),
    [("streameval ver", "versions"), ("streameval versions --jso", "--json"), ("streameval demo --client kaf", "kafka-python")],
)  # fmt: skip
def test_fish_offers_commands_options_and_values(typed, offered, home) -> None:
    script = f"streameval completion fish | source; complete -C '{typed}'"
    done = subprocess.run([shell("fish"), "-c", script], env=home, capture_output=True, text=True, check=True)
    assert offered in [line.split("\t")[0] for line in done.stdout.splitlines()], done
