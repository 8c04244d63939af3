"""Runs as columns, for a checkpoint.

Rows of a run before the first that is kept are cut off with `rows.trim`: they have been dropped, hence are mature.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from streameval.events.batch import Features, Shadow
from streameval.events.codes import Codes
from streameval.join.rows import Run, trim


def pack_runs(runs: Sequence[Run], front: int, base: int) -> dict[str, Any]:
    """Packs runs that nothing else modifies, from row `front` on, without names (which only a replay keeps).

    Row numbers count from `base`.
    """
    for run in runs:
        if run.start < front:
            trim(run, front)
    ordered = [run.due_order for run in runs if run.due_order is not None]
    features = [run.features for run in runs if run.features is not None]
    return {
        "start": np.array([run.start - base for run in runs], np.int64),
        "end": np.array([run.end - base for run in runs], np.int64),
        "given": np.array([run.given for run in runs], np.int64),
        "has_order": np.array([run.due_order is not None for run in runs], np.bool_),
        "has_features": np.array([run.features is not None for run in runs], np.bool_),
        "has_shadow": np.array([run.shadow is not None for run in runs], np.bool_),
        "has_policies": np.array([run.policies is not None for run in runs], np.bool_),
        "order": np.concatenate([np.empty(0, np.int32), *ordered]),
        "features": {
            "lengths": _lengths([f.indptr for f in features]),
            "index": np.concatenate([np.empty(0, np.uint64), *(f.index for f in features)]),
            "value": np.concatenate([np.empty(0, np.float64), *(f.value for f in features)]),
            "dicts": [None if f.dicts is None else msgspec.msgpack.encode(f.dicts) for f in features],
            "offsets": [f.offset for f in features],
        },
        "shadow": _pack([run.shadow for run in runs if run.shadow is not None]),
        "policies": _pack([run.policies for run in runs if run.policies is not None]),
    }


def _pack(shadows: Sequence[Shadow]) -> dict[str, NDArray[Any]]:
    return {
        "lengths": _lengths([s.indptr for s in shadows]),
        "series": np.concatenate([np.empty(0, np.int32), *(s.series for s in shadows)]),
        "pclick": np.concatenate([np.empty(0, np.float64), *(s.pclick for s in shadows)]),
    }


class _Unpacked:
    """Reads what `_pack` returned, run by run."""

    def __init__(self, packed: Mapping[str, Any], codes: Codes) -> None:
        self._packed, self._codes = packed, codes
        self._row, self._at = 0, 0

    def next(self, rows: int) -> Shadow:
        """The scores of the next run that has any, which has this many rows."""
        indptr = _indptr(self._packed["lengths"][self._row : self._row + rows])
        part = slice(self._at, self._at + int(indptr[-1]))
        self._row, self._at = self._row + rows, part.stop
        series = self._codes.series[self._packed["series"][part]]
        return Shadow(indptr, series, self._packed["pclick"][part].copy())


def unpack_runs(state: Mapping[str, Any], codes: Codes) -> list[Run]:
    """The runs of `pack_runs`; shadow versions get this process's codes."""
    features = state["features"]
    shadows = _Unpacked(state["shadow"], codes)
    policies = _Unpacked(state.get("policies", {}), codes)
    has_policies = state.get("has_policies", np.zeros(len(state["start"]), np.bool_))  # missing from older checkpoints
    dicts = iter(features["dicts"])
    offsets = iter(features.get("offsets", [None] * len(features["dicts"])))  # missing from older checkpoints
    order_at, feature_rows, feature_at = 0, 0, 0
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
            run.shadow = shadows.next(n)
        if has_policies[number]:
            run.policies = policies.next(n)
        runs.append(run)
    return runs


def _lengths(indptrs: Sequence[NDArray[np.int64]]) -> NDArray[np.int64]:
    return np.concatenate([np.empty(0, np.int64), *(np.diff(indptr) for indptr in indptrs)])


def _indptr(lengths: NDArray[np.int64]) -> NDArray[np.int64]:
    return np.concatenate((np.zeros(1, np.int64), np.cumsum(lengths)))
