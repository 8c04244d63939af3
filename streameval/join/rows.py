"""Rows of impressions: their columns, and the runs of rows that arrived in one batch."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streameval.events.batch import Features, Impressions, Names, Shadow
from streameval.events.codes import Codes
from streameval.events.columns import (
    concat_features,
    concat_names,
    concat_shadows,
    field_of,
    take_features,
    take_names,
    take_shadow,
)
from streameval.events.fields import Field
from streameval.join.cold import ground
from streameval.join.cold.ground import ALIGN
from streameval.join.policy import BEFORE, NEVER, JoinPolicy
from streameval.sketches.blocks import item_blocks_of

_PENDING_ROWS, _MATURE_ROWS = 8_192, 65_536  # rows up to which runs are merged


@dataclass(slots=True)
class Run:
    """The rows of one batch: [start, end), in arrival order."""

    start: int
    end: int
    due_order: NDArray[np.int32] | None  # rows - start, by time; None if they arrived in order
    features: Features | None
    shadow: Shadow | None
    names: Names | None
    given: int = 0  # how many have matured
    policies: Shadow | None = None

    def __lt__(self, other: Run) -> bool:
        return self.start < other.start


# columns of a table with one number per row: those that never change, and all
UNCHANGING = ("id", "ts", "user", "request", "slices", "series", "pclick", "behind", "previous", "item")
ONE_A_ROW = (*UNCHANGING, "state")
SCORE_OF, TRAINED_OF = "score of ", "trained of "  # columns by online model


@dataclass(slots=True)
class Table:
    """The rows' columns (with spare capacity)."""

    id: NDArray[np.uint64]
    ts: NDArray[np.int64]
    user: NDArray[np.uint64]
    request: NDArray[np.uint64]
    slices: NDArray[np.int64] | NDArray[np.uint32]
    series: NDArray[np.int32]
    pclick: NDArray[np.float64]
    state: NDArray[np.uint8]
    behind: NDArray[np.uint32]  # ms of the impression's time behind the newest of its log
    previous: NDArray[np.int32]  # rows back to the request's previous impression, 0: none
    item: NDArray[np.int8]  # the item's block, see `sketches.blocks`
    fields: NDArray[np.float64]  # [fields of `JoinPolicy.keep`, rows]; see `given`
    mark: NDArray[np.uint64] = field(default_factory=lambda: np.empty(0, np.uint64))  # of `JoinPolicy.mark`; [0]: none
    item_id: NDArray[np.uint64] = field(default_factory=lambda: np.empty(0, np.uint64))  # 0: none; [0]: not kept
    kept: tuple[Field, ...] = ()
    models: tuple[str, ...] = ()  # what the scores of online models are kept under
    # which fields any row has had, or are those of clicks
    given: NDArray[np.bool_] = field(default_factory=lambda: np.empty(0, np.bool_))
    score: list[NDArray[np.float64]] = field(default_factory=list)  # by online model; NaN: not scored
    trained: list[NDArray[np.int64]] = field(default_factory=list)  # the model's training watermark when it scored

    @staticmethod
    def allocate(n: int, policy: JoinPolicy, models: tuple[str, ...] = (), files: bool = False) -> Table:
        """Room for n rows; pages never written to take no memory. `models`: see `online`; `files`: so that files can be
        mapped over it.
        """
        kept = policy.keep
        room: Callable[..., NDArray[Any]] = np.empty
        if files:  # whole pages
            n, room = -(-n // ALIGN) * ALIGN, ground.empty
        return Table(
            id=room(n, np.uint64),
            ts=room(n, np.int64),
            user=room(n, np.uint64),
            request=room(n, np.uint64),
            slices=room(n, np.int64 if policy.wide_slices else np.uint32),
            series=room(n, np.int32),
            pclick=room(n, np.float64),
            state=room(n, np.uint8),
            behind=room(n, np.uint32),
            previous=room(n, np.int32),
            item=room(n, np.int8),
            fields=room((len(kept), n), np.float64),
            mark=room(n if policy.mark else 0, np.uint64),
            item_id=room(n if policy.items else 0, np.uint64),
            kept=kept,
            models=models,
            given=np.array([one.join is not None for one in kept], np.bool_),  # the kernel writes those of clicks
            score=[room(n, np.float64) for _ in models],
            trained=[room(n, np.int64) for _ in models],
        )

    def fill(self, start: int, impressions: Impressions, accepted: NDArray[np.int32], policy: JoinPolicy) -> None:
        """Writes the accepted impressions of a batch to the rows from `start` on, except for what the kernel has written."""
        whole = accepted.size == len(impressions)
        part = slice(start, start + accepted.size)
        for name in ("user", "request", "slices", "series", "pclick"):
            column = getattr(impressions, name)
            getattr(self, name)[part] = column if whole else column[accepted]
        self.previous[part] = 0
        if policy.mark is not None:
            self.mark[part] = policy.mark(impressions)[accepted]
        if policy.items:
            self.item_id[part] = impressions.item[accepted]
        self.item[part] = item_blocks_of(impressions.item if whole else impressions.item[accepted])
        for number, one in enumerate(self.kept):
            if one.join is None and (
                self.given[number] or one.name in impressions.fields
            ):  # the kernel sees to clicks'
                column = field_of(impressions, one.name)
                self.put_field(number, part, column if whole else column[accepted])
        for score, trained in zip(self.score, self.trained, strict=True):
            score[part] = np.nan
            trained[part] = NEVER

    def put_field(self, number: int, rows: slice, column: NDArray[np.float64]) -> None:
        """Writes a kept field of the newest rows, NaN: absent; its memory is used once a row has the field."""
        absent = np.isnan(column)
        if not self.given[number]:
            if absent.all():
                return
            self.given[number] = True
            self.fields[number, : rows.start] = self.kept[number].absent
        self.fields[number, rows] = column
        if absent.any():
            self.fields[number, rows][absent] = self.kept[number].absent

    def write_field(self, number: int, rows: NDArray[np.int64], column: NDArray[np.float64], end: int) -> None:
        """Writes a kept field that becomes known later, of some rows before `end`; NaN: still unknown."""
        if not self.given[number]:
            if np.isnan(column).all():
                return
            self.given[number] = True
            self.fields[number, :end] = self.kept[number].absent
        self.fields[number, rows] = column

    def kept_field(self, number: int, rows: slice | NDArray[np.int64]) -> NDArray[np.float64]:
        """A copy of a kept field of some rows."""
        if not self.given[number]:
            return np.full(self.id[rows].size, self.kept[number].absent)
        column: NDArray[np.float64] = self.fields[number, rows]
        return column.copy() if isinstance(rows, slice) else column

    def given_field(self, name: str, rows: slice | NDArray[np.int64]) -> NDArray[np.float64] | None:
        """A kept field by its name; None: it is not kept, or no row has ever had it."""
        for number, one in enumerate(self.kept):
            if one.name == name and self.given[number]:
                return self.kept_field(number, rows)
        return None

    def unchanging(self, here: slice) -> dict[str, NDArray[Any]]:
        """The immutable columns of some rows."""
        return {name: getattr(self, name)[here] for name in (*UNCHANGING, "mark", "item_id")}

    def changing(self, here: slice) -> dict[str, Any]:
        """Copies of the state and kept fields of some rows, without scores of models."""
        kept = [(i, one.name) for i, one in enumerate(self.kept) if self.given[i]]
        return {"state": self.state[here].copy(), "fields": {name: self.kept_field(i, here) for i, name in kept}}

    def restore(self, columns: Mapping[str, NDArray[Any]], codes: Codes, here: slice) -> None:
        """Writes columns of a checkpoint; `codes`: its codes translated to this process's."""
        self.mark[here], self.item_id[here] = 0, 0  # may be missing from the checkpoint
        here_too = {
            "series": codes.series[columns["series"]],
            "slices": codes.slices(columns["slices"].astype(np.int64)),
        }
        for name, column in {**columns, **here_too}.items():
            if column.size and getattr(self, name).size:
                getattr(self, name)[here] = column

    def restore_fields(self, fields: Mapping[str, NDArray[np.float64]], here: slice) -> None:
        """Writes kept fields of a checkpoint."""
        for number, one in enumerate(self.kept):
            if one.name in fields or self.given[number]:
                self.given[number] = True
                self.fields[number, here] = fields.get(one.name, one.absent)

    def online(self) -> dict[str, NDArray[Any]]:
        """What online models have written, by column: not by number, because a restart may add or remove models."""
        scores = {f"{SCORE_OF}{name}": column for name, column in zip(self.models, self.score, strict=True)}
        return scores | {f"{TRAINED_OF}{name}": column for name, column in zip(self.models, self.trained, strict=True)}

    def restore_online(self, columns: Mapping[str, NDArray[Any]], here: slice) -> None:
        """Writes what `online` returned; models that are not in it have not scored these rows."""
        for name, column in self.online().items():
            column[here] = columns.get(name, np.nan if name.startswith(SCORE_OF) else BEFORE)

    def columns(self) -> dict[str, NDArray[Any]]:
        """Every column that has been written, by name."""
        one = {name: getattr(self, name) for name in (*ONE_A_ROW, "mark", "item_id")}
        fields = {
            f"field.{kept.name}": column
            for kept, column, given in zip(self.kept, self.fields, self.given.tolist(), strict=True)
            if given
        }
        return {name: column for name, column in one.items() if column.size} | fields | self.online()


def run_of(impressions: Impressions, accepted: NDArray[np.int32], start: int, ts: NDArray[np.int64]) -> Run:
    """The run of the accepted impressions of a batch, which are rows from `start` on; `ts`: the table's times."""
    end = start + accepted.size
    times = ts[start:end]
    order = None if bool((times[1:] >= times[:-1]).all()) else np.argsort(times, kind="stable").astype(np.int32)
    features, shadow, names, policies = (
        impressions.features,
        impressions.shadow,
        impressions.names,
        impressions.policies,
    )
    if accepted.size < len(impressions):
        at = accepted.astype(np.int64)
        features = None if features is None else take_features(features, at)
        shadow = None if shadow is None else take_shadow(shadow, at)
        names = None if names is None else take_names(names, at)
        policies = None if policies is None else take_shadow(policies, at)
    return Run(start, end, order, features, shadow, names, policies=policies)


def by_model(columns: Mapping[str, Any], models: Sequence[str]) -> dict[str, Any]:
    """Columns by the names of models, from older ones by their numbers (until format 11)."""
    old = {f"{kind}.{number}": (kind, name) for number, name in enumerate(models) for kind in ("score", "trained")}
    return {" of ".join(old[name]) if name in old else name: column for name, column in columns.items()}


def split_fields(saved: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, NDArray[np.float64]]]:
    """(columns, kept fields by name) of a checkpoint; format 5 has its only field among the columns."""
    columns = dict(saved)
    value = columns.pop("value", None)
    return columns, columns.pop("fields", {} if value is None or not value.size else {"value": value})


