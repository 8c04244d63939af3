"""Reuses results of the last evaluation whose inputs have not changed; for those of slices see `slices`.

A sliding window does not change until its next pane is complete: the cost of a snapshot is proportional to what changed. The
inputs of a result are compared, not guessed from the events; its sums know when they last changed.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import NamedTuple

from streameval.results.result import Result, Span, moved


class _Made(NamedTuple):
    inputs: tuple[object, ...]
    span: Span
    result: Result


class Reuse:
    """Keeps the results of one round for the next; results that a round did not need are dropped."""

    def __init__(self) -> None:
        self._last: dict[Hashable, _Made] = {}
        self._now: dict[Hashable, _Made] = {}

    def begin(self) -> None:
        """Begins a new round."""
        self._last, self._now = self._now, {}

    def known(self, key: Hashable, inputs: tuple[object, ...], span: Span) -> Result | None:
        """The result of `key` in the last round, if its inputs were equal; kept for the next one.

        `span` may be another one: it is in a result, and no number follows from it.
        """
        before = self._last.get(key)
        if before is None or before.inputs != inputs:
            return None
        result = before.result if before.span == span else moved(before.result, span)
        self.keep(key, inputs, span, result)
        return result

    def keep(self, key: Hashable, inputs: tuple[object, ...], span: Span, result: Result) -> None:
        """Keeps a result for the next round."""
        self._now[key] = _Made(inputs, span, result)
