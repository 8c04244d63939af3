"""What can go wrong with the store."""

from __future__ import annotations


class StoreError(RuntimeError):
    """The store cannot be read or written; what was there before is untouched. The message names file, cause and fix."""


class Fenced(RuntimeError):  # noqa: N818  # what happened, not a defect
    """Another worker owns the partition now: nothing was written, and nothing of it may be written from here again."""
