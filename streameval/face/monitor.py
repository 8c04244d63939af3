"""`Monitor`: the whole of streameval inside your own loop, without Kafka, files or a server."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

import numpy as np
import pyarrow as pa

from streameval.app import make_decoder
from streameval.events.batch import Batch
from streameval.face.options import WeightingName, make_settings
from streameval.face.result import Evaluation
from streameval.face.tables import as_table
from streameval.loop.pipeline import Pipeline
from streameval.loop.short_batches import short_batches
from streameval.settings.tree import Settings
from streameval.store import container

_WAITING = -(1 << 62)


class Monitor:
    """Takes impressions and clicks as they arrive, joins them in event time, and reports at any moment how good each
    version is.

    Works like `streameval run` with two topics: labels mature when both impressions and clicks have passed the end of the
    attribution window; those that impressions carry mature at the same time, but wait for no clicks. Online models of
    `settings` score before they learn; new versions are detected and compared. Not thread-safe.
    """

    def __init__(
        self,
        *,
        slices: Sequence[str] = (),
        windows: Sequence[str] | None = None,
        edges: Sequence[float] | None = None,
        quantiles: int | None = None,
        weighting: WeightingName | None = None,
        attribution_window: str | None = None,
        settings: Mapping[str, Any] | Settings | None = None,
    ) -> None:
        """Options are as in the settings; `settings` accepts the whole tree. Raises ConfigError, a ValueError."""
        self._settings = make_settings(
            settings,
            windows=windows,
            slices=slices,
            edges=edges,
            quantiles=quantiles,
            weighting=weighting,
            attribution_window=attribution_window,
        )
        self._pipeline = Pipeline(self._settings, time.time)
        self._decoder = make_decoder(self._settings, self._pipeline)
        self._is_finished = False
        self._rows = 0  # impressions so far, by which those without an id are called

    def update(self, impressions: Any = None, clicks: Any = None) -> None:
        """Adds the events since the last call: tables (see `evaluate`) with the columns of events.

        Impressions have `ts`, `user_id` and `pclick`, and `impression_id` unless they carry their label, `clicked`;
        clicks have `impression_id` and `ts`. Slice values are columns of the dimension's name. An invalid event is
        skipped, and counted in the report. Raises ValueError for a table with unusable columns, TypeError for anything
        that is not a table. After `finish` there is nothing to add to: ValueError.
        """
        if self._is_finished:
            raise ValueError(
                "finish() has ended the input and made every label final, so these events would find no clicks: begin a new "
                "Monitor for them, or call finish() after the last of them (snapshot() needs none)"
            )
        shown = (
            iter(())
            if impressions is None
            else self._batches(self._identified(_of_type("impression", as_table(impressions))))
        )
        clicked = iter(()) if clicks is None else self._batches(_of_type("click", as_table(clicks)))
        for batch in _in_step(shown, clicked):
            self._pipeline.take(batch)

    def snapshot(self) -> Evaluation:
        """The current results. An input that has been silent for `join.idle_timeout` holds nothing back."""
        self._pipeline.tick(lambda: {(name, 0) for name in self._pipeline.inputs})
        self._pipeline.advance()
        return Evaluation(replace(self._pipeline.snapshot(), users=self._pipeline.users()))

    def finish(self) -> None:
        """Ends the input: every label becomes final, and every window ends with the newest impression. Nothing can be added
        afterwards.
        """
        self._is_finished = True
        self._pipeline.finish()

    def save(self, path: str | Path) -> None:
        """Writes everything to one file, whole or not at all. Raises OSError."""
        state = self._pipeline.partition_state(0)
        settings = self._settings.model_dump(mode="json")
        try:
            container.write(
                Path(path), {"settings": settings, "rows": self._rows, "finished": self._is_finished, "state": state}
            )
        finally:
            self._pipeline.state_written(0)

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """A monitor that continues as the saved one would have. Raises OSError, and StoreError for a damaged file."""
        saved = container.read(Path(path))
        out = cls(settings=saved["settings"])
        out._rows, out._is_finished = saved["rows"], saved.get("finished", False)
        if saved["state"] is not None:
            out._pipeline.restore_partition(0, saved["state"])
        return out

    def _identified(self, table: pa.Table) -> pa.Table:
        """Impressions with ids, and with their slices under the names that events have for them."""
        for dimension in self._settings.slices.dimensions:
            if dimension in table.column_names and dimension not in ("position", "propensity"):
                table = table.rename_columns(
                    [f"slices.{dimension}" if name == dimension else name for name in table.column_names]
                )
        if "impression_id" not in table.column_names:
            if "clicked" not in table.column_names:
                raise ValueError("impressions need a column impression_id, which clicks refer to, or clicked")
            ids = pa.array(range(self._rows, self._rows + table.num_rows), pa.int64())
            table = table.append_column("impression_id", ids.cast(pa.string()))
        self._rows += table.num_rows
        return table

    def _batches(self, table: pa.Table) -> Iterator[Batch]:
        size = self._settings.batch.max_events
        for start in range(0, table.num_rows, size):
            batch, _ = self._decoder.table(table.slice(start, size), topic="", partition=0, first_offset=start)
            batch = replace(batch, shared=self._settings.one_log)
            if not self._settings.models:
                yield batch
                continue
            for piece, _ in short_batches(batch, self._settings.join.attribution_window, self._rows):
                yield piece


def _of_type(kind: str, table: pa.Table) -> pa.Table:
    """Rows that do not say what they are: one without a pClick would be taken for a click."""
    if "type" in table.column_names:
        return table
    kinds = pa.DictionaryArray.from_arrays(pa.array(np.zeros(table.num_rows, np.int8)), [kind])
    return table.append_column("type", kinds)


def _in_step(*inputs: Iterator[Batch]) -> Iterator[Batch]:
    """Batches of several inputs, always of the one that is furthest behind: what waits in memory stays little."""
    newest = dict.fromkeys(range(len(inputs)), _WAITING)
    while newest:
        number = min(newest, key=lambda one: newest[one])
        batch = next(inputs[number], None)
        if batch is None:
            del newest[number]
            continue
        times = [int(events.ts.max()) for events in (batch.impressions, batch.clicks) if len(events)]
        newest[number] = max([newest[number], *times])
        yield batch
