"""One name for one thing: phrases that were given up for the field's terms stand nowhere that people read."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
# given up -> what is said in its place
RETIRED = {
    "clicks that found their impression": "click match rate",
    "could not be read": "invalid events",
    "came twice": "duplicate",
    "impressions that expired": "expired impressions",
    "forgotten early": "evicted early",
    "events by fate": "event outcomes",
    "further from 1 by": "calibration error increase",
    "for whom": "breakdown",
    "mix or model": "traffic mix vs. model",
    "early readings": "preliminary estimates",
    "shift of the scores": "score shift",
    "not proven": "not significant",
    "looked at": "last updated",
    "promises too much": "over-predicts",
    "users drawn anew": "user-clustered",
    "all looks at once": "at all moments at once",
    "where time goes": "processing time by stage",
    "took in the background": "write time",
    "restored never": "not restored",
    "a fault of the program": "internal error",
    "cannot be asked": "unreachable",
    "from where on lines are logged": "minimum log level",
    "numbers believable": "labels reliable",
    "labels late by": "label delay",
    "going on for": "comparison age",
    "fullest table": "highest table utilisation",
    "snapshot is old": "snapshot age",
    "lost in the shown time": "events lost",
    "what becomes of clicks": "click outcomes",
    "is tried again": "retrying",
    "are tried again": "retried",
    "are not configured any more": "are no longer configured",
    "make it first": "create it first",
    "mend or": "fix or",
    "settings in force": "effective settings",
    "left memory": "evicted from memory",
}
PAGE = ROOT / "streameval" / "server" / "page"
READ = {
    "page": [path for kind in ("*.js", "*.html") for path in PAGE.rglob(kind) if "vendor" not in path.parts],
    "commands": [
        *sorted((ROOT / "streameval" / "commands").rglob("*.py")),
        *sorted((ROOT / "streameval" / "face").rglob("*.py")),
    ],
    "outlets and sources": [
        *sorted((ROOT / "streameval" / "outlets").rglob("*.py")),
        *sorted((ROOT / "streameval" / "sources").rglob("*.py")),
    ],
    "dashboards": sorted((ROOT / "dashboards").rglob("*.json")),
    "docs": [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))],
    "alerts": sorted((ROOT / "deploy" / "prometheus").rglob("*.yml")),
}


COMMENTS = {".js": r"^\s*//.*$|\s// .*$", ".py": r"#.*$"}


def spoken(text: str, kind: str) -> str:
    """What people read of a file of this kind: without comments of code, spaces as one."""
    return " ".join(re.sub(COMMENTS.get(kind, r"$^"), "", text, flags=re.MULTILINE).lower().split())


@pytest.mark.parametrize("where", READ)
def test_no_retired_phrase_is_left(where: str) -> None:
    files = [path for path in READ[where] if path.exists()]
    assert files
    found = [
        f"{path.relative_to(ROOT)}: {phrase!r}; say {instead!r}"
        for path in files
        for text in (spoken(path.read_text(encoding="utf-8"), path.suffix),)
        for phrase, instead in RETIRED.items()
        if phrase in text
    ]
    assert not found, "\n".join(found)


def test_a_retired_phrase_is_found_but_for_comments() -> None:
    assert "came twice" in spoken('// came twice\nh("dt", {}, "Clicks that came  twice")', ".js")
    assert "came twice" not in spoken("// came twice", ".js")
