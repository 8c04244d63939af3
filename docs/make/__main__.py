"""`python -m docs.make` writes docs/reference/ and what the page explains; `--check` only fails if something is not up to date."""

from __future__ import annotations

import sys

from docs.make import terms
from docs.make.pages import FOLDER, made


def main(arguments: list[str]) -> int:
    """Exit status: 0 written or up to date, 1 not up to date, 2 wrong usage."""
    if arguments not in ([], ["--check"]):
        print("usage: python -m docs.make [--check]", file=sys.stderr)
        return 2
    status = 0
    for path, text in [*((FOLDER / name, text) for name, text in made().items()), (terms.PATH, terms.module())]:
        if path.exists() and path.read_text(encoding="utf-8") == text:
            continue
        if arguments:
            print(f"{path}: not up to date; run `python -m docs.make`", file=sys.stderr)
            status = 1
        else:
            path.parent.mkdir(exist_ok=True)
            path.write_text(text, encoding="utf-8")
            print(f"written: {path}")
    return status


sys.exit(main(sys.argv[1:]))