def first_due(run: Run) -> int:
    """The row that matures next; the run must have rows that have not matured."""
    return run.start + (run.given if run.due_order is None else int(run.due_order[run.given]))


def compacted(runs: list[Run], ts: NDArray[np.int64]) -> list[Run]:
    """Merges small neighbouring runs: small batches must not leave one run each for a whole day.

    Mature runs without content are dropped. Runs that are partly mature are left alone.
    """
    out: list[Run] = []
    for run in runs:
        if out and out[-1].end == run.start and _alike(out[-1], run):
            most = _MATURE_ROWS if run.given else _PENDING_ROWS
            if run.end - out[-1].start <= most:
                out[-1] = _joined(out[-1], run, ts)
                continue
        out.append(run)
    return [run for run in out if not _is_spent(run)]


def _is_spent(run: Run) -> bool:
    mature = run.given == run.end - run.start
    return mature and all(kept is None for kept in (run.features, run.shadow, run.policies, run.names))


def _alike(a: Run, b: Run) -> bool:
    forms = [(*_forms(r.features), r.names is None) for r in (a, b)]
    mature = [r.given == r.end - r.start for r in (a, b)]
    return forms[0] == forms[1] and (all(mature) or a.given == b.given == 0)


def _forms(features: Features | None) -> tuple[bool, bool, bool]:
    if features is None:
        return True, True, True
    return False, features.dicts is None, features.offset is None


