"""Events between the decoder's two halves: columns of n rows as they were written, checked and turned into `events`.

Every format ends here, so there is one set of rules and reasons. A rule is a mask over the column; the first rule that
a row breaks sends it to the dead letters.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from streameval.events import Catalog, Clicks, Features, Impressions, Names, Shadow
from streameval.hashing import hash_strings
from streameval.sources.features import take_hashed
from streameval.sources.own_slices import own_codes

IMPRESSION, CLICK = 1, 2
EARLIEST = 946_684_800_000  # ms: 2000-01-01, which in seconds is a day of January 1970
Problem = tuple[str, str, str]  # reason, field, message


def most_events(max_message: int) -> int:
    """Events that one message may hold. No event is written in 16 bytes; what claims to be is made to fill memory."""
    return max(1, max_message // 16)


@dataclass(slots=True)
class RawEvents:
    """n rows. String columns are Arrow strings (null: absent), numbers NumPy with NaN or -1 for absent."""

    kind: NDArray[np.int8]  # 0: to be told from the fields
    type: pa.Array
    impression_id: pa.Array
    user_id: pa.Array
    request_id: pa.Array
    item_id: pa.Array
    model: pa.Array
    model_version: pa.Array
    ts: NDArray[np.int64]
    has_ts: NDArray[np.bool_]
    pclick: NDArray[np.float64]
    clicked: NDArray[np.int8]  # -1: absent
    position: NDArray[np.int64]  # -1: absent
    propensity: NDArray[np.float64]
    value: NDArray[np.float64]
    prediction_row: NDArray[np.int64]  # `predictions`, flat: the row, the version, the pClick
    prediction_version: pa.Array
    prediction: NDArray[np.float64]
    slices: list[pa.Array]  # one string column for every configured dimension
    has_features: NDArray[np.bool_]
    features: Features | None
    problems: dict[int, Problem] = field(default_factory=dict)  # rows already known to be bad

    def __len__(self) -> int:
        return len(self.ts)


@dataclass(frozen=True, slots=True)
class Rules:
    """What the checks need to know."""

    catalog: Catalog
    latest: int  # ms: no event may be later
    keep_names: bool
    features_suffice: bool  # online models can score an impression that has features but no pclick


def assemble(raw: RawEvents, rules: Rules) -> tuple[Impressions, Clicks, dict[int, Problem]]:
    """(impressions, clicks, problem by row) of n rows in arrival order."""
    problems = dict(raw.problems)
    n = len(raw)
    bad = np.zeros(n, bool)
    bad[list(problems)] = True
    kind = _kinds(raw, problems, bad)

    def check(mask: NDArray[np.bool_], reason: str, field_name: str, say: Callable[[int], str]) -> None:
        for row in np.flatnonzero(mask & ~bad).tolist():
            problems[row] = (reason, field_name, say(row))
        bad[mask] = True

    imp = kind == IMPRESSION
    _check_ids(raw, imp, check)
    check(~raw.has_ts, "missing_field", "ts", lambda _: "ts: is required, as integer ms since the epoch or ISO 8601")
    _check_unit_of_time(raw.ts, check)
    check(
        raw.ts > rules.latest,
        "future_timestamp",
        "ts",
        lambda i: f"ts = {raw.ts[i]}: further ahead of the clock than join.max_future allows (latest {rules.latest})",
    )
    # NaN stands for absent by now; a NaN or infinity that was written is a problem already
    p, q = raw.pclick, raw.propensity
    check(imp & ((p > 1) | (p < 0)), "out_of_range", "pclick", lambda i: f"pclick = {p[i]}: must be in [0, 1]")
    check(imp & ((q > 1) | (q <= 0)), "out_of_range", "propensity", lambda i: f"propensity = {q[i]}: must be in (0, 1]")
    nameless = np.zeros(n, bool)
    if raw.prediction_row.size:
        nameless[raw.prediction_row[pc.equal(raw.prediction_version, "").to_numpy(zero_copy_only=False)]] = True
    check(imp & nameless, "missing_field", "predictions", lambda _: 'predictions: "" is no name of a version')
    wrong = np.zeros(n, bool)
    wrong[raw.prediction_row[~((raw.prediction >= 0) & (raw.prediction <= 1))]] = True
    check(imp & wrong, "out_of_range", "predictions", lambda _: "predictions: every pClick must be in [0, 1]")
    check(
        imp & (raw.position < -1), "out_of_range", "position", lambda i: f"position = {raw.position[i]}: must be >= 0"
    )
    predicted = np.zeros(n, bool)
    predicted[raw.prediction_row] = True
    scorable = ~np.isnan(raw.pclick) | predicted
    if rules.features_suffice:
        scorable |= raw.has_features
    check(imp & ~scorable, "missing_field", "pclick", lambda _: "pclick: is required unless predictions are given")
    good = ~bad
    return _impressions(raw, rules, np.flatnonzero(good & imp)), _clicks(raw, np.flatnonzero(good & ~imp)), problems


def _kinds(raw: RawEvents, problems: dict[int, Problem], bad: NDArray[np.bool_]) -> NDArray[np.int8]:
    kind = raw.kind.copy()
    if raw.type.null_count < len(raw):
        names = raw.type.to_pylist()
        for row, name in enumerate(names):
            if name is None:
                continue
            if name in ("impression", "click"):
                kind[row] = IMPRESSION if name == "impression" else CLICK
            elif not bad[row]:
                problems[row] = ("wrong_type", "type", f'type = "{name[:50]}": must be "impression" or "click"')
                bad[row] = True
    unknown = kind == 0
    if unknown.any():
        telling = ~np.isnan(raw.pclick) | (raw.clicked >= 0) | raw.has_features
        telling[raw.prediction_row] = True
        kind[unknown] = np.where(telling[unknown], IMPRESSION, CLICK)
    return kind


def _check_ids(raw: RawEvents, imp: NDArray[np.bool_], check: Callable[..., None]) -> None:
    for name, where in (("impression_id", np.ones(len(raw), bool)), ("user_id", imp)):
        column = getattr(raw, name)
        absent = ~(pc.fill_null(pc.greater(pc.binary_length(column), 0), False).to_numpy(zero_copy_only=False))
        check(where & absent, "missing_field", name, lambda _, name=name: f"{name}: is required and must not be empty")


def _check_unit_of_time(ts: NDArray[np.int64], check: Callable[..., None]) -> None:
    """No log is older than 2000, and none of 2000 or later, in ms, looks like one written in another unit."""

    def say(what: str) -> Callable[[int], str]:
        return lambda i: (
            f"ts = {ts[i]}: must be ms since the epoch, from 2000-01-01 on; {what} instead of milliseconds?"
        )

    check(ts < EARLIEST, "out_of_range", "ts", say("seconds"))
    check(ts >= EARLIEST * 1_000_000, "out_of_range", "ts", say("nanoseconds"))
    check(ts >= EARLIEST * 1000, "out_of_range", "ts", say("microseconds"))


def _impressions(raw: RawEvents, rules: Rules, rows: NDArray[np.int64]) -> Impressions:
    every = rows.size == len(raw)  # nothing to leave out, the common case
    where = pa.array(rows)

    def take(column: pa.Array) -> pa.Array:
        return column if every else column.take(where)

    impression_id, user_id, request_id = take(raw.impression_id), take(raw.user_id), take(raw.request_id)
    catalog = rules.catalog
    series = _series(take(raw.model), take(raw.model_version), catalog)
    position, propensity = raw.position[rows], raw.propensity[rows]
    codes = [
        _slice_codes(take(column), d, catalog, own_codes(d, catalog, position, propensity))
        for d, column in enumerate(raw.slices)
    ]
    names = None
    if rules.keep_names:
        texts = (c.fill_null("").to_numpy(zero_copy_only=False) for c in (impression_id, user_id, request_id))
        names = Names(*(np.asarray(t, object) for t in texts))
    return Impressions(
        order=rows.astype(np.int32),
        id=hash_strings(impression_id),
        ts=raw.ts[rows],
        user=hash_strings(user_id),
        request=hash_strings(_blank_is_null(request_id)),
        item=hash_strings(_blank_is_null(take(raw.item_id))),
        series=series,
        pclick=raw.pclick[rows],
        slices=catalog.combine(codes) if codes else np.zeros(rows.size, np.int64),
        label=raw.clicked[rows],
        position=position.astype(np.int32),
        propensity=propensity,
        shadow=_shadow(raw, rows, series, catalog),
        features=None if raw.features is None else take_hashed(raw.features, rows),
        names=names,
    )


def _clicks(raw: RawEvents, rows: NDArray[np.int64]) -> Clicks:
    return Clicks(
        rows.astype(np.int32), hash_strings(raw.impression_id.take(pa.array(rows))), raw.ts[rows], raw.value[rows]
    )


def _blank_is_null(column: pa.Array) -> pa.Array:
    if column.null_count == len(column):
        return column
    return pc.if_else(pc.equal(column, ""), pa.scalar(None, column.type), column)


def _series(model: pa.Array, version: pa.Array, catalog: Catalog) -> NDArray[np.int32]:
    model = model.fill_null("default").dictionary_encode()
    version = version.fill_null("unknown").dictionary_encode()
    width = max(1, len(version.dictionary))
    pair = model.indices.to_numpy().astype(np.int64) * width + version.indices.to_numpy()
    distinct, first, inverse = np.unique(pair, return_index=True, return_inverse=True)
    models, versions = model.dictionary.to_pylist(), version.dictionary.to_pylist()
    code = np.zeros(distinct.size, np.int32)
    for k in np.argsort(first).tolist():  # codes in order of appearance
        m, v = models[distinct[k] // width], versions[distinct[k] % width]
        code[k] = catalog.series_code(m or "default", v or "unknown", "logged")
    return code[inverse]


def _slice_codes(
    column: pa.Array, dimension: int, catalog: Catalog, absent: NDArray[np.int64] | None
) -> NDArray[np.int64]:
    """Value codes of what `slices` says; `absent`: of events whose slices say nothing, or "" (None: `__missing__`)."""
    column = _blank_is_null(column)
    if absent is not None and column.null_count == len(column):
        return absent
    encoded = column.dictionary_encode()
    codes = np.array([catalog.value_code(dimension, v) for v in encoded.dictionary.to_pylist()] or [0], np.int64)
    out: NDArray[np.int64] = codes[encoded.indices.fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64)]
    if column.null_count:
        null = column.is_null().to_numpy(zero_copy_only=False)
        out[null] = 0 if absent is None else absent[null]
    return out


def _shadow(raw: RawEvents, rows: NDArray[np.int64], series: NDArray[np.int32], catalog: Catalog) -> Shadow | None:
    if not raw.prediction_row.size or not rows.size:
        return None
    place = np.full(len(raw), -1, np.int64)
    place[rows] = np.arange(rows.size)
    at = place[raw.prediction_row]
    on = np.flatnonzero(at >= 0)
    at, p = at[on], raw.prediction[on]
    encoded = raw.prediction_version.take(pa.array(on)).dictionary_encode()
    versions = encoded.dictionary.to_pylist()
    version = encoded.indices.to_numpy().astype(np.int64)
    code = np.empty(at.size, np.int32)
    model_of = series[at]
    for one in np.unique(model_of).tolist():
        table = np.array([catalog.version_code(one, v) for v in versions], np.int32)
        mine = model_of == one
        code[mine] = table[version[mine]]
    # the version that logged this pClick is already counted by it
    keep = (code != model_of) | np.isnan(raw.pclick[rows][at])
    at, code, p = at[keep], code[keep], p[keep]
    order = np.argsort(at, kind="stable")
    indptr = np.concatenate((np.zeros(1, np.int64), np.cumsum(np.bincount(at, minlength=rows.size))))
    return Shadow(indptr, code[order], p[order])
