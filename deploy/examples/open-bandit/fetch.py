"""Fetches the Open Bandit Dataset sample (CC BY 4.0) and writes it as one CSV, in order of time.

    python fetch.py FOLDER

The sample ships inside the PyPI package `obp` (its dependencies are not needed): 10,000 impressions each of a random
and of a Bernoulli Thompson sampling policy. Nothing is changed but the order and a `policy` column.
"""

from __future__ import annotations

import csv
import io
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

PACKAGE = "obp==0.4.1"
POLICIES = ("random", "bts")
COLUMNS = (
    "timestamp", "item_id", "position", "click", "propensity_score",
    "user_feature_0", "user_feature_1", "user_feature_2", "user_feature_3",
)  # fmt: skip


def main() -> None:
    """Writes FOLDER/open-bandit.csv."""
    if len(sys.argv) != 2:
        sys.exit("usage: fetch.py FOLDER")
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as wheels:
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", wheels, PACKAGE]
        subprocess.run(command, check=True)
        (wheel,) = Path(wheels).glob("*.whl")
        rows: list[dict[str, str]] = []
        with zipfile.ZipFile(wheel) as archive:
            for policy in POLICIES:
                text = archive.read(f"obp/dataset/obd/{policy}/all/all.csv").decode()
                for row in csv.DictReader(io.StringIO(text)):
                    rows.append({**{name: row[name] for name in COLUMNS}, "policy": policy})
    rows.sort(key=lambda row: row["timestamp"])
    path = folder / "open-bandit.csv"
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, (*COLUMNS, "policy"))
        writer.writeheader()
        writer.writerows(rows)
    print(f"{path}: {len(rows)} impressions, {sum(row['click'] == '1' for row in rows)} clicks")


main()
