"""Any River classifier as an online model."""

from __future__ import annotations

import importlib
import logging
import pickle
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streameval.events import Features
from streameval.models.protocol import ModelError, Needs

log = logging.getLogger(__name__)


def make(factory: str, parameters: Mapping[str, Any], name: str) -> Any:
    """The object that `factory` ("module:callable" or "module.Class") returns for the parameters.

    Raises ModelError when it cannot be imported or called, or is not a River classifier.
    """
    module_name, _, attribute = factory.partition(":") if ":" in factory else factory.rpartition(".")
    if not module_name or not attribute:
        raise ModelError(
            f'models "{name}": factory = "{factory}": write "package.module:callable" or "package.module.Class"'
        )
    try:
        target: Any = importlib.import_module(module_name)
        for part in attribute.split("."):
            target = getattr(target, part)
        model = target(**parameters)
    except (ImportError, AttributeError) as error:
        raise ModelError(f'models "{name}": factory = "{factory}" cannot be imported: {error}') from None
    except TypeError as error:
        raise ModelError(f'models "{name}": factory = "{factory}" does not take {dict(parameters)}: {error}') from None
    if not callable(getattr(model, "predict_proba_one", None)) or not callable(getattr(model, "learn_one", None)):
        raise ModelError(
            f'models "{name}": factory = "{factory}" returned a {type(model).__name__}; it must be a River classifier '
            "with predict_proba_one and learn_one"
        )
    return model


class River:
    """`kind = "river"`: one dict an impression, so as fast as River itself is."""

    needs: Needs = "dicts"

    def __init__(self, model: Any) -> None:
        self._model = model

    def predict(self, features: Features) -> NDArray[np.float64]:
        """P(True) of n impressions; 0 from a classifier that has not seen a True yet."""
        predict: Callable[[dict[str, float]], dict[Any, float]] = self._model.predict_proba_one
        rows = features.dicts or ()
        try:
            out = np.fromiter((predict(x).get(True, 0.0) for x in rows), np.float64, len(rows))
        except Exception as error:
            raise self._failed("predict_proba_one", error) from None
        return np.clip(out, 0.0, 1.0)

    def learn(self, features: Features, labels: NDArray[np.int8]) -> None:
        """`learn_one` an impression, in order."""
        learn = self._model.learn_one
        try:
            for x, y in zip(features.dicts or (), labels.tolist(), strict=True):
                learn(x, bool(y))
        except Exception as error:
            raise self._failed("learn_one", error) from None

    def _failed(self, verb: str, error: Exception) -> ModelError:
        log.debug("%s.%s failed", type(self._model).__name__, verb, exc_info=error)
        return ModelError(
            f"{type(self._model).__name__}.{verb} failed with {type(error).__name__}; what it says may quote an event, "
            "so it is logged at --log-level debug only. Check that the model takes the features as they come"
        )

    def state(self) -> Mapping[str, Any]:
        """The pickled model (River has no other form)."""
        return {"pickle": pickle.dumps(self._model)}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Only for states from a folder that nobody else can write: unpickling runs code."""
        self._model = pickle.loads(bytes(state["pickle"]))  # noqa: S301  (River models have no other form)

    @property
    def nbytes(self) -> int:
        """River's own estimate."""
        return int(self._model._raw_memory_usage) if hasattr(self._model, "_raw_memory_usage") else 0
