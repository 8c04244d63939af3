"""`evaluate`: a table, or the events of a log, to results, without a config."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from streameval.app import replay
from streameval.face.columns import Columns
from streameval.face.labelled import evaluate_labelled
from streameval.face.monitor import Monitor
from streameval.face.options import WeightingName, make_settings, several
from streameval.face.result import Evaluation
from streameval.face.tables import as_table, column_names, file_columns, is_table_file, read_table
from streameval.face.unread import IF_SHOWN, check_shown, tell_unread
from streameval.loop.options import values_counted
from streameval.models.registry import check_features
from streameval.process.progress import shown
from streameval.settings.tree import Settings

_Scores = str | Sequence[str] | Mapping[str, str]
_NAMES = {  # the column that is taken for an option that names none, if the table has it
    "label": "clicked", "score": "pclick", "user": "user_id", "version": "model_version", "model": "model", "ts": "ts",
    "request": "request_id", "item": "item_id", "value": "value", "weight": "weight",
}  # fmt: skip
_UNBOUNDED = 1 << 53  # bytes for users: their rows are in memory already


def evaluate(
    data: Any,
    *,
    clicks: Any = None,
    label: str | None = None,
    score: _Scores | None = None,
    user: str | None = None,
    version: str | None = None,
    model: str | None = None,
    ts: str | None = None,
    request: str | None = None,
    item: str | None = None,
    value: str | None = None,
    weight: str | None = None,
    slices: Sequence[str] = (),
    baseline: str | None = None,
    windows: Sequence[str] = (),
    edges: Sequence[float] | None = None,
    quantiles: int | None = None,
    weighting: WeightingName | None = None,
    attribution_window: str | None = None,
    settings: Mapping[str, Any] | None = None,
) -> Evaluation:
    """AUC, GAUC, log loss, calibration and the rest, by version, window, slice and pClick bucket, with standard errors.

    `data` is a pandas, Polars or Arrow table (or a mapping of columns), the path of one (Parquet, Arrow, CSV), or of a
    log of events (JSON lines); several paths may be given. A table has one row per impression, and its labels are

    - inline, as a column of 0 and 1: every row counts; or
    - clicks: `clicks` is a table of `impression_id` and `ts`, or `data` has rows of both kinds (`type`). They are
      joined in event time, as in `streameval replay`; impressions then also need `impression_id` and `ts`.

    `label` to `weight` name columns; by default columns with the names of event fields are used, if present (`clicked`,
    `pclick`, `user_id`, `model_version`, `model`, `ts`, `request_id`, `item_id`, `value`; `weight`, the number of impressions
    that a row stands for, only with `sampling.weights`). Without users there is no GAUC, and standard errors treat rows as
    independent. Without `ts` (integer ms, timestamps or ISO 8601) the order of rows means nothing. If the table holds only
    a share of the non-clicks, set `settings={"sampling": {"negatives": share}}`. Fields such as `propensity` are not read, as a warning says.

    Versions are compared with the `baseline` (default: the first): on the same rows when `score` names several columns,
    as a list or by version, otherwise each on its own rows. `slices` are columns whose values get their own results;
    `windows`, such as ("1h", "24h"), end with the newest row. The other options are as in the settings; `settings`
    accepts the whole tree.

    Raises ValueError for missing columns and invalid values, ConfigError (one of these) for options, TypeError if `data`
    is not a table, SourceError for an unreadable log.
    """
    options = make_settings(
        _unbounded(settings),
        windows=windows,
        slices=[name.removeprefix("slices.") for name in several("slices", slices)],
        edges=edges,
        quantiles=quantiles,
        weighting=weighting,
        attribution_window=attribution_window,
        weights=weight is not None,
    )
    given = (label, score, user, version, model, ts, request, item, value, weight)
    named = dict(zip(_NAMES, given, strict=True))
    with shown("evaluate"):
        return _evaluate(data, clicks, named, slices, options, baseline)


def _evaluate(
    data: Any, clicks: Any, named: Mapping[str, Any], slices: Sequence[str], settings: Settings, baseline: str | None
) -> Evaluation:
    """A log is replayed, a table with labels counted, and one without joined with its clicks."""
    paths = _paths(data)
    if paths is not None and not all(is_table_file(path) for path in paths):
        if clicks is not None or baseline is not None or any(name is not None for name in named.values()):
            raise ValueError(
                "a log of events has the fields of events, with the clicks in one of the files, and compares versions as they "
                'were deployed; map other names with settings={"files": {"columns": {"pclick": "score"}}}'
            )
        return Evaluation(replay(settings, paths, users=True))
    if paths is None and column_names(data) is None:
        data = as_table(data)  # a reader, say: what it has is known once it was read
    known = (column_names(data) or []) if paths is None else file_columns(paths[0])
    columns = _columns(named, slices, known, settings, inline=clicks is None)
    if clicks is not None or (columns.label not in known and "type" in known) or settings.models:
        if baseline is not None:
            raise ValueError("baseline: with a join in event time, versions are compared as they were deployed")
        return _joined(_read(data, paths, set(known), columns), clicks, columns, settings)
    if settings.windows.sliding and columns.ts is None:
        raise ValueError("windows: rows need a column of times, ts")
    tell_unread(known, columns.names())
    table = _read(data, paths, columns.names() | ({IF_SHOWN} & set(known)), columns)
    check_shown(table)
    return evaluate_labelled(table, columns, settings, baseline)


def _paths(data: Any) -> list[Path] | None:
    """The paths that are given; None: it is a table."""
    if isinstance(data, (str, Path)):
        return [Path(data)]
    if isinstance(data, (list, tuple)) and data and all(isinstance(one, (str, Path)) for one in data):
        return [Path(one) for one in data]
    return None


def _unbounded(settings: Mapping[str, Any] | None) -> dict[str, Any]:
    """The tree without a budget for users, and without a file for what cannot be used, unless it says otherwise."""
    tree = {
        section: dict(value) if isinstance(value, Mapping) else value for section, value in (settings or {}).items()
    }
    for section, key, value in (("users", "memory", _UNBOUNDED), ("files", "dead_letters", "")):
        part = tree.setdefault(section, {})
        if isinstance(part, dict):
            part.setdefault(key, value)
    return tree


def _columns(
    named: Mapping[str, Any], slices: Sequence[str], known: Collection[str], settings: Settings, inline: bool
) -> Columns:
    """Which columns are meant. Raises ValueError for one that is named and not there. `inline`: no table of clicks has values."""
    there = ", ".join(known)

    def found(option: str) -> str | None:
        name = named[option]
        if name is None:
            return _NAMES[option] if _NAMES[option] in known else None
        if name not in known:
            raise ValueError(f"{option} = {name!r}: there is no such column; there are {there}")
        return str(name)

    several = named["score"] is not None and not isinstance(named["score"], str)
    if several and named["version"] is not None:
        raise ValueError("version: a column of versions and several score columns exclude each other; give one of them")
    version = None if several else found("version")
    score = named["score"] or _NAMES["score"]
    if isinstance(score, str):  # without a name in the events, a version is called by its column
        score = {"unknown" if named["score"] is None else score: score}
    scores = dict(score) if isinstance(score, Mapping) else {name: name for name in score}
    if settings.models and named["score"] is None and _NAMES["score"] not in known:
        scores = {}  # the models score
    for name in scores.values():
        if name not in known:
            raise ValueError(f"score = {name!r}: there is no such column; there are {there}")
    of_slices = {}
    for name in slices:
        dimension = name.removeprefix("slices.")
        column = next((one for one in (name, f"slices.{dimension}") if one in known), None)
        if column is None:
            raise ValueError(f"slices = {name!r}: there is no such column; there are {there}")
        of_slices[dimension] = column
    valued = values_counted(settings) or settings.ranking.gain != "click"
    if valued and inline and found("value") is None:
        raise ValueError(f"value: the settings need the value of clicks; name its column; there are {there}")
    if settings.sampling.weights and found("weight") is None:
        raise ValueError(
            f"weight: sampling.weights needs a column with the number of impressions that a row stands for; there are {there}"
        )
    return Columns(
        label=found("label") or _NAMES["label"],
        scores=scores,
        user=found("user"),
        version=version,
        model=found("model"),
        ts=found("ts"),
        request=found("request"),
        item=found("item"),
        value=found("value") if valued else None,
        weight=found("weight") if settings.sampling.weights else None,
        slices=of_slices,
    )


def _read(data: Any, paths: Sequence[Path] | None, wanted: Collection[str], columns: Columns) -> pa.Table:
    if paths is None:
        return as_table(data, wanted)
    parts = [read_table(path, wanted, columns.texts()) for path in paths]
    for path, part in zip(paths, parts, strict=True):
        for field in part.schema:
            first = parts[0].schema.field(field.name) if field.name in parts[0].column_names else field
            try:
                pa.unify_schemas([pa.schema([first]), pa.schema([field])], promote_options="permissive")
            except pa.ArrowException:
                raise ValueError(
                    f"{path}: column {field.name!r} is {field.type}, in {paths[0]} it is {first.type}: must be of one type in all files"
                ) from None
    return pa.concat_tables(parts, promote_options="permissive")


def _joined(table: pa.Table, clicks: Any, columns: Columns, settings: Settings) -> Evaluation:
    """Labels come as clicks, or a model learns from them: the loop of `replay`, over tables."""
    monitor = Monitor(settings=settings)
    if settings.models:
        table = _for_models(table, columns, settings)
    if isinstance(clicks, (str, Path)):
        path = Path(clicks)
        clicks = read_table(path, file_columns(path), ("impression_id",))
    monitor.update(_as_events(table, columns), clicks)
    monitor.finish()
    return monitor.snapshot()


def _for_models(table: pa.Table, columns: Columns, settings: Settings) -> pa.Table:
    """Rows in order of time, as a model scores none that come late; without users each has its own. Raises ModelError
    without features.
    """
    has_features = any(name.split(".")[0] == "features" for name in table.column_names)
    missing = "no column is called `features` or `features.<name>`: rename columns that are"
    check_features(settings.models, "" if has_features else missing)
    if columns.user is None:
        users = pa.array(range(table.num_rows), pa.int64()).cast(pa.string())
        table = table.append_column(_NAMES["user"], users)
    if columns.ts is None or not (
        pa.types.is_integer(kind := table.schema.field(columns.ts).type) or pa.types.is_temporal(kind)
    ):
        return table
    return table.sort_by(columns.ts)


def _as_events(table: pa.Table, columns: Columns) -> pa.Table:
    """The table with the names that events have for its columns."""
    served, *others = columns.scores.items() or [("unknown", _NAMES["score"])]
    names = {served[1] if one == "score" else getattr(columns, one): name for one, name in _NAMES.items()}
    names |= {column: f"predictions.{version}" for version, column in others}
    names |= {column: f"slices.{dimension}" for dimension, column in columns.slices.items()}
    kept = [name for name in table.column_names if name in names or name not in names.values()]
    table = table.select(kept).rename_columns([names.get(name, name) for name in kept])
    if columns.version is None and served[0] != "unknown":
        version = pa.array([served[0]] * table.num_rows, pa.string()).dictionary_encode()
        table = table.append_column("model_version", version)
    return table
