"""AUC and log loss beside other libraries on the same rows, in the same rounds: of a Parquet file, and of a stream of batches.

Each rival goes its own fastest way to the exact numbers; where it has none, the last column says how far off it is. Those that are not installed are
named; `pip install --group rivals` brings them (a gigabyte or more, for PyTorch).
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray
from river import metrics as river
from sklearn import metrics as sk

import streameval
from benchmarks.pipeline import middle

ROWS = 10_000_000
STREAMED = 2_000_000
FEW = 100_000  # for rivals that take a row at a time, or compare each with every threshold
BATCH = 10_000
ROUNDS = 3
GROUPS = ["version", "country"]


class Numbers(NamedTuple):
    """AUC and log loss."""

    auc: float
    log_loss: float


Truth = Callable[[int], Numbers]  # of so many rows


class Rival(NamedTuple):
    """Another library's way to the same numbers."""

    name: str
    library: str
    measure: Callable[[Any], Numbers]
    rows: int  # that it is given
    exact: bool = True


def table(rows: int) -> pa.Table:
    """Calibrated scores of two versions in 20 countries."""
    rng = np.random.default_rng(0)
    logit = rng.normal(-3, 1, rows)
    countries = pa.array([str(i) for i in range(20)])
    return pa.table(
        {
            "pclick": 1 / (1 + np.exp(-logit)),
            "clicked": (rng.random(rows) < 1 / (1 + np.exp(-logit))).astype(np.int8),
            "version": pa.array(["v1", "v2"]).take(pa.array(rng.integers(0, 2, rows))).dictionary_encode(),
            "country": countries.take(pa.array(rng.integers(0, 20, rows))).dictionary_encode(),
        }
    )


# -- of a file ---------------------------------------------------------------------------------------------------


def file_by_ours(path: Path) -> Numbers:
    """Among all its other numbers."""
    result = streameval.evaluate(str(path))
    return Numbers(*(float(np.float64(result.metric(name))) for name in Numbers._fields))


def groups_by_ours(path: Path) -> Numbers:
    """Means over versions and countries."""
    result = streameval.evaluate(str(path), slices=["country"], version="version")
    rows = [row for row in result.results.to_pylist() if row["dimension"] == "country"]
    return Numbers(*(float(np.mean([row[name] for row in rows])) for name in Numbers._fields))


def file_by_sklearn(path: Path) -> Numbers:
    """What most people write."""
    found = pq.read_table(path, columns=["pclick", "clicked"])
    p, y = found["pclick"].to_numpy(), found["clicked"].to_numpy()
    return Numbers(float(sk.roc_auc_score(y, p)), float(sk.log_loss(y, p)))


def _polars_numbers() -> list[Any]:
    import polars as pl

    p, y = pl.col("pclick"), pl.col("clicked").cast(pl.Float64)
    clicks, others = y.sum(), pl.len() - y.sum()
    above = (p.rank("average") * y).sum() - clicks * (clicks + 1) / 2
    loss = -(y * p.log() + (1 - y) * (1 - p).log()).mean()
    return [(above / (clicks * others)).alias("auc"), loss.alias("log_loss")]


def file_by_polars(path: Path) -> Numbers:
    """Ranks, averaged over ties."""
    import polars as pl

    return Numbers(*pl.scan_parquet(path).select(_polars_numbers()).collect().row(0))


def groups_by_polars(path: Path) -> Numbers:
    """The same, by version and country."""
    import polars as pl

    found = pl.scan_parquet(path).group_by(GROUPS).agg(_polars_numbers()).select("auc", "log_loss").mean().collect()
    return Numbers(*found.row(0))


