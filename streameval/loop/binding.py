"""The settings that a checkpoint depends on."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from streameval.settings.tree import Settings
from streameval.sources.registry import kind_of_source
from streameval.store.errors import StoreError

# with another value, the counts in a checkpoint would mean something else
BINDING = (
    "join.attribution_window", "join.allowed_lateness", "join.correction_horizon", "join.score_at", "join.request_gap",
    "windows", "slices", "users.weighting", "buckets.edges", None, "compare.gauc_window",
)  # fmt: skip  # None: what the kind of source says
UNBOUND = ("max_failures", "revision")  # of a model: they do not change the meaning of what it has learned
_OBJECTIVE, _MODEL, _MAINLINE = "objectives.", "models.", "auction.mainline"


def binding(settings: Settings) -> dict[str, Any]:
    """The settings that a checkpoint depends on, as plain values."""
    tree = settings.model_dump(mode="json")
    out: dict[str, Any] = {}
    for key in (key for one in BINDING for key in ([one] if one else kind_of_source(settings).binding)):
        node: Any = tree
        for part in key.split("."):
            node = node[part]
        if isinstance(node, dict):
            out |= {f"{key}.{name}": value for name, value in node.items()}
        else:
            out[key] = node
    if "block" in settings.slices.dimensions:
        out[_MAINLINE] = settings.auction.mainline
    for model in tree["models"]:
        out[f"{_MODEL}{model['name']}"] = {key: value for key, value in model.items() if key not in UNBOUND}
    out |= {f"{_OBJECTIVE}{one.name}.value_at_least": one.value_at_least for one in settings.objectives}
    return {**out, "sampling": settings.sampling.binding}  # missing from older checkpoints


def check_binding(now: Mapping[str, Any], saved: Mapping[str, Any], path: Path) -> None:
    """Raises StoreError if a checkpoint was written with settings other than the current ones."""
    saved = {**saved, **{f"{_MODEL}{model['name']}": model for model in saved.get("models", ())}}  # until format 11
    for key, value in now.items():
        may_be_new = key.startswith((_OBJECTIVE, _MODEL))
        if key not in saved and (may_be_new or key == _MAINLINE):  # new, or an older checkpoint
            continue
        if saved.get(key) != value:
            kind = "objective" if key.startswith(_OBJECTIVE) else "model"
            way = f"Give the {kind} another name, set it" if may_be_new else f"Set {key}"
            folder = path.parent.parent
            raise StoreError(
                f"{path}: was written with {key} = {saved.get(key)!r}, which is now {value!r}: its counts "
                f"would mean something else. {way} back, or start over: set another store.path, or stop, move {folder} "
                f"away and start. The panes that {folder.with_name('history.sqlite')} has, counted with the old value, stay "
                "where they are not counted again; to leave them out, move it away, too, with its -wal and -shm"
            )


def removed_objectives(now: Mapping[str, Any], saved: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of objectives in a checkpoint that are configured no more. Their counts stay in it, so that whoever
    adds one again must mean the same.
    """
    return {key: value for key, value in saved.items() if key.startswith(_OBJECTIVE) and key not in now}
