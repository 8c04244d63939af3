"""What the page explains in place: the rows of docs/glossary.md that its modules name by `term("...")`."""

from __future__ import annotations

import json
import re
from pathlib import Path

_ROOT = Path(__file__).parents[2]
_GLOSSARY = _ROOT / "docs" / "glossary.md"
_PAGE = _ROOT / "streameval" / "server" / "page"
PATH = _PAGE / "terms.js"
_HEAD = (
    "// Made of docs/glossary.md by `python -m docs.make`; do not edit. Term -> [meaning, section of the glossary].\n"
)


def module() -> str:
    """The module. Raises KeyError for a term that the glossary does not have."""
    known = glossary()
    named = sorted({name for path in _PAGE.rglob("*.js") for name in _named(path)})
    lines = [f"  {json.dumps(name)}: {json.dumps(known[name], ensure_ascii=False)},\n" for name in named]
    return f"{_HEAD}export const TERMS = {{\n{''.join(lines)}}};\n"


def glossary() -> dict[str, tuple[str, str]]:
    """Meaning and the section's anchor by term."""
    section, found = "", {}
    for line in _GLOSSARY.read_text(encoding="utf-8").splitlines():
        if line.startswith("#"):
            section = re.sub(r"[^a-z0-9 -]", "", line.lstrip("# ").lower()).replace(" ", "-")
        elif match := re.fullmatch(r"\| (.+?) \| (.+) \|", line):
            for name in match[1].replace("`", "").split(", "):
                found.setdefault(name, (_plain(match[2]), section))
    return found


def _plain(text: str) -> str:
    """A cell without its code marks and links."""
    return re.sub(r"\[([^\]]+)\]\([^)]+\)", r"\1", text.replace("`", ""))


def _named(path: Path) -> list[str]:
    return re.findall(r'\bterm\("([^"]+)"', path.read_text(encoding="utf-8"))
