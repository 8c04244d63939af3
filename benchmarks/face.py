"""`streameval.evaluate` of an Arrow table against scikit-learn on the same rows, in the same rounds."""

from __future__ import annotations

import time

import numpy as np
import pyarrow as pa
from sklearn import metrics as sk

import streameval

ROWS = 10_000_000
USERS = 200_000
ROUNDS = 3


def table(n: int = ROWS) -> pa.Table:
    """n labelled rows: users as text, calibrated scores, an hour and a half of event time per million."""
    rng = np.random.default_rng(0)
    logit = rng.normal(-3, 1, n)
    users = pa.array([f"user-{i}" for i in range(USERS)])
    return pa.table(
        {
            "user_id": users.take(pa.array(rng.integers(0, USERS, n))),
            "pclick": 1 / (1 + np.exp(-logit)),
            "clicked": rng.random(n) < 1 / (1 + np.exp(-logit)),
            "other": 1 / (1 + np.exp(-logit - rng.normal(0, 0.5, n))),
            "model_version": pa.array(["v1", "v2"]).take(pa.array(rng.integers(0, 2, n))).dictionary_encode(),
            "country": pa.array([str(i) for i in range(20)]).take(pa.array(rng.integers(0, 20, n))).dictionary_encode(),
        }
    )


def ours(given: pa.Table, **options: object) -> tuple[float, streameval.Evaluation]:
    """Seconds of wall clock, and the result."""
    begin = time.perf_counter()
    result = streameval.evaluate(given, **options)  # type: ignore[arg-type]
    return time.perf_counter() - begin, result


def scikit_learn(given: pa.Table) -> tuple[float, float, float]:
    """Seconds, AUC and log loss."""
    y, p = given["clicked"].to_numpy(), given["pclick"].to_numpy()
    begin = time.perf_counter()
    auc, loss = sk.roc_auc_score(y, p), sk.log_loss(y, p)
    return time.perf_counter() - begin, float(auc), float(loss)


def main() -> None:
    """Prints the table. Fails if a number differs from scikit-learn's."""
    whole = table()
    plain = whole.select(["user_id", "pclick", "clicked"])
    cases: dict[str, tuple[pa.Table, dict[str, object]]] = {
        "one version, users (goal 2,000,000)": (plain, {}),
        "the same without users": (plain.drop_columns(["user_id"]), {}),
        "users, two versions compared, a slice of 20 values": (whole, {"slices": ["country"]}),
        "users, two models on the same rows compared": (whole.drop_columns(["model_version"]), {"score": ["pclick", "other"]}),
    }  # fmt: skip
    for given, options in cases.values():
        ours(given.slice(0, 100_000), **options)  # compile
    print(
        f"| `evaluate` of {ROWS:,} rows | rows/s | its time over scikit-learn's AUC and log loss: median (least, most) |"
    )
    print("|---|---|---|")
    for what, (given, options) in cases.items():
        rates, ratios = [], []
        for _ in range(ROUNDS):
            seconds, result = ours(given, **options)
            theirs, auc, loss = scikit_learn(given)
            rates.append(ROWS / seconds)
            ratios.append(seconds / theirs)
        if what.startswith(("one", "the same")):
            found = np.array([result.metric("auc"), result.metric("log_loss")], np.float64)
            if not np.allclose(found, (auc, loss), rtol=1e-12, atol=0):
                raise SystemExit(f"{what}: AUC and log loss are {found}, scikit-learn's {(auc, loss)}")
        print(
            f"| {what} | {sorted(rates)[ROUNDS // 2]:,.0f} | {sorted(ratios)[ROUNDS // 2]:.2f} ({min(ratios):.2f}, {max(ratios):.2f}) |"
        )
