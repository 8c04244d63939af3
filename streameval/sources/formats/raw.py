"""The form of events between the decoder's two halves: columns of n rows as they were written, checked and turned into
`events`.

Every format ends here, so there is a single set of rules and reasons. A rule is a mask over the column; the first rule
that a row breaks sends it to the dead letters.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from streameval.events import fields
from streameval.events.batch import (
    LABEL_UNKNOWN,
    NO_IMPRESSIONS,
    Catalog,
    Clicks,
    Features,
    Impressions,
    Names,
    Shadow,
)
from streameval.events.columns import take_features
from streameval.sources.formats.own_slices import own_codes
from streameval.sources.formats.texts import Ids, Words, compacted

_IMPRESSION, _CLICK = 1, 2
IDS = ("impression_id", "user_id", "request_id", "item_id", "query_id")  # texts that are hashed; the others are words
_MANY_PAIRS = 1 << 20  # of models and versions, above which they are sorted
EARLIEST = 946_684_800_000  # ms: 2000-01-01, which in seconds is a day in January 1970
Rejection = tuple[str, str, str]  # reason, field, message


def most_events(max_message: int) -> int:
    """Returns how many events a message may contain. No event has only 16 bytes; smaller ones are made up to fill
    memory.
    """
    return max(1, max_message // 16)


def too_large(size: int, longest: int) -> Rejection:
    """Returns the rejection of a message or row with this size in bytes."""
    return "too_large", "", f"{size} bytes: longer than kafka.max_message = {longest}"


class Wants(NamedTuple):
    """What is read of events besides the fields that are always read."""

    hashed: bool  # features as hashed columns
    dicts: bool  # features as dicts
    names: bool  # ids as text


class ByVersion(NamedTuple):
    """A field with one number per version, flat: row, version, number."""

    row: NDArray[np.int64]
    version: pa.Array | Words
    number: NDArray[np.float64]


@dataclass(slots=True)
class RawEvents:
    """n rows."""

    kind: NDArray[np.int8]  # 0: determined by the fields of the event
    ts: NDArray[np.int64]
    has_ts: NDArray[np.bool_]
    # the other scalar fields by name: texts as Arrow strings (null: absent), or as `Ids` and `Words`; numbers as
    # float64 (NaN: absent), labels as int8 (-1: absent)
    columns: dict[str, Any]
    by_version: dict[str, ByVersion]  # `fields.by_version`, by name
    slices: list[pa.Array | Words]  # one string column for every configured dimension
    has_features: NDArray[np.bool_]
    features: Features | None
    problems: dict[int, Rejection] = field(default_factory=dict)  # rows already known to be bad

    def __len__(self) -> int:
        return len(self.ts)

    def encoded(self) -> RawEvents:
        """Returns the events with every text as `Ids` or `Words`."""
        columns = dict(self.columns)
        for one in fields.scalars():
            column = columns.get(one.name)
            if isinstance(column, pa.Array):
                columns[one.name] = Ids.of(column) if one.name in IDS else Words.of(column)
        versions = {name: given._replace(version=_words(given.version)) for name, given in self.by_version.items()}
        return replace(self, columns=columns, by_version=versions, slices=[_words(column) for column in self.slices])


@dataclass(frozen=True, slots=True)
class CheckRules:
    """Parameters of the checks."""

    catalog: Catalog
    latest: int  # ms: no event may be later
    keep_names: bool
    features_suffice: bool  # online models can score an impression that has features but no pclick


class Assembled(NamedTuple):
    """The result for n rows in arrival order; `candidates`: impressions that were not shown."""

    impressions: Impressions
    candidates: Impressions
    clicks: Clicks
    problems: dict[int, Rejection]  # by row


def assemble(raw: RawEvents, rules: CheckRules) -> Assembled:
    """Returns the good rows of n in arrival order, and what is wrong with the others."""
    raw, problems = raw.encoded(), dict(raw.problems)
    n = len(raw)
    bad = np.zeros(n, bool)
    bad[list(problems)] = True
    kind = _kinds(raw, problems, bad)

    def check(mask: NDArray[np.bool_], reason: str, field_name: str, say: Callable[[int], str]) -> None:
        for row in np.flatnonzero(mask & ~bad).tolist():
            problems[row] = (reason, field_name, say(row))
        bad[mask] = True

    imp = kind == _IMPRESSION
    _check_ids(raw, imp, check)
    check(~raw.has_ts, "missing_field", "ts", lambda _: "ts: is required, as integer ms since the epoch or ISO 8601")
    _check_unit_of_time(raw.ts, check)
    check(
        raw.ts > rules.latest,
        "future_timestamp",
        "ts",
        lambda i: f"ts = {raw.ts[i]}: further ahead of the clock than join.max_future allows (latest {rules.latest})",
    )
    for one in fields.scalars():
        if one.type == "number" and one.bounded:  # for integers the decoders have checked it already
            _check_range(one, raw.columns[one.name], imp if one.of == (fields.IMPRESSION,) else ~imp, check)
    for one in fields.by_version():
        if raw.by_version[one.name].row.size:
            _check_versions(one, raw.by_version[one.name], imp, check)
    unseen = imp & (raw.columns["shown"] == 0)
    check(
        unseen & (raw.columns["clicked"] == 1),
        "out_of_range",
        "clicked",
        lambda _: "clicked = 1: an item that was not shown (shown = false) has no click",
    )
    predicted = np.zeros(n, bool)
    predicted[raw.by_version["predictions"].row] = True
    scorable = ~np.isnan(raw.columns["pclick"]) | predicted
    if rules.features_suffice:
        scorable |= raw.has_features
    check(imp & ~scorable, "missing_field", "pclick", lambda _: "pclick: is required unless predictions are given")
    good = ~bad
    return Assembled(
        _impressions(raw, rules, np.flatnonzero(good & imp & ~unseen)),
        _candidates(raw, rules, np.flatnonzero(good & unseen)),
        _clicks(raw, np.flatnonzero(good & ~imp)),
        problems,
    )


def _words(column: pa.Array | Words) -> Words:
    return column if isinstance(column, Words) else Words.of(column)


def _kinds(raw: RawEvents, problems: dict[int, Rejection], bad: NDArray[np.bool_]) -> NDArray[np.int8]:
    kind, types = raw.kind.copy(), raw.columns["type"]
    if not types.absent:
        kind[types.are("impression")] = _IMPRESSION
        kind[types.are("click")] = _CLICK
        unknown = (types.codes >= 0) & ~types.are("impression") & ~types.are("click") & ~bad
        for row in np.flatnonzero(unknown).tolist():
            name = types.values[types.codes[row]]
            problems[row] = ("wrong_type", "type", f'type = "{name[:50]}": must be "impression" or "click"')
        bad[unknown] = True
    unsaid = kind == 0
    if unsaid.any():
        telling = ~np.isnan(raw.columns["pclick"]) | (raw.columns["clicked"] >= 0) | raw.has_features
        telling |= raw.columns["shown"] >= 0
        telling[raw.by_version["predictions"].row] = True
        kind[unsaid] = np.where(telling[unsaid], _IMPRESSION, _CLICK)
    return kind


def _check_ids(raw: RawEvents, imp: NDArray[np.bool_], check: Callable[..., None]) -> None:
    for one in fields.scalars():
        if one.type == "text" and one.required:
            name, where = one.name, imp if one.required == (fields.IMPRESSION,) else True
            absent = raw.columns[name].hashes == 0
            check(
                where & absent, "missing_field", name, lambda _, name=name: f"{name}: is required and must not be empty"
            )


def _check_range(
    one: fields.Field, value: NDArray[np.float64], where: NDArray[np.bool_], check: Callable[..., None]
) -> None:
    """Here NaN means absent; a NaN or infinity in the input is a problem already."""
    wrong = (value > one.high) | (value <= one.low if one.above else value < one.low)
    check(where & wrong, "out_of_range", one.name, lambda i: f"{one.name} = {value[i]}: must be {one.range}")


def _check_versions(one: fields.Field, given: ByVersion, imp: NDArray[np.bool_], check: Callable[..., None]) -> None:
    nameless, wrong = np.zeros(imp.size, bool), np.zeros(imp.size, bool)
    nameless[given.row[_words(given.version).are("")]] = True
    check(imp & nameless, "missing_field", one.name, lambda _: f'{one.name}: "" is not a version name')
    wrong[given.row[~((given.number >= one.low) & (given.number <= one.high))]] = True
    what = "pClick" if one.name == "predictions" else "number"
    check(imp & wrong, "out_of_range", one.name, lambda _: f"{one.name}: every {what} must be {one.range}")


def _check_unit_of_time(ts: NDArray[np.int64], check: Callable[..., None]) -> None:
    """No log is older than 2000, and no ms time from 2000 on looks like one in another unit."""

    def say(what: str) -> Callable[[int], str]:
        return lambda i: (
            f"ts = {ts[i]}: must be ms since the epoch, from 2000-01-01 on; {what} instead of milliseconds?"
        )

    check(ts < EARLIEST, "out_of_range", "ts", say("seconds"))
    check(ts >= EARLIEST * 1_000_000, "out_of_range", "ts", say("nanoseconds"))
    check(ts >= EARLIEST * 1000, "out_of_range", "ts", say("microseconds"))


def _impressions(raw: RawEvents, rules: CheckRules, rows: NDArray[np.int64]) -> Impressions:
    columns, catalog = raw.columns, rules.catalog
    codes = [
        _slice_codes(_words(column).take(rows), d, catalog, own_codes(d, catalog, columns, rows))
        for d, column in enumerate(raw.slices)
    ]
    names = None
    if rules.keep_names:
        names = Names(*(columns[name].written(rows) for name in ("impression_id", "user_id", "request_id")))
    return replace(
        _scored(raw, rows, catalog),
        slices=catalog.combine(codes) if codes else np.zeros(rows.size, np.int64),
        label=columns["clicked"][rows],
        features=None if raw.features is None else take_features(raw.features, rows),
        names=names,
    )


def _candidates(raw: RawEvents, rules: CheckRules, rows: NDArray[np.int64]) -> Impressions:
    """Returns impressions that were not shown: no label, no slices (their values must not displace those of shown
    ones), no features.
    """
    return _scored(raw, rows, rules.catalog) if rows.size else NO_IMPRESSIONS


def _scored(raw: RawEvents, rows: NDArray[np.int64], catalog: Catalog) -> Impressions:
    """Returns what impressions and candidates have in common."""
    columns = raw.columns
    series = _series(columns["model"].take(rows), columns["model_version"].take(rows), catalog)
    query = columns["query_id"].hashes[rows]
    pclick = columns["pclick"][rows]
    return Impressions(
        order=rows.astype(np.int32),
        id=columns["impression_id"].hashes[rows],
        ts=raw.ts[rows],
        user=columns["user_id"].hashes[rows],
        request=columns["request_id"].hashes[rows],
        item=columns["item_id"].hashes[rows],
        series=series,
        pclick=pclick,
        slices=np.zeros(rows.size, np.int64),
        label=np.full(rows.size, LABEL_UNKNOWN, np.int8),
        fields=_carried(raw, rows, fields.IMPRESSION),
        # the version that logged this pClick is already counted by it
        shadow=_by_series(raw.by_version["predictions"], rows, series, catalog, ~np.isnan(pclick)),
        query=query if query.any() else None,
        policies=_by_series(raw.by_version["policies"], rows, series, catalog, None),
    )


def _clicks(raw: RawEvents, rows: NDArray[np.int64]) -> Clicks:
    ids = raw.columns["impression_id"].hashes[rows]
    return Clicks(rows.astype(np.int32), ids, raw.ts[rows], _carried(raw, rows, fields.CLICK))


def _carried(raw: RawEvents, rows: NDArray[np.int64], kind: fields.Kind) -> dict[str, NDArray[np.float64]]:
    return {one.name: raw.columns[one.name][rows] for one in fields.carried(kind)}


def _series(model: Words, version: Words, catalog: Catalog) -> NDArray[np.int32]:
    """`model` and `version`: all of their values occur."""
    no_model, no_version = (str(fields.FIELDS[name].default) for name in ("model", "model_version"))
    models, versions = [*model.values, no_model], [*version.values, no_version]  # the last one: for code -1
    width = len(versions)
    pair = (model.codes % len(models)).astype(np.int64) * width + version.codes % width
    if width * len(models) <= _MANY_PAIRS:
        inverse, order = compacted(pair.astype(np.int32), width * len(models))
    else:
        distinct, first, where = np.unique(pair, return_index=True, return_inverse=True)
        by_first = np.argsort(first)
        order, inverse = distinct[by_first], np.argsort(by_first)[where]
    code = np.zeros(order.size, np.int32)
    for k, one in enumerate(order.tolist()):  # codes in order of appearance
        code[k] = catalog.series_code(models[one // width] or no_model, versions[one % width] or no_version, "logged")
    return code[inverse]


def _slice_codes(words: Words, dimension: int, catalog: Catalog, absent: NDArray[np.int64] | None) -> NDArray[np.int64]:
    """Returns value codes of `slices`, all of whose values occur; `absent`: the codes for events without a value, or
    with "" (None: `__missing__`).
    """
    if absent is not None and words.absent:
        return absent
    # the last one: for code -1
    codes = np.array([catalog.value_code(dimension, v) if v else 0 for v in words.values] + [0], np.int64)
    out: NDArray[np.int64] = codes[words.codes]
    if absent is not None:
        nothing = (words.codes < 0) | words.are("")
        out[nothing] = absent[nothing]
    return out


def _by_series(
    given: ByVersion,
    rows: NDArray[np.int64],
    series: NDArray[np.int32],
    catalog: Catalog,
    without_own: NDArray[np.bool_] | None,
) -> Shadow | None:
    """Returns the numbers of some rows by series, where a version belongs to the row's model; None if there is none.

    `series`: of the rows; `without_own`: rows without the number of their own series.
    """
    if not given.row.size or not rows.size:
        return None
    place = np.full(max(int(given.row.max()), int(rows[-1])) + 1, -1, np.int64)
    place[rows] = np.arange(rows.size)
    at = place[given.row]
    on = np.flatnonzero(at >= 0)
    at, number = at[on], given.number[on]
    words = _words(given.version).take(on)
    versions, version = words.values, words.codes.astype(np.int64)
    code = np.empty(at.size, np.int32)
    model_of = series[at]
    for one in np.unique(model_of).tolist():
        table = np.array([catalog.version_code(one, v) for v in versions], np.int32)
        mine = model_of == one
        code[mine] = table[version[mine]]
    if without_own is not None:
        keep = (code != model_of) | ~without_own[at]
        at, code, number = at[keep], code[keep], number[keep]
    if not at.size:
        return None
    order = np.argsort(at, kind="stable")
    indptr = np.concatenate((np.zeros(1, np.int64), np.cumsum(np.bincount(at, minlength=rows.size))))
    return Shadow(indptr, code[order], number[order])
