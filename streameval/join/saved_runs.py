"""Runs as columns, for a checkpoint. Row numbers count from the first row that is kept.

A run's rows before that are cut off, as `rows.trim` would: they are forgotten, hence mature.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from streameval.events import Codes, Features, Shadow
from streameval.join.rows import Run, trim


def pack_runs(runs: Sequence[Run], front: int) -> dict[str, Any]:
    """Columns of runs that nobody else changes; names (kept only by a replay) are left out."""
    for run in runs:
        if run.start < front:
            trim(run, front)
    ordered = [run.due_order for run in runs if run.due_order is not None]
    features = [run.features for run in runs if run.features is not None]
    shadows = [run.shadow for run in runs if run.shadow is not None]
    return {
        "start": np.array([run.start - front for run in runs], np.int64),
        "end": np.array([run.end - front for run in runs], np.int64),
        "given": np.array([run.given for run in runs], np.int64),
        "has_order": np.array([run.due_order is not None for run in runs], np.bool_),
        "has_features": np.array([run.features is not None for run in runs], np.bool_),
        "has_shadow": np.array([run.shadow is not None for run in runs], np.bool_),
        "order": np.concatenate([np.empty(0, np.int32), *ordered]),
        "features": {
            "lengths": _lengths([f.indptr for f in features]),
            "index": np.concatenate([np.empty(0, np.uint64), *(f.index for f in features)]),
            "value": np.concatenate([np.empty(0, np.float64), *(f.value for f in features)]),
            "dicts": [None if f.dicts is None else msgspec.msgpack.encode(f.dicts) for f in features],
            "offsets": [f.offset for f in features],
        },
        "shadow": {
            "lengths": _lengths([s.indptr for s in shadows]),
            "series": np.concatenate([np.empty(0, np.int32), *(s.series for s in shadows)]),
            "pclick": np.concatenate([np.empty(0, np.float64), *(s.pclick for s in shadows)]),
        },
    }


def unpack_runs(state: Mapping[str, Any], codes: Codes) -> list[Run]:
    """The runs of `pack_runs`; shadow versions get this process' codes."""
    features, shadow = state["features"], state["shadow"]
    dicts = iter(features["dicts"])
    offsets = iter(features.get("offsets", [None] * len(features["dicts"])))  # none before failures were told
    order_at, feature_rows, feature_at, shadow_rows, shadow_at = 0, 0, 0, 0, 0
    runs = []
    columns = zip(*(state[name].tolist() for name in ("start", "end", "given")), strict=True)
    for number, (start, end, given) in enumerate(columns):
        run = Run(start, end, None, None, None, None, given)
        n = end - start
        if state["has_order"][number]:
            run.due_order = state["order"][order_at : order_at + n].copy()
            order_at += n
        if state["has_features"][number]:
            indptr = _indptr(features["lengths"][feature_rows : feature_rows + n])
            part = slice(feature_at, feature_at + int(indptr[-1]))
            packed = next(dicts)
            rows = None if packed is None else tuple(msgspec.msgpack.decode(packed, type=list[dict[str, float]]))
            offset = next(offsets)
            run.features = Features(
                indptr,
                features["index"][part].copy(),
                features["value"][part].copy(),
                rows,
                None if offset is None else offset.copy(),
            )
            feature_rows, feature_at = feature_rows + n, part.stop
        if state["has_shadow"][number]:
            indptr = _indptr(shadow["lengths"][shadow_rows : shadow_rows + n])
            part = slice(shadow_at, shadow_at + int(indptr[-1]))
            run.shadow = Shadow(indptr, codes.series[shadow["series"][part]], shadow["pclick"][part].copy())
            shadow_rows, shadow_at = shadow_rows + n, part.stop
        runs.append(run)
    return runs


def _lengths(indptrs: Sequence[NDArray[np.int64]]) -> NDArray[np.int64]:
    return np.concatenate([np.empty(0, np.int64), *(np.diff(indptr) for indptr in indptrs)])


def _indptr(lengths: NDArray[np.int64]) -> NDArray[np.int64]:
    return np.concatenate((np.zeros(1, np.int64), np.cumsum(lengths)))
