"""The kinds of online models, one row each, used by the settings, the decoder, the warm-up and the docs.

Add your own kind with `register(ModelKind(...))`, before the settings are read; see docs/design.md, "Adding a ...".
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Literal

from streameval.models.protocol import ModelError, OnlineModel
from streameval.settings.models import MODELS, FtrlModel, ModelSettings, RiverModel
from streameval.settings.section import kind_of
from streameval.settings.tree import renew

Needs = Literal["hashed", "dicts"]
_WORDS = {"hashed": "hashed columns", "dicts": "a dict for every impression"}


@dataclass(frozen=True, slots=True)
class ModelKind:
    """A kind of model."""

    settings: type[ModelSettings]  # its `[[models]]` table; the default of `kind` there is its name
    make: Callable[[Any], OnlineModel]  # from such a table; raises ModelError
    needs: Needs | None  # the features, as columns of hashes or as one dict per impression; None: it reads none

    @property
    def name(self) -> str:
        """As `kind` in the settings."""
        return kind_of(self.settings)


def _ftrl(s: FtrlModel) -> OnlineModel:
    from streameval.models.ftrl import Ftrl

    return Ftrl(s.alpha, s.beta, s.l1, s.l2, s.bits)


def _river(s: RiverModel) -> OnlineModel:
    from streameval.models.river import River, make

    return River(make(s.factory, s.parameters, s.name))


_KINDS = {kind.name: kind for kind in (ModelKind(FtrlModel, _ftrl, "hashed"), ModelKind(RiverModel, _river, "dicts"))}


def register(kind: ModelKind) -> None:
    """From now on `[[models]]` tables may be of this kind. Raises ModelError when its name is taken."""
    if kind.name in _KINDS:
        raise ModelError(f'models: the kind "{kind.name}" exists already; choose another name')
    _KINDS[kind.name] = kind
    MODELS.sections[kind.name] = kind.settings
    renew()


def unregister(name: str) -> None:
    """The opposite of `register`, as tests need it."""
    del _KINDS[name], MODELS.sections[name]
    renew()


def kind_of_model(settings: ModelSettings) -> ModelKind:
    """The row that a `[[models]]` table is of."""
    return _KINDS[kind_of(type(settings))]


def make_model(settings: ModelSettings) -> OnlineModel:
    """The online model that a `[[models]]` table describes. Raises ModelError."""
    return kind_of_model(settings).make(settings)


def needs_of(models: Iterable[ModelSettings]) -> frozenset[Needs]:
    """The forms of the features that these models read."""
    return frozenset(needs for model in models if (needs := kind_of_model(model).needs) is not None)


def check_features(models: Iterable[ModelSettings], missing: str) -> None:
    """Raises ModelError if one of the models needs features and the source cannot give any: `missing` says why."""
    for model in models:
        kind = kind_of_model(model)
        if kind.needs is not None and missing:
            raise ModelError(
                f'models "{model.name}": kind = "{kind.name}" needs features (as {_WORDS[kind.needs]}), and gets none: '
                f"{missing}, or remove the model"
            )
