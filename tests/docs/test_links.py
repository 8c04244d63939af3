"""Every link in the repository's texts leads somewhere, and every command in them exists."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import click
import pytest

from docs.take_pictures import MOST_BYTES, VIEWS
from streameval.commands.cli import cli

ROOT = Path(__file__).parents[2]
TEXTS = sorted(
    [
        *ROOT.glob("*.md"),
        *(ROOT / "docs").rglob("*.md"),
        *(ROOT / "deploy").rglob("*.md"),
        *(ROOT / "tests").rglob("*.md"),
    ]
)


def prose(path: Path) -> str:
    """A text without its blocks of code."""
    return re.sub(r"^ *```.*?^ *```$", "", path.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)


def links(path: Path) -> list[str]:
    return re.findall(r"\]\(([^)\s]+)\)", prose(path))


def anchors(path: Path) -> set[str]:
    """As GitHub and MkDocs both make them of headings."""
    headings = re.findall(r"^#+ (.+)$", prose(path), re.MULTILINE)
    return {re.sub(r"\s", "-", re.sub(r"[^\w\s-]", "", heading).strip().lower()) for heading in headings}


@pytest.mark.parametrize("path", TEXTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_link_to_a_file_leads_to_one(path: Path) -> None:
    for link in links(path):
        if re.match(r"[a-z]+:", link):
            continue
        name, _, anchor = link.partition("#")
        target = path.parent / name if name else path
        assert target.exists(), link
        assert target.resolve().is_relative_to(ROOT), f"{link} leads out of the repository"
        if anchor and target.suffix == ".md":
            assert anchor in anchors(target), link


@pytest.mark.parametrize("path", TEXTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_text_has_one_title(path: Path) -> None:
    """Paragraphs had become headings, by a script that commented them out."""
    assert len(re.findall(r"^#(?:[ \t]|$)", prose(path), re.MULTILINE)) <= 1


@pytest.mark.parametrize("path", TEXTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_row_of_a_table_is_a_line(path: Path) -> None:
    assert [line for line in prose(path).split("\n") if line.startswith("|") and not line.endswith("|")] == []


def test_every_picture_is_small_and_shown_somewhere() -> None:
    shown = {
        (path.parent / link).resolve() for path in TEXTS for link in links(path) if link.endswith((".png", ".svg"))
    }
    pictures = set((ROOT / "docs" / "pictures").glob("*"))
    assert pictures == {path for path in shown if path.parent.name == "pictures"}
    for path in pictures:
        assert path.stat().st_size < MOST_BYTES, path
    assert set(VIEWS) <= {path.stem for path in pictures if path.suffix == ".png"}, "run docs/take_pictures.py"


def blocks(path: Path) -> str:
    found = re.findall(
        r"^ *```(?:console|sh|)\n(.*?)^ *```$", path.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL
    )
    return "\n".join(found).replace("\\\n", " ")


def commands(path: Path) -> list[list[str]]:
    """Words of every `streameval ...` that somebody may type, up to where the shell takes over."""
    typed = []
    for line in blocks(path).splitlines():
        for part in re.split(r"&&|\|\||\||;", line.partition("  #")[0]):
            words = part.removeprefix("$ ").split("#")[0].strip()
            if re.match(r"(?:\.venv/bin/)?streameval ", words):
                typed.append(shlex.split(words)[1:])
    return typed


@pytest.mark.parametrize(
    "path", [path for path in TEXTS if path.parent.name != "reference"], ids=lambda path: str(path.relative_to(ROOT))
)
def test_every_command_and_option_in_the_texts_exists(path: Path) -> None:
    for words in commands(path):
        if any(word.isupper() and len(word) > 1 and not word.startswith("-") for word in words[:1]):
            continue  # COMMAND
        command: click.Command = cli
        rest = list(words)
        while rest and isinstance(command, click.Group):
            name = rest.pop(0)
            if name.startswith("-"):
                option = next((p for p in command.params if name in p.opts), None)
                assert option, f"streameval {' '.join(words)}"
                rest = rest[0 if getattr(option, "is_flag", False) else 1 :]
                continue
            assert name in command.commands, f"streameval {' '.join(words)}"
            command = command.commands[name]
        known = {opt for parameter in command.params for opt in parameter.opts} | {"-h", "--help"}
        for word in rest:
            if word.startswith("-") and not re.match(r"-[\d.]", word):
                assert word.split("=")[0] in known, f"streameval {' '.join(words)}"


def test_there_are_commands_to_look_at() -> None:
    assert len(commands(ROOT / "README.md")) >= 6


@pytest.mark.parametrize("path", TEXTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_module_and_target_in_the_texts_exists(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    for module in re.findall(r"python3? -m ((?:tests|benchmarks|docs|streameval)[\w.]*\w)", text):
        place = ROOT / module.replace(".", "/")
        assert place.with_suffix(".py").exists() or (place / "__main__.py").exists(), module
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    for target in re.findall(r"`make ([a-z-]+)|^make ([a-z-]+)", text, re.MULTILINE):
        assert set(target) & targets, target
