"""What an online model promises."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from streameval.events import Features

Needs = Literal["hashed", "dicts"]


class ModelError(ValueError):
    """A model that cannot be made or used; the message names the model, what is wrong and the fix."""


class OnlineModel(Protocol):
    """Scores impressions and learns from their labels; the monitor decides when. One partition owns one."""

    @property
    def needs(self) -> Needs:
        """Which form of the features it reads: hashed columns, or one dict an impression."""

    def predict(self, features: Features) -> NDArray[np.float64]:
        """P(click) in [0, 1] of n impressions (float64[n]); changes nothing."""

    def learn(self, features: Features, labels: NDArray[np.int8]) -> None:
        """Learns n labels (0 or 1), one after the other in this order."""

    def state(self) -> Mapping[str, Any]:
        """Everything that `restore` needs to go on as if nothing had happened, as it is now.

        Arrays, bytes under the name "pickle", and calls that give a dict of arrays: what takes long is left to them,
        and to the thread that makes them.
        """

    def restore(self, state: Mapping[str, Any]) -> None:
        """Takes a state that the same kind of model, with the same parameters, gave; its calls have been made."""

    @property
    def nbytes(self) -> int:
        """Bytes of the model."""
