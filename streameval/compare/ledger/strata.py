"""Which impressions are placed among each other (see `placements`): over all partitions of a process, in event time.

A stratum belongs to one version that served, or to one pair: it is a run of panes in a segment (usually an hour). It
closes with the segment, or at the first look at which it contains enough labels. So it depends only on the partitions'
labels by pane, not on the number of partitions or on when results were read. The labels of closed strata are kept for a
while, for a partition that was restored from an older checkpoint and counts the same panes again; those of entire
segments are kept for corrections.

Corrections are placed by the labels with which their stratum closed. The errors of its two curves cancel, unless it had
next to no clicks: then nothing is known of S1, and F0 has later clicks among its non-clicks. So a stratum with far fewer
clicks than its model has in the same segment stays open until nothing in it can be corrected.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any

import numpy as np

from streameval.compare.ledger.curves import Curve, Labels, LabelTable, curves_of, dense
from streameval.compare.ledger.ledger import Ledger
from streameval.compare.ledger.numbering import Key
from streameval.compare.ledger.placements import BINS, Row, ScoreCodes
from streameval.events.durations import HOUR
from streameval.sketches.grid import PART_BITS
from streameval.sketches.sparse import SparseVector

_ENOUGH = 500  # clicks at which a stratum closes: its AUC is then as good as that of a longer one
_MOST = 1 << 18  # scores kept as codes per stratum, and of those of a key that stay open
_EXPECTED, _FEW = 30.0, 0.1  # clicks at the CTR of its model; the share of them below which a stratum stays open
REMEMBERED = 64  # closed strata whose labels are kept

Gains = dict[tuple[int, Key], Row]  # by segment
_Held = tuple[Ledger, int]  # (ledger, row) that has scores to place
_Piece = tuple[int, Ledger, int]  # pane, and row of a ledger


@dataclass(slots=True)
class _Closed:
    """The closed strata of a key: the i-th ends before pane `ends[i]`, where the next one begins."""

    first: int  # pane from which `ends` is known
    ends: list[int]
    labels: list[SparseVector]


class Strata:
    """The strata of all partitions of a process."""

    def __init__(self, pane: int, horizon: int, model_of: Callable[[int], str]) -> None:
        """`pane` and `horizon` (of corrections) in ms; `model_of`: returns the model of a series, by its code."""
        self._horizon, self._model_of = -(-horizon // pane), model_of
        self._kept = self._horizon + 2 * -(-HOUR // pane)  # panes for which a segment's labels are kept
        self._closed: dict[Key, _Closed] = {}
        # the first pane of strata that stay open though their segment is over, by segment
        self._awaiting: dict[Key, dict[int, int]] = {}
        self._segments: dict[tuple[int, Key], SparseVector] = {}
        self._table = LabelTable()
        self._newest: dict[Key, tuple[int, Labels]] = {}  # of the last segment of each key: these grow with every pane

    def settle(self, ledgers: Sequence[Ledger], end: int, close: bool = True, over: bool = False) -> Gains:
        """Places the scores that can be placed once `advance` has moved all panes before `end`; returns what is added
        to rows.

        `close`: whether strata may close now; `over`: all of them do, because the stream has ended.
        """
        gains: Gains = {}
        for key, held in _rows(ledgers).items():
            if not self._moves(key, held, end, close, over):
                continue
            placed: dict[int, list[_Piece]] = {}
            still: dict[int, list[_Piece]] = {}
            scores, clicks = 0, 0
            for pane, ledger, row, n, y in _panes(held):
                segment = ledger.bounds.first(pane)
                if self._covers(key, pane, segment):  # counted again, or corrected
                    placed.setdefault(segment, []).append((pane, ledger, row))
                    continue
                still.setdefault(segment, []).append((pane, ledger, row))
                if end < ledger.bounds.end(segment):
                    scores, clicks = scores + n, clicks + y
            for segment, pieces in placed.items():
                self._place_again(gains, key, segment, pieces)
            for segment, pieces in sorted(still.items()):
                last = ledgers[0].bounds.end(segment)
                until = min(end, last)
                if close and (until == last or over or clicks >= _ENOUGH or scores >= _MOST):
                    if until == last and self._awaits(ledgers, key, segment, held, pieces, end, over=over):
                        continue
                    labels, core = self._counted(key, pieces)
                    self._close(key, segment, min(pane for pane, _, _ in pieces), until, labels)
                    self._place(gains, key, segment, pieces, core, labels)
        self._forget(end)
        return gains

    def so_far(self, ledgers: Sequence[Ledger], keys: Iterable[Key]) -> Gains:
        """Returns the sums of open strata of some rows, placed by the labels known so far."""
        wanted = set(keys)
        out: Gains = {}
        for key, held in _rows(ledgers).items():
            if key not in wanted:
                continue
            by_segment: dict[int, list[ScoreCodes]] = {}
            for pane, ledger, row, _, _ in _panes(held):
                by_segment.setdefault(ledger.bounds.first(pane), []).append(ledger.open.of(pane, row))
            for segment, codes in by_segment.items():
                whole = np.concatenate(codes)
                self._table.add(whole, key[1] >= 0)
                labels, core = self._table.take()
                curves = ledgers[0].pieces.curves(core, labels, key[1] >= 0)
                out[segment, key] = ledgers[0].placed(key, whole, curves)
        return out

    def clear(self, series: int) -> None:
        """Forgets a series, so that its code can be reused."""
        self._closed = {key: closed for key, closed in self._closed.items() if series not in key}
        self._segments = {where: labels for where, labels in self._segments.items() if series not in where[1]}
        self._newest = {key: newest for key, newest in self._newest.items() if series not in key}
        self._awaiting = {key: some for key, some in self._awaiting.items() if series not in key}

    # -- checkpoints ---------------------------------------------------------------------------------------------

    def state(self, name: Callable[[int], Any]) -> dict[str, Any]:
        """Returns everything, for `restore`; `name`: returns a series as plain values, by its code."""

        def named(key: Key) -> list[Any]:
            return [name(code) if code >= 0 else None for code in key]

        return {
            "bins": BINS,
            "closed": [
                [named(key), one.first, list(one.ends), [[v.cells, v.values] for v in one.labels]]
                for key, one in self._closed.items()
            ],
            "segments": [
                [segment, named(key), v.cells, v.values]
                for (segment, key), v in sorted(self._of_segments().items(), key=itemgetter(0))
            ],
            "awaiting": [[named(key), sorted(some.items())] for key, some in sorted(self._awaiting.items())],
        }

    def restore(self, state: Mapping[str, Any], code: Callable[[Any], int | None]) -> None:
        """Replaces everything by what `state` returned; `code`: returns a series' code, or None if it no longer
        exists.
        """

        def key_of(names: Sequence[Any]) -> Key | None:
            served, other = (-1 if name is None else code(name) for name in names)
            return None if served is None or other is None else (served, other)

        def vector(cells: Any, values: Any) -> SparseVector:
            # an older checkpoint has entire bins: read as their first part, like the waiting codes in it
            return SparseVector(cells if "bins" in state else cells << PART_BITS, values)

        self._closed, self._segments, self._newest = {}, {}, {}
        for names, first, ends, labels in state["closed"]:
            key = key_of(names)
            if key is not None:
                self._closed[key] = _Closed(first, list(ends), [vector(a, b) for a, b in labels])
        for segment, names, cells, values in state["segments"]:
            key = key_of(names)
            if key is not None:
                self._segments[segment, key] = vector(cells, values)
        self._awaiting = {}
        for names, some in state.get("awaiting", []):  # older checkpoints have none
            key = key_of(names)
            if key is not None:
                self._awaiting[key] = dict(map(tuple, some))

    @property
    def nbytes(self) -> int:
        """Size in bytes of the labels that are kept."""
        kept = sum(v.nbytes for one in self._closed.values() for v in one.labels)
        newest = sum(labels.nbytes for _, labels in self._newest.values())
        return kept + newest + sum(v.nbytes for v in self._segments.values())

    # -- inside --------------------------------------------------------------------------------------------------

    def _moves(self, key: Key, held: Sequence[_Held], end: int, close: bool, over: bool) -> bool:
        """Whether any scores of a key can be placed, without going through its panes, because usually none can."""
        first = min(ledger.open.first(row) for ledger, row in held)
        if key in self._awaiting or self._covers(key, first, held[0][0].bounds.first(first)):
            return True
        if not close or over or end >= held[0][0].bounds.end(held[0][0].bounds.first(first)):
            return close
        scores, clicks = map(sum, zip(*(ledger.open.total(row) for ledger, row in held), strict=True))
        return clicks >= _ENOUGH or scores >= _MOST

    def _covers(self, key: Key, pane: int, segment: int) -> bool:
        """Whether the stratum of a pane of a segment has closed."""
        awaiting = self._awaiting.get(key, {}).get(segment)
        return key in self._closed and pane < (self._closed[key].ends[-1] if awaiting is None else awaiting)

    def _awaits(
        self,
        ledgers: Sequence[Ledger],
        key: Key,
        segment: int,
        held: Sequence[_Held],
        pieces: Sequence[_Piece],
        end: int,
        *,
        over: bool,
    ) -> bool:
        """Whether a stratum whose segment is over stays open, as its clicks seem to come late."""
        last, awaiting = ledgers[0].bounds.end(segment), self._awaiting.get(key, {})
        if segment not in awaiting:
            scores, clicks = map(sum, zip(*(ledger.open.many(pane, row) for pane, ledger, row in pieces), strict=True))
            expected = scores * self._ctr(ledgers, key, segment)
            if expected < _EXPECTED or clicks >= _FEW * expected:
                return False
            begun = self._closed[key].ends[-1] if key in self._closed else segment
            awaiting = self._awaiting.setdefault(key, {})
            awaiting[segment] = max(segment, begun)
        if not over and end < last + self._horizon and sum(ledger.open.total(row)[0] for ledger, row in held) <= _MOST:
            return True
        del awaiting[segment]
        if not awaiting:
            del self._awaiting[key]
        return False

    def _ctr(self, ledgers: Sequence[Ledger], key: Key, segment: int) -> float:
        """Returns the CTR of a row's model in a segment, over all versions that served."""
        model = self._model_of(key[0])
        served = [one.served_in(segment, lambda series: self._model_of(series) == model) for one in ledgers]
        impressions, clicks = map(sum, zip(*served, strict=True))
        return clicks / impressions if impressions else 0.0

    def _counted(self, key: Key, pieces: Sequence[_Piece]) -> tuple[SparseVector, Curve]:
        """Returns the labels of all pieces, and their curves at the parts that contain their scores."""
        for pane, ledger, row in pieces:
            self._table.add(ledger.open.of(pane, row), key[1] >= 0)
        return self._table.take()

    def _known(self, key: Key, pane: int, segment: int) -> SparseVector | None:
        """Returns the labels of a closed stratum, or of its segment if they are no longer kept; None if unknown."""
        one = self._closed[key]
        if pane >= one.first:
            return one.labels[bisect_right(one.ends, pane)]
        newest = self._newest.get(key)
        if newest is not None and newest[0] == segment:
            self._keep(segment, key, newest[1])
            newest[1][:] = 0
        return self._segments.get((segment, key))

    def _close(self, key: Key, segment: int, first: int, end: int, labels: SparseVector) -> None:
        one = self._closed.setdefault(key, _Closed(first, [], []))
        if one.ends and end < one.ends[-1]:  # it has stayed open
            if end > one.first:
                at = bisect_right(one.ends, end)
                one.ends.insert(at, end)
                one.labels.insert(at, labels)
            self._keep(segment, key, dense(labels))
            return
        one.ends.append(end)
        one.labels.append(labels)
        if len(one.ends) > REMEMBERED:
            one.first = one.ends[-REMEMBERED - 1]
            del one.ends[:-REMEMBERED], one.labels[:-REMEMBERED]
        newest = self._newest.get(key)
        if newest is not None and newest[0] == segment:
            labels.add_to(newest[1].ravel())
            return
        if newest is not None:
            self._keep(newest[0], key, newest[1])
        self._newest[key] = segment, dense(labels)

    def _keep(self, segment: int, key: Key, labels: Labels) -> None:
        """Adds to the labels of a segment."""
        known, vector = self._segments.get((segment, key)), _sparse(labels)
        self._segments[segment, key] = vector if known is None else known + vector

    def _of_segments(self) -> dict[tuple[int, Key], SparseVector]:
        """Returns the labels of every segment, including the newest ones."""
        out = dict(self._segments)
        for key, (segment, labels) in self._newest.items():
            known, vector = out.get((segment, key)), _sparse(labels)
            out[segment, key] = vector if known is None else known + vector
        return out

    def _place_again(self, gains: Gains, key: Key, segment: int, pieces: Sequence[_Piece]) -> None:
        """Places pieces by the labels of their closed strata; if those are unknown, by the pieces' own labels without
        removed ones.
        """
        unknown = []
        for piece in pieces:
            labels = self._known(key, piece[0], segment)
            if labels is None:
                unknown.append(piece)
            else:
                self._place(gains, key, segment, [piece], curves_of(labels), labels)
        if unknown:
            labels, _ = self._counted(key, unknown)
            some = labels.values > 0
            labels = SparseVector(labels.cells[some], labels.values[some])
            self._place(gains, key, segment, unknown, curves_of(labels), labels)

    @staticmethod
    def _place(
        gains: Gains, key: Key, segment: int, pieces: Sequence[_Piece], core: Curve, labels: SparseVector
    ) -> None:
        curves = pieces[0][1].pieces.curves(core, labels, key[1] >= 0)
        for pane, ledger, row in pieces:
            _gain(gains, segment, key, ledger.place(segment, row, ledger.open.take(pane, row), curves))

    def _forget(self, end: int) -> None:
        before = end - self._kept
        if self._segments and min(segment for segment, _ in self._segments) < before:
            self._segments = {where: v for where, v in self._segments.items() if where[0] >= before}
        if any(segment < before for segment, _ in self._newest.values()):
            self._newest = {key: newest for key, newest in self._newest.items() if newest[0] >= before}
        if any(min(some) < before for some in self._awaiting.values()):  # their scores have gone, with their partition
            left = {key: {s: pane for s, pane in some.items() if s >= before} for key, some in self._awaiting.items()}
            self._awaiting = {key: some for key, some in left.items() if some}


