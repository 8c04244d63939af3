"""A real PostgreSQL for the tests: Debian's package `postgresql`, with its data in a folder of its own, on a free port.

It refuses to run as root, so root starts it as `postgres` or `nobody`. Passwords are asked for, as in production.
"""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import Any

from tests.ports import free_port

PATIENCE = 240.0  # seconds, on a slow machine
USER, PASSWORD = "writer", "hush-of-tests"


def programs() -> Path | None:
    """The folder of `initdb` and `postgres`: on the PATH, or where Debian has the newest one."""
    for name in [
        shutil.which("initdb"),
        *sorted(map(str, Path("/usr/lib/postgresql").glob("*/bin/initdb")), reverse=True),
    ]:
        if name is not None:
            return Path(name).resolve().parent
    return None


class Postgres:
    """A running one, until the end of the block; it may be stopped and started in between."""

    def __init__(self, found: Path) -> None:
        """`found`: the programs."""
        self._programs = found
        self._folder = Path(tempfile.mkdtemp(prefix="streameval-postgres-"))  # pytest's own are closed to other users
        self._process: subprocess.Popen[bytes] | None = None
        self.port = free_port()
        self._as: dict[str, Any] = {"cwd": self._folder}
        if os.geteuid() == 0:
            who = {entry.pw_name: entry for entry in pwd.getpwall()}
            entry = who.get("postgres") or who["nobody"]
            self._as |= {"user": entry.pw_uid, "group": entry.pw_gid, "extra_groups": []}
            os.chown(self._folder, entry.pw_uid, entry.pw_gid)

    def url(self, password: str = PASSWORD, database: str = "postgres") -> str:
        """Its address for SQLAlchemy."""
        return f"postgresql+psycopg://{USER}:{password}@127.0.0.1:{self.port}/{database}"

    def __enter__(self) -> Postgres:
        try:
            secret = self._folder / "password"
            secret.write_text(PASSWORD)
            data = self._folder / "data"
            making = [self._programs / "initdb", "-D", data, "-U", USER, "-A", "scram-sha-256", "--pwfile", secret]
            done = subprocess.run(
                [*making, "-E", "UTF8", "--no-sync"], capture_output=True, text=True, check=False, **self._as
            )
            assert done.returncode == 0, done.stderr
            self.start()
        except BaseException:
            shutil.rmtree(self._folder)
            raise
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self.stop()
        shutil.rmtree(self._folder)

    def start(self) -> None:
        """Returns once it takes connections."""
        command = [self._programs / "postgres", "-D", self._folder / "data", "-h", "127.0.0.1", "-p", str(self.port)]
        own = ["-k", self._folder, "-c", "fsync=off", "-c", "timezone=Asia/Kolkata"]  # not the zone of the tests
        with (self._folder / "log").open("ab") as log:
            self._process = subprocess.Popen([*command, *own], stdout=log, stderr=log, **self._as)
        deadline = time.monotonic() + PATIENCE
        while not self._answers():
            said = (self._folder / "log").read_text()[-2000:]
            assert self._process.poll() is None, said
            assert time.monotonic() < deadline, said
            time.sleep(0.05)

    def crash(self) -> None:
        """Ends it without a word."""
        self.stop(signal.SIGQUIT)

    def stop(self, how: signal.Signals = signal.SIGINT) -> None:
        """Ends it: every connection is cut."""
        if self._process is not None:
            self._process.send_signal(how)
            self._process.wait(PATIENCE)
            self._process = None

    @property
    def down(self) -> bool:
        """Whether it was stopped."""
        return self._process is None

    def freeze(self, frozen: bool) -> None:
        """It takes connections and says nothing, or goes on."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP if frozen else signal.SIGCONT)

    def _answers(self) -> bool:
        ready = [self._programs / "pg_isready", "-q", "-h", "127.0.0.1", "-p", str(self.port)]
        return subprocess.run(ready, check=False).returncode == 0
