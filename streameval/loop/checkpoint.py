"""A partition's checkpoint: written with the files of rows that it refers to, and restored. See `streameval.loop.keeper`."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from streameval.join.rows import by_model
from streameval.loop.binding import check_binding, removed_objectives
from streameval.loop.pipeline import Pipeline
from streameval.loop.rows_on_disk import check_before_use, open_rows, put_named, write_named
from streameval.models.protocol import ModelError
from streameval.store.checkpoints import READ_WITH_IT, Checkpoints
from streameval.store.errors import StoreError


class Restored(NamedTuple):
    """A partition that was restored."""

    path: Path  # of the checkpoint
    offsets: dict[tuple[str, int], int]
    written_at: float  # wall-clock seconds
    restarts: int  # including this one
    removed: dict[str, Any]  # see `removed_objectives`


def write_checkpoint(files: Checkpoints, tree: dict[str, Any]) -> tuple[int, float]:
    """(bytes, seconds). Pickles go to separate files, and so do rows to which later checkpoints will also refer."""
    begin = time.monotonic()
    apart = {}
    part = tree["monitor"]
    tree[READ_WITH_IT], more = write_named(files, part)
    for number, learner in enumerate(part["learners"] if part else ()):
        if "pickle" in learner["model"]:
            apart[str(number)] = learner["model"].pop("pickle")
    return files.save(tree, apart) + more, time.monotonic() - begin


def restore_newest(
    pipeline: Pipeline, files: Checkpoints, partition: int, settings: Mapping[str, Any]
) -> Restored | None:
    """Restores the newest valid checkpoint; None: there is none. Raises StoreError. `settings`: see `binding`."""
    found = files.load()
    if found is None:
        return None
    tree, apart, path = found
    check_binding(settings, tree["settings"], path)
    part = tree["monitor"]
    if part and "models" in tree["settings"]:
        _name_models(part, [model["name"] for model in tree["settings"]["models"]])
    rows = open_rows(files.folder, part)
    put_named(files, part, tree[READ_WITH_IT], rows)
    for name, data in apart.items():
        part["learners"][int(name)]["model"]["pickle"] = data
    try:
        offsets = pipeline.restore_partition(partition, tree, rows)
    except ModelError as error:
        raise StoreError(f"{path}: {error}") from None
    except OSError as error:
        raise StoreError(f"{path}: its files of rows cannot be mapped: {error.strerror}") from None
    if part:
        on_disk = pipeline.partitions[partition].to_disk
        for index in on_disk.indexes:
            files.named(index.path.name)
        check_before_use(on_disk, rows)
    removed = removed_objectives(settings, tree["settings"])
    return Restored(path, offsets, tree["at"], tree["restarts"] + 1, removed)


def _name_models(part: dict[str, Any], names: list[str]) -> None:
    """Until format 11 online models had only numbers, in checkpoints as in files of rows."""
    for name, learner in zip(names, part["learners"], strict=True):
        learner["name"] = learner["column"] = name
    joiner = part["joiner"]
    numbered = [f"{kind}.{number}" for kind in ("score", "trained") for number in range(len(names))]
    joiner["online"] = by_model(dict(zip(numbered, joiner["online"], strict=True)), names)
    for file in (joiner.get("cold") or {}).get("files", ()):
        file.extend(names)
