"""Any River classifier as an online model."""

from __future__ import annotations

import importlib
import logging
import math
import numbers
import pickle
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streameval.events.batch import Features
from streameval.models.protocol import Failed, ModelError

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
    except (ImportError, AttributeError) as error:
        raise ModelError(f'models "{name}": factory = "{factory}" cannot be imported: {error}') from None
    except Exception as error:  # the module may raise anything when it is imported
        raise ModelError(
            f'models "{name}": factory = "{factory}" cannot be imported: {type(error).__name__}: {error}'
        ) from error
    try:
        model = target(**parameters)
    except TypeError as error:
        raise ModelError(f'models "{name}": factory = "{factory}" does not take {dict(parameters)}: {error}') from None
    except Exception as error:  # third-party code
        raise ModelError(
            f'models "{name}": factory = "{factory}" with {dict(parameters)} raised {type(error).__name__}: {error}'
        ) from error
    if not callable(getattr(model, "predict_proba_one", None)) or not callable(getattr(model, "learn_one", None)):
        raise ModelError(
            f'models "{name}": factory = "{factory}" returned a {type(model).__name__}; it must be a River classifier '
            "with predict_proba_one and learn_one"
        )
    return model


class River:
    """`kind = "river"`: one dict per impression, so only as fast as River itself."""

    def __init__(self, model: Any) -> None:
        self._model = model

    def predict(self, features: Features, failed: Failed) -> NDArray[np.float64]:
        """P(True) of n impressions, where the classifier gives P(True) and P(False)."""
        rows = features.dicts or ()
        predict = self._model.predict_proba_one
        out = np.full(len(rows), math.nan)
        for row, x in enumerate(rows):
            try:
                answer = predict(dict(x))  # a copy: the model may change it, and others get it, too
            except Exception as error:
                reason, words = "raised", self._raised("predict_proba_one", error)
            else:
                p = probability(answer)
                if isinstance(p, float):
                    out[row] = p
                    continue
                reason, words = p[0], f"{type(self._model).__name__}.predict_proba_one answered {p[1]}"
            if not failed(row, reason, words):
                break
        return out

    def learn(self, features: Features, labels: NDArray[np.int8], failed: Failed) -> None:
        """`learn_one` an impression, in order; one that raises may have been learned in part."""
        learn = self._model.learn_one
        for row, (x, y) in enumerate(zip(features.dicts or (), labels.tolist(), strict=True)):
            try:
                learn(dict(x), bool(y))
            except Exception as error:
                if not failed(row, "learn_raised", self._raised("learn_one", error)):
                    break

    def _raised(self, verb: str, error: Exception) -> str:
        log.debug("%s.%s failed", type(self._model).__name__, verb, exc_info=error)
        return (
            f"{type(self._model).__name__}.{verb} raised {type(error).__name__} (what it says may quote the event, so "
            "it is logged at --log-level debug only)"
        )

    def state(self) -> Mapping[str, Any]:
        """The pickled model (River has no other form). Raises ModelError when it cannot be pickled."""
        try:
            return {"pickle": pickle.dumps(self._model)}
        except Exception as error:  # a lambda in it, an open file
            raise ModelError(
                f"a {type(self._model).__name__} cannot be pickled, as checkpoints need it: {type(error).__name__}: "
                f"{error}; use functions of a module instead of lambdas, or unset store.path"
            ) from error

    def restore(self, state: Mapping[str, Any]) -> None:
        """Only for states from a folder that nobody else can write: unpickling runs code. Raises ModelError."""
        try:
            self._model = pickle.loads(bytes(state["pickle"]))  # noqa: S301  (River models have no other form)
        except Exception as error:  # its code has changed since
            raise ModelError(
                f"the pickled {type(self._model).__name__} cannot be read: {type(error).__name__}: {error}; put its code "
                "back, or raise `revision` of its entry in models to start it from scratch"
            ) from error

    @property
    def nbytes(self) -> int:
        """River's own estimate."""
        return int(self._model._raw_memory_usage) if hasattr(self._model, "_raw_memory_usage") else 0


def probability(answer: Any) -> float | tuple[str, str]:
    """P(True) of what a classifier has answered, or (reason of `FAILURES`, the answer in words)."""
    if type(answer) is dict and len(answer) == 2:  # the common case first
        p, other = answer.get(True), answer.get(False)
        if type(p) is float and type(other) is float and 0.0 <= p <= 1.0 and 0.0 <= other <= 1.0:
            return p
    if not isinstance(answer, Mapping):
        return "no_answer", f"{type(answer).__name__}, not a dict"
    strange = [label for label in answer if not (isinstance(label, (bool, np.bool_, int)) and label in (0, 1))]
    if strange:
        return "other_labels", f"with labels of type {type(strange[0]).__name__}; they must be True and False"
    if len(answer) < 2:
        return "one_class", f"with {'only ' + str(bool(next(iter(answer)))) if answer else 'neither True nor False'}"
    for label in (True, False):
        p = answer[label]
        if isinstance(p, (bool, np.bool_)) or not isinstance(p, numbers.Real):
            return "not_a_number", f"{type(p).__name__} for {label}"
        value = float(p)
        if not math.isfinite(value):
            return "not_finite", f"{value} for {label}"
        if not 0.0 <= value <= 1.0:
            return "out_of_range", f"{value!r} for {label}, which is not in [0, 1]"
    return float(answer[True])
