"""What an online model promises."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from streameval.events.batch import Features

# why a model failed on an impression; docs/operations.md says what each means
FAILURES = (
    "raised", "no_answer", "other_labels", "one_class", "not_a_number", "not_finite", "out_of_range",
    "not_learned_yet", "learn_raised", "learn_overflow",
)  # fmt: skip

# (row, reason, what happened in words that do not quote the event) -> whether to continue with the next row
Failed = Callable[[int, str, str], bool]


class ModelError(ValueError):
    """A model that cannot be made or used; the message names the model, what is wrong and the fix."""


class OnlineModel(Protocol):
    """Scores impressions and learns from their labels; the monitor decides when. One partition owns one."""

    def predict(self, features: Features, failed: Failed) -> NDArray[np.float64]:
        """P(click) in [0, 1] of the impressions (float64[features.rows]); changes nothing.

        Where there is none, NaN and a call of `failed`, in the order of rows; rows after one at which `failed` says to
        stop may be NaN. An exception ends the program: catch what one event can cause, and report it with `failed`.
        """

    def learn(self, features: Features, labels: NDArray[np.int8], failed: Failed) -> None:
        """Learns n labels (0 or 1), one after another in this order; `failed` is called for those it cannot learn."""

    def state(self) -> Mapping[str, Any]:
        """Everything that `restore` needs to continue as if nothing had happened, as it is now.

        Arrays, bytes under the name "pickle", and calls that give a dict of arrays: what takes long is left to them,
        and to the thread that makes them.
        """

    def restore(self, state: Mapping[str, Any]) -> None:
        """Restores a `state` of the same kind of model with the same parameters; its calls have been made."""

    @property
    def nbytes(self) -> int:
        """Bytes of the model."""
