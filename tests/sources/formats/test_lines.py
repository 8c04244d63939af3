"""Lines of a stream, whatever pieces it comes in."""

from __future__ import annotations

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streameval.sources.formats import lines as module
from streameval.sources.formats.lines import KEEP, runs


class Drip(io.BytesIO):
    """Gives at most so many bytes at a time."""

    most = 1

    def read1(self, size: int | None = -1, /) -> bytes:
        return super().read1(min(self.most, size or self.most))


def expected(content: bytes, longest: int) -> list[tuple[bytes, int]]:
    """(line, its size if it is too long), by what a line is."""
    content = content.removeprefix(b"\xef\xbb\xbf")
    lines = content.removesuffix(b"\n").split(b"\n") if content else []
    out = []
    for whole in lines:
        line = whole.removesuffix(b"\r")
        out.append((line[: KEEP * longest], len(line) if len(line) > longest else 0))
    return out


pieces = st.lists(st.sampled_from([b"a", b"bc", b"\n", b"\r", b"\r\n", b"\xef\xbb\xbf", b"x" * 9, b" "]), max_size=40)


@given(pieces, st.integers(1, 12), st.integers(1, 9))
def test_lines_are_separated_by_line_feeds(content: list[bytes], longest: int, most: int) -> None:
    stream = Drip(b"".join(content))
    stream.most = most
    found = list(runs(stream, longest))
    assert [(line, run.size) for run in found for line in run.lines] == expected(b"".join(content), longest)
    number = 0
    for run in found:
        assert run.first == number
        assert len(run.lines) == 1 or not run.size
        number += len(run.lines)


def test_a_stream_that_is_one_endless_line_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    class Endless(io.BytesIO):
        left = 50_000

        def read1(self, size: int | None = -1, /) -> bytes:
            self.left -= 1
            return b"x" * 1000 if self.left > 0 else b""

    monkeypatch.setattr(module, "_BLOCK", 1000)
    (run,) = runs(Endless(), 100)
    assert (run.first, [*run.lines], run.size) == (0, [b"x" * 400], 49_999_000)
