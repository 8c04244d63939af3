"""Keyword arguments of the Python API as settings: the same tree, rules and defaults as a TOML file, without the file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from streameval.settings.toml import validate
from streameval.settings.tree import ConfigError, Settings

WeightingName = Literal["impressions", "clicks", "uniform", "value"]


def make_settings(
    settings: Mapping[str, Any] | Settings | None,
    *,
    windows: Sequence[str] | None = None,
    slices: Sequence[str] = (),
    edges: Sequence[float] | None = None,
    quantiles: int | None = None,
    weighting: WeightingName | None = None,
    attribution_window: str | None = None,
    weights: bool = False,
) -> Settings:
    """The tree `settings` with the keywords that are given. Raises ConfigError, a ValueError, naming what is wrong."""
    if isinstance(settings, Settings):
        return settings
    tree: dict[str, Any] = {section: _copied(value) for section, value in (settings or {}).items()}
    given = {
        ("windows", "sliding"): None if windows is None else several("windows", windows),
        ("slices", "dimensions"): several("slices", slices) or None,
        ("buckets", "edges"): None if edges is None else tuple(edges),
        ("buckets", "quantiles"): quantiles,
        ("users", "weighting"): weighting,
        ("join", "attribution_window"): attribution_window,
        ("sampling", "weights"): weights or None,
    }
    for (section, key), value in given.items():
        if value is not None:
            tree.setdefault(section, {})[key] = value
    return validate(tree)


def several(option: str, names: Sequence[str]) -> tuple[str, ...]:
    """The names that an option gives. Raises ConfigError for a text alone, whose letters would be taken for names."""
    if isinstance(names, str):
        raise ConfigError(f'{option} = "{names}": must be a list, for example ["{names}"]')
    return tuple(names)


def _copied(value: Any) -> Any:
    return dict(value) if isinstance(value, Mapping) else value
