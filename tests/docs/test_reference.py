"""docs/reference/ is what the code says now, and its JSON schema judges files as the program does."""

from __future__ import annotations

import functools
import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import jsonschema_rs
import pytest

from docs.make.pages import FOLDER, made
from streameval.settings.toml import load, to_toml
from streameval.settings.tree import ConfigError, Settings

ROOT = Path(__file__).parents[2]
PAGES = functools.cache(made)  # takes long: not when tests are collected
SCHEMA = jsonschema_rs.validator_for(json.loads((FOLDER / "streameval.schema.json").read_text(encoding="utf-8")))


@pytest.mark.parametrize("name", sorted(path.name for path in FOLDER.iterdir()))
def test_a_page_is_up_to_date(name: str) -> None:
    text = (FOLDER / name).read_text(encoding="utf-8")
    assert text == PAGES()[name], f"docs/reference/{name} is not up to date; run `python -m docs.make`"


def test_every_page_is_in_the_folder_and_nothing_else() -> None:
    assert {path.name for path in FOLDER.iterdir()} == set(PAGES())


@pytest.mark.slow
def test_the_command_says_that_all_is_up_to_date() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "docs.make", "--check"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_every_key_says_what_it_means_and_no_option_is_silent() -> None:
    for name in ("configuration.md", "commands.md"):
        for row in (FOLDER / name).read_text(encoding="utf-8").splitlines():
            if row.startswith("| `"):
                assert not row.endswith("|  |"), row


def example_files() -> list[Path]:
    return sorted((ROOT / "deploy").rglob("*.toml"))


@pytest.mark.parametrize("path", example_files(), ids=lambda path: str(path.relative_to(ROOT)))
def test_the_schema_accepts_the_examples(path: Path) -> None:
    SCHEMA.validate(tomllib.loads(path.read_text(encoding="utf-8")))


def test_the_schema_accepts_the_readme_and_the_defaults() -> None:
    blocks = re.findall(r"```toml\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.DOTALL)
    assert blocks
    for text in [*blocks, to_toml(Settings())]:
        SCHEMA.validate(tomllib.loads(text))


@pytest.mark.parametrize(
    "text",
    [
        "[join]\nattribution_window = 0",
        "[join]\nattribution_window = 30",
        '[join]\nattribution_window = "30"',
        '[join]\nattribution_window = "1.5h"',
        '[join]\ncorrection_horizon = "2d"',
        "[join]\ncorrection_horizon = 0",
        '[join]\nscore_at = "click"',
        "[join]\nmax_pending = 999",
        '[windows]\nsliding = ["5m", "1x"]',
        '[users]\nmemory = "1GiB"',
        '[users]\nmemory = "512mb"',
        '[users]\nmemory = "1 TB"',
        "[users]\nmemory = 1000000",
        "[server]\nport = 65536",
        "[server]\nhots = 1",
        "[compare]\nalpha = 0.5",
        "[compare]\nalpha = 0.49",
        "[compare.margins]\nauc = 0.002",
        "[compare.margins]\nctr = 0.002",
        '[[models]]\nname = "m"\nkind = "ftrl"\nbits = 30',
        '[[models]]\nname = "m"\nkind = "river"',
        '[[models]]\nname = "m"\nkind = "river"\nfactory = "river.linear_model.LogisticRegression"',
        '[[models]]\nname = "m"\nkind = "xgboost"',
        "[nonsense]\na = 1",
    ],
)
def test_the_schema_judges_as_the_program_does(tmp_path: Path, text: str) -> None:
    path = tmp_path / "streameval.toml"
    path.write_text(text, encoding="utf-8")
    try:
        load(path)
    except ConfigError:
        usable = False
    else:
        usable = True
    assert SCHEMA.is_valid(tomllib.loads(text)) == usable