_DUCKDB = """
WITH scores AS (
  SELECT {by} pclick, sum(clicked) AS clicks, count(*) - sum(clicked) AS others,
         sum(clicked) * -ln(pclick) + (count(*) - sum(clicked)) * -ln(1 - pclick) AS loss
  FROM '{path}' GROUP BY {by} pclick
), below AS (
  SELECT *, sum(others) OVER ({partition} ORDER BY pclick) - others / 2.0 AS beaten FROM scores
), numbers AS (
  SELECT sum(clicks * beaten) / (sum(clicks) * sum(others)) AS auc, sum(loss) / sum(clicks + others) AS log_loss
  FROM below {group}
) SELECT avg(auc), avg(log_loss) FROM numbers
"""


def _duckdb(path: Path, by: str) -> Numbers:
    import duckdb

    text = _DUCKDB.format(
        path=path, by=by and f"{by},", partition=by and f"PARTITION BY {by}", group=by and f"GROUP BY {by}"
    )
    return Numbers(*duckdb.sql(text).fetchall()[0])


def file_by_duckdb(path: Path) -> Numbers:
    """Running sums over sorted scores."""
    return _duckdb(path, "")


def groups_by_duckdb(path: Path) -> Numbers:
    """The same, by version and country."""
    return _duckdb(path, ", ".join(GROUPS))


# -- of a stream -------------------------------------------------------------------------------------------------

Stream = list[tuple[NDArray[np.float64], NDArray[np.int8]]]


def stream_by_ours(stream: Stream) -> Numbers:
    """A histogram of 2**10 bins an octave, which knows its own error."""
    found = streameval.ScoreHistogram()
    for p, y in stream:
        found.add(p, y)
    auc, loss = found.auc(), found.log_loss()
    assert auc is not None
    assert loss is not None
    return Numbers(auc.value, loss)


def stream_by_river(stream: Stream) -> Numbers:
    """Its defaults: 10 thresholds."""
    auc, loss = river.ROCAUC(), river.LogLoss()
    for p, y in stream:
        for score, label in zip(p.tolist(), y.astype(bool).tolist(), strict=True):
            auc.update(label, score)
            loss.update(label, score)
    return Numbers(auc.get(), loss.get())


def _torch(stream: Stream) -> Iterator[tuple[Any, Any]]:
    import torch

    for p, y in stream:
        yield torch.from_numpy(p.copy()), torch.from_numpy(y.copy())  # which may be written to


def stream_by_torcheval(stream: Stream) -> Numbers:
    """Exact: it keeps every score."""
    from torcheval.metrics import BinaryAUROC, BinaryNormalizedEntropy

    auc, entropy, clicks, rows = BinaryAUROC(), BinaryNormalizedEntropy(), 0, 0
    for p, y in _torch(stream):
        auc.update(p, y)
        entropy.update(p, y.double())
        clicks, rows = clicks + int(y.sum()), rows + y.numel()
    base = clicks / rows
    return Numbers(
        float(auc.compute()),
        float(entropy.compute()) * -(base * np.log(base) + (1 - base) * np.log(1 - base)),
    )


def stream_by_torchmetrics(stream: Stream) -> Numbers:
    """With 1,000 thresholds, so that its state is bounded, too; it has no log loss, so that is PyTorch's."""
    import torch
    from torchmetrics.classification import BinaryAUROC

    auc, loss, rows = BinaryAUROC(thresholds=1_000, validate_args=False), 0.0, 0
    for p, y in _torch(stream):
        auc.update(p, y.long())
        loss += float(torch.nn.functional.binary_cross_entropy(p, y.double(), reduction="sum"))
        rows += y.numel()
    return Numbers(float(auc.compute()), loss / rows)


# -- the table ---------------------------------------------------------------------------------------------------