def _joined(a: Run, b: Run, ts: NDArray[np.int64]) -> Run:
    order = None
    if not a.given:
        times = ts[a.start : b.end]
        if not bool((times[1:] >= times[:-1]).all()):
            order = np.argsort(times, kind="stable").astype(np.int32)
    features, names = None, None
    if a.features is not None and b.features is not None:
        features = concat_features([a.features, b.features])
    if a.names is not None and b.names is not None:
        names = concat_names([a.names, b.names])
    rows = a.end - a.start, b.end - b.start
    shadow, policies = concat_shadows([a.shadow, b.shadow], rows), concat_shadows([a.policies, b.policies], rows)
    return Run(a.start, b.end, order, features, shadow, names, a.given + b.given, policies)


def trim(run: Run, start: int) -> None:
    """Cuts the dropped (hence mature) rows off the beginning of a run."""
    cut = start - run.start
    keep = np.arange(cut, run.end - run.start, dtype=np.int64)
    if run.due_order is not None:
        later = run.due_order[run.given :]
        run.due_order = np.concatenate((np.setdiff1d(keep, later).astype(np.int32) - cut, later - cut)).astype(np.int32)
        run.given = run.due_order.size - later.size
    else:
        run.given -= cut
    _keep(run, keep)
    run.start = start


def cut(run: Run, end: int) -> None:
    """Cuts the rows from `end` on off a run that is wholly mature."""
    keep = np.arange(end - run.start, dtype=np.int64)
    _keep(run, keep)
    run.end, run.given = end, keep.size


def _keep(run: Run, rows: NDArray[np.int64]) -> None:
    """Reduces the content of a run to these of its rows."""
    if run.features is not None:
        run.features = take_features(run.features, rows)
    if run.shadow is not None:
        run.shadow = take_shadow(run.shadow, rows)
    if run.policies is not None:
        run.policies = take_shadow(run.policies, rows)
    if run.names is not None:
        run.names = take_names(run.names, rows)


def interleave(pieces: list[tuple[NDArray[np.int64], Features]], n: int) -> Features:
    """Features of several runs in the order of the requested rows."""
    position = np.concatenate([where for where, _ in pieces])
    back = np.empty(n, np.int64)
    back[position] = np.arange(n)
    return take_features(concat_features([features for _, features in pieces]), back)