def with_placed(counted: Sequence[tuple[int, dict[Key, Row]]], placed: Gains) -> list[tuple[int, dict[Key, Row]]]:
    """Returns what a look adds: counted rows by segment, and what was placed. A row that has both is one, so that it is
    read once.
    """
    out = list(counted)
    for (segment, key), row in placed.items():
        into = next((rows for at, rows in counted if at == segment and key in rows), None)
        if into is None:
            out.append((segment, {key: row}))
        else:
            into[key] = into[key] + row
    return out


def _rows(ledgers: Sequence[Ledger]) -> dict[Key, list[_Held]]:
    """Returns, by key, the rows with scores that are still to be placed."""
    out: dict[Key, list[_Held]] = {}
    for ledger in ledgers:
        for row in ledger.open.rows():
            out.setdefault(ledger.key_of(row), []).append((ledger, row))
    return out


def _panes(held: Sequence[_Held]) -> Iterator[tuple[int, Ledger, int, int, int]]:
    """Yields (pane, ledger, row, scores, clicks), by ledger, then pane."""
    for ledger, row in held:
        for pane, scores, clicks in ledger.open.panes(row):
            yield pane, ledger, row, scores, clicks


def _sparse(labels: Labels) -> SparseVector:
    cells = np.flatnonzero(labels)
    return SparseVector(cells, labels.ravel()[cells])


def _gain(gains: Gains, segment: int, key: Key, row: Row) -> None:
    known = gains.get((segment, key))
    gains[segment, key] = row if known is None else known + row
