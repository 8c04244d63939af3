"""MkDocs' hooks: the start page is the README, the changelog is CHANGELOG.md, and links may leave docs/.

In the repository a page links to whatever is there, by a relative path. On the site such a link leads to the page made
of that file, or else to the file in the public repository. A link to nothing is an error (and fails the build).
Pages are written for GitHub, where what belongs to a list item stands below its text and a `|` in a table is escaped
even in code; Python-Markdown wants four spaces, and no backslash in code.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
REPOSITORY = "https://github.com/streameval/streameval"
FROM_OUTSIDE = {"index.md": ROOT / "README.md", "changelog.md": ROOT / "CHANGELOG.md"}

_CODE = re.compile(r"`[^`]+`")
_ITEM = re.compile(r"(?:-|\d+\.) ")
_LINK = re.compile(r"(?<=\]\()(?![a-z]+:|#)([^)#\s]+)(#[^)\s]*)?(?=\))")


def on_files(files: Files, config: Any) -> Files:
    """Adds the pages that are made of files outside docs/."""
    for name, source in FROM_OUTSIDE.items():
        files.append(File.generated(config, name, content=source.read_text(encoding="utf-8")))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """The page with its links as the site has them."""
    source = FROM_OUTSIDE.get(page.file.src_uri, DOCS / page.file.src_uri)
    return for_python_markdown(site_links(markdown, source, page.file.src_uri))


def site_links(markdown: str, source: Path, uri: str) -> str:
    """`markdown` of the file `source`, which is the page `uri`, with links for the site. Raises PluginError."""

    def moved(match: re.Match[str]) -> str:
        target = Path(os.path.normpath(source.parent / match[1]))
        if not target.exists():
            raise PluginError(f"{source.relative_to(ROOT)}: there is no {match[1]}")
        return _address(target, uri) + (match[2] or "")

    # every second part is a fenced block, in which nothing is a link
    parts = re.split(r"(^ *```.*?^ *```$)", markdown, flags=re.MULTILINE | re.DOTALL)
    return "".join(part if i % 2 else _LINK.sub(moved, part) for i, part in enumerate(parts))


def for_python_markdown(markdown: str) -> str:
    """`markdown` with what belongs to a list item four spaces in, and a `|` in a table's code as it is."""
    lines, offset, fenced = [], 0, False
    for line in markdown.split("\n"):
        if line.startswith("```"):
            fenced, offset = not fenced, 0
        elif not fenced and (item := _ITEM.match(line)):
            offset = len(item[0])
        elif offset and line.startswith(" " * offset):
            lines.append(" " * 4 + line[offset:])
            continue
        elif line:
            offset = 0
        table = line.startswith("|") and not fenced
        lines.append(_CODE.sub(lambda code: code[0].replace("\\|", "|"), line) if table else line)
    return "\n".join(lines)


def _address(target: Path, uri: str) -> str:
    for name, source in FROM_OUTSIDE.items():
        if target == source:
            return os.path.relpath(name, os.path.dirname(uri) or ".")
    if target.is_relative_to(DOCS) and not target.is_dir():
        return os.path.relpath(target.relative_to(DOCS), os.path.dirname(uri) or ".")
    return f"{REPOSITORY}/{'tree' if target.is_dir() else 'blob'}/main/{target.relative_to(ROOT)}"