def compare(
    what: str, ours: Callable[[Any], Numbers], given: Callable[[int], Any], rivals: list[Rival], truth: Truth
) -> None:
    """Prints rows of the table; `given` returns so many rows. Fails if an exact library has other numbers."""
    rows = rivals[0].rows
    whole = given(rows)
    ours(whole)  # compiles, and reads a file for the first time
    took, found = zip(*(_timed(ours, whole) for _ in range(ROUNDS)), strict=True)
    print(
        f"| {what}: streameval | {rows / middle(list(took)) / 1e6:.2f} M | 1 | {found[0].auc - truth(rows).auc:+.9f} |"
    )
    for rival in rivals:
        if find_spec(rival.library) is None:
            print(f"| {what}: {rival.name} | not installed | | |")
            continue
        data = given(rival.rows)
        rival.measure(data)  # imports
        rates, ratios = [], []
        for _ in range(ROUNDS):
            mine, _ = _timed(ours, whole)
            seconds, theirs = _timed(rival.measure, data)
            rates.append(rival.rows / seconds)
            ratios.append(seconds / rival.rows * rows / mine)
        right = truth(rival.rows)
        if rival.exact and not np.allclose(theirs, right, rtol=0, atol=1e-9):
            raise SystemExit(f"{what}: {rival.name} has {theirs}, and {right} is right")
        ratios.sort()
        print(
            f"| {what}: {rival.name} | {middle(rates) / 1e6:.2f} M | {middle(ratios):.1f} ({ratios[0]:.1f}, {ratios[-1]:.1f}) | "
            f"{theirs.auc - right.auc:+.9f} |"
        )


def _mean_of_groups(whole: pa.Table) -> Numbers:
    """Exact, by scikit-learn."""
    p, y = whole["pclick"].to_numpy(), whole["clicked"].to_numpy()
    version, country = (np.asarray(whole[name].combine_chunks().indices) for name in GROUPS)
    group = version * 20 + country
    found = [
        (sk.roc_auc_score(y[mine], p[mine]), sk.log_loss(y[mine], p[mine]))
        for g in range(40)
        if (mine := group == g).any()
    ]
    return Numbers(*np.mean(found, axis=0).tolist())


def _timed(measure: Callable[[Any], Numbers], given: Any) -> tuple[float, Numbers]:
    begin = time.perf_counter()
    found = measure(given)
    return time.perf_counter() - begin, found


def main() -> None:
    """Prints the table."""
    whole = table(ROWS)
    p, y = whole["pclick"].to_numpy(), whole["clicked"].to_numpy()
    print(
        "| AUC and log loss of | rows/s | its time for a row, of ours: median (least, most) | its AUC minus the exact one |"
    )
    print("|---|---|---|---|")

    @cache
    def right(rows: int) -> Numbers:
        return Numbers(float(sk.roc_auc_score(y[:rows], p[:rows])), float(sk.log_loss(y[:rows], p[:rows])))

    with tempfile.TemporaryDirectory() as folder:
        plain, grouped = Path(folder) / "plain.parquet", Path(folder) / "grouped.parquet"
        pq.write_table(whole.select(["pclick", "clicked"]), plain)
        pq.write_table(whole, grouped)
        of_file = [
            Rival("Polars", "polars", file_by_polars, ROWS),
            Rival("DuckDB", "duckdb", file_by_duckdb, ROWS),
            Rival("pyarrow and scikit-learn", "sklearn", file_by_sklearn, ROWS),
        ]
        compare(f"a Parquet file of {ROWS:,} rows", file_by_ours, lambda _: plain, of_file, right)
        of_groups = [
            Rival("Polars", "polars", groups_by_polars, ROWS),
            Rival("DuckDB", "duckdb", groups_by_duckdb, ROWS),
        ]
        mean = _mean_of_groups(whole)
        compare("its 2 versions in 20 countries", groups_by_ours, lambda _: grouped, of_groups, lambda _: mean)

    def stream(rows: int) -> Stream:
        return [(p[at : at + BATCH], y[at : at + BATCH]) for at in range(0, rows, BATCH)]

    of_stream = [
        Rival("torcheval", "torcheval", stream_by_torcheval, STREAMED, exact=False),
        Rival("torchmetrics, 1,000 thresholds", "torchmetrics", stream_by_torchmetrics, FEW, exact=False),
        Rival("River", "river", stream_by_river, FEW, exact=False),
    ]
    compare(f"a stream in batches of {BATCH:,}", stream_by_ours, stream, of_stream, right)
