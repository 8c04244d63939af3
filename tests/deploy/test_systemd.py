"""deploy/systemd/streameval.service: systemd takes it, finds it hardened, and it fits the program."""

from __future__ import annotations

import re
import shlex
import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner

from streameval.commands.cli import cli
from streameval.settings.tree import Settings
from tests.deploy.manifests import DEPLOY
from tests.integration.alerting import need

UNIT = DEPLOY / "systemd" / "streameval.service"
EXPOSURE = 15  # of 100, by `systemd-analyze security`: 13 with systemd 252


def said(key: str) -> list[str]:
    """All values of a directive."""
    return re.findall(rf"^{key}=(.*)$", UNIT.read_text(), re.MULTILINE)


@pytest.fixture
def unit(tmp_path: Path) -> Path:
    """The unit with a program that exists here."""
    path = tmp_path / UNIT.name
    path.write_text(UNIT.read_text().replace("/opt/streameval/bin/streameval", "/bin/true"))
    return path


def test_systemd_takes_it(unit: Path) -> None:
    need("systemd-analyze")
    command = ["systemd-analyze", "verify", "--man=no", str(unit)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, [line for line in done.stderr.splitlines() if unit.name in line]) == (0, []), done.stderr


def test_systemd_finds_it_hardened(unit: Path) -> None:
    need("systemd-analyze")
    command = ["systemd-analyze", "security", "--offline=true", "--no-pager", f"--threshold={EXPOSURE}", str(unit)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr


def test_the_file_system_is_read_only_and_no_privilege_can_be_won() -> None:
    wanted = {"ProtectSystem": "strict", "ProtectHome": "yes", "NoNewPrivileges": "yes", "DynamicUser": "yes"}
    assert {key: said(key) for key in wanted} == {key: [value] for key, value in wanted.items()}


def test_its_commands_are_understood() -> None:
    for line in said("ExecStart") + said("ExecStartPre"):
        program, *words = shlex.split(line)
        assert program == "/opt/streameval/bin/streameval"
        done = CliRunner().invoke(cli, [*words[: words.index("-c")], "--help"])
        assert done.exit_code == 0, done.output
        assert words[-2] == "-c"


def test_a_stop_has_the_time_to_write_and_a_failure_begins_again() -> None:
    (seconds,) = said("TimeoutStopSec")
    assert int(seconds) * 1000 > Settings().store.drain_timeout
    assert said("Restart") == ["on-failure"]
    assert said("KillSignal") == ["SIGTERM"]


def test_the_folders_and_the_token_are_where_the_settings_look() -> None:
    """%S, %C and %d are /var/lib, /var/cache and the credentials' folder of a system service."""
    production = (DEPLOY / "examples" / "production.toml").read_text()
    assert f'"/var/lib/{said("StateDirectory")[0]}"' in production
    environment = " ".join(said("Environment"))
    assert f"NUMBA_CACHE_DIR=%C/{said('CacheDirectory')[0]}" in environment
    name, _, _ = said("LoadCredential")[0].partition(":")
    assert f"STREAMEVAL_SERVER__TOKEN_FILE=%d/{name}" in environment
