"""The result of an evaluation: numbers to print, to show in a notebook, and to use as tables."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from html import escape
from typing import Any, Literal

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from streameval.compare.reading.choice import deploy_and_comparison
from streameval.compare.reading.reading import Verdict
from streameval.compare.reading.words import headline
from streameval.face.show import overall, overall_rows
from streameval.metrics.users import user_auc, user_calibration, user_log_loss
from streameval.results.result import Result
from streameval.results.snapshot import Snapshot

_Name = Literal["results", "buckets", "users", "comparisons"]
_Names = Callable[[], Mapping[int, str]]  # of users, by hash

_TEXT = pa.string()
_WHEN = pa.timestamp("ms", "UTC")
_TYPES = {  # of columns that are no real numbers
    **dict.fromkeys(("model", "version", "source", "objective", "window", "dimension", "value", "kind", "user"), _TEXT),
    **dict.fromkeys(("baseline", "candidate", "setup", "metric", "verdict", "reason", "reliable_reason"), _TEXT),
    **dict.fromkeys(("impressions", "clicks", "gauc_users", "gauc_impressions", "corrected", "violations"), pa.int64()),
    **dict.fromkeys(("window_start", "window_end"), _WHEN),
    "reliable": pa.bool_(),
}
# of a result's report; lists of strata are in no row of a table
_LEFT_OUT = ("slice", "reasons", "buckets", "newest_label", "matured_share", "strata", "stratified")


class Evaluation:
    """The results of a table, a log or a monitor at one moment; immutable.

    `results`, `buckets`, `users` and `comparisons` are Arrow tables: pandas has them by `.to_pandas()`, Polars by
    `polars.from_arrow`, DuckDB by their name in a query. Printed, or in a notebook, it shows the overall results and
    the verdicts of the comparisons.
    """

    def __init__(self, snapshot: Snapshot, names: _Names | None = None) -> None:
        """`names`: what users are called; without it they go by the 16 hexadecimal digits of their hash."""
        self.snapshot = snapshot  # everything, in the types that the server's readers have
        self._names = names

    @cached_property
    def results(self) -> pa.Table:
        """A row per model, version, window and slice value: every metric and its standard error; null: undefined.

        `dimension` and `value` are null of overall results. Why a metric is undefined is in `report()`, as are strata.
        """
        rows = []
        for result in self.snapshot.results:
            flat = result.as_json()
            out = {**_about(result), **{name: value for name, value in flat.items() if name not in _LEFT_OUT}}
            rows.append(out)
        return _table(rows, ("model", "version", "window"))

    @cached_property
    def buckets(self) -> pa.Table:
        """A row per result and pClick bucket: of the fixed edges (`kind` "fixed") and of equal counts ("quantile")."""
        rows = []
        for result in self.snapshot.results:
            for kind, buckets in (("fixed", result.buckets), ("quantile", result.quantiles)):
                for bucket in buckets:
                    numbers = {name: getattr(bucket, name) for name in type(bucket).__slots__}
                    rows.append({**_about(result), "kind": kind, **numbers})
        return _table(rows, ("model", "version", "window", "kind"))

    @cached_property
    def users(self) -> pa.Table:
        """A row per version and user over the whole run: impressions, clicks, AUC, log loss and calibration."""
        parts = []
        called = None if self._names is None else self._names()
        for series, users in self.snapshot.users.items():
            if series.objective:
                continue
            n = len(users)
            ids = users.user.tolist()
            columns = {
                "model": pa.array([series.model] * n, _TEXT),
                "version": pa.array([series.version] * n, _TEXT),
                "user": pa.array([f"{one:016x}" if called is None else called[one] for one in ids], _TEXT),
                "impressions": users.impressions,
                "clicks": users.clicks,
                "auc": _real(user_auc(users.impressions, users.clicks, users.pairs)),
                "log_loss": _real(user_log_loss(users.impressions, users.log_loss_nats)),
                "calibration": _real(user_calibration(users.clicks, users.predicted_clicks)),
            }
            parts.append(pa.table(columns))
        if not parts:
            return _table([], ("model", "version", "user", "impressions", "clicks", "auc", "log_loss", "calibration"))
        return pa.concat_tables(parts)

    @cached_property
    def comparisons(self) -> pa.Table:
        """A row per comparison of two versions and metric, the last of them "overall", with its verdict.

        `difference` is the candidate minus the baseline, relative for log loss and calibration; it is between `lower`
        and `upper` with probability 1 - alpha.
        """
        rows: list[dict[str, Any]] = []
        for comparison in self.snapshot.comparisons:
            about = {
                "model": comparison.candidate.model,
                "baseline": comparison.baseline.version,
                "candidate": comparison.candidate.version,
                "setup": comparison.setup,
            }
            for m in comparison.metrics:
                rows.append(
                    {
                        **about,
                        "metric": m.metric,
                        "verdict": m.verdict,
                        "reason": m.reason,
                        "baseline_value": m.baseline,
                        "candidate_value": m.candidate,
                        "difference": m.difference,
                        "lower": m.lower,
                        "upper": m.upper,
                        "stderr": m.stderr,
                        "margin": m.margin,
                        "tolerance": m.tolerance,
                        "p_worse": m.p_worse,
                    }
                )
            rows.append(
                {
                    **dict.fromkeys(rows[-1]),
                    **about,
                    "metric": "overall",
                    "verdict": comparison.verdict,
                    "reason": comparison.reason,
                    "p_worse": comparison.p_worse,
                }
            )
        return _table(rows, ("model", "baseline", "candidate", "setup", "metric", "verdict", "reason"))

    def metric(
        self,
        name: str,
        *,
        version: str | None = None,
        model: str | None = None,
        window: str = "all",
        where: tuple[str, str] | None = None,
        objective: str | None = None,
    ) -> float | int | None:
        """One number, for example `metric("auc", version="v2")`: a metric, its `_stderr`, or "impressions" or "clicks".
        None: undefined. `where`: a slice, ("country", "de").
        `objective`: the objective whose labels count; None: clicks.

        Raises KeyError when there is no such result, or more than one: then name the version or model.
        """
        there = [r for r in self.snapshot.results if r.window == window and r.slice == where]
        of_series = [r for r in there if version in (None, r.series.version) and model in (None, r.series.model)]
        found = [r for r in of_series if r.series.objective == (objective or "")]
        if len(found) != 1:
            series = sorted({f"{r.series.model} {r.series.version}" for r in self.snapshot.results.overall})
            raise KeyError(f"{len(found)} results, not one; there are results of {', '.join(series) or 'nothing'}")
        flat = found[0].as_json()
        known = ("impressions", "clicks", *found[0].metrics)
        if name not in flat or name.removesuffix("_stderr") not in known:
            raise KeyError(f"{name!r} is not a metric; there are {', '.join(known)}")
        value: float | int | None = flat[name]
        return value

    def verdict(self, candidate: str | None = None, *, model: str | None = None) -> Verdict:
        """The verdict on a version: "worse", "not_worse" or "undecided"; on its newest deploy, by the setup that the API
        chooses, too.

        Raises KeyError unless there are comparisons of exactly one candidate: then name its version or model.
        """
        every = dict.fromkeys(c.candidate for c in self.snapshot.comparisons)
        found = [one for one in every if candidate in (None, one.version) and model in (None, one.model)]
        if len(found) != 1:
            several = len({one.model for one in every}) > 1
            calls = (f"verdict({one.version!r}{f', model={one.model!r}' if several else ''})" for one in found or every)
            raise KeyError(
                f"comparisons of {len(found)} candidates, not of one; there are {', '.join(calls) or 'none'}"
            )
        of = self.snapshot
        chosen = deploy_and_comparison(of.deploys, of.comparisons, found[0].model, found[0].version)[1]
        return "undecided" if chosen is None else chosen.verdict  # None: deployed again, and not compared since

    def report(self) -> dict[str, Any]:
        """Everything as plain values: the report of `streameval replay --report`."""
        return self.snapshot.report()

    def to_pandas(self, table: _Name = "results") -> Any:
        """A table as a pandas DataFrame. Raises ImportError without pandas."""
        return self._of(table).to_pandas()

    def to_polars(self, table: _Name = "results") -> Any:
        """A table as a Polars DataFrame. Raises ImportError without Polars."""
        import polars

        return polars.from_arrow(self._of(table))

    def __repr__(self) -> str:
        return "\n".join([overall(self.snapshot), *self._said()])

    def _repr_html_(self) -> str:
        """For notebooks: plain tables, in the notebook's own style."""
        head, *rows = overall_rows(self.snapshot)
        cells = "".join(f"<th>{escape(name)}</th>" for name in head)
        body = "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows)
        said = "".join(f"<p>{escape(line)}</p>" for line in self._said())
        return f"<table><thead><tr>{cells}</tr></thead><tbody>{body}</tbody></table>{said}"

    def _of(self, table: _Name) -> pa.Table:
        if table not in ("results", "buckets", "users", "comparisons"):
            raise ValueError(f"table = {table!r}: must be results, buckets, users or comparisons")
        return getattr(self, table)

    def _said(self) -> list[str]:
        return [headline(comparison) for comparison in self.snapshot.comparisons]


def _about(result: Result) -> dict[str, Any]:
    dimension, value = result.slice or (None, None)
    series = result.series
    return {
        "model": series.model,
        "version": series.version,
        "source": series.source,
        "objective": series.objective or None,
        "window": result.window,
        "dimension": dimension,
        "value": value,
    }


def _table(rows: Sequence[Mapping[str, Any]], empty: Sequence[str]) -> pa.Table:
    """Rows of the same columns; `empty`: the columns when there are none."""
    names = list(rows[0]) if rows else empty
    return pa.table({name: pa.array([row[name] for row in rows], _TYPES.get(name, pa.float64())) for name in names})


def _real(values: NDArray[np.float64]) -> pa.Array:
    return pa.array(values, from_pandas=True)  # NaN: undefined
