"""Corrects the pClick of models that were trained on a share of the non-clicks."""

from __future__ import annotations

import numpy as np

from streameval.events.batch import Catalog
from streameval.events.columns import Scored
from streameval.sketches.layout import Sampled


class Recalibration:
    """p / (p + (1 - p) / w) for the versions that match a pattern, where w is that share (He et al. 2014, section 6.3).

    It is monotone, so metrics of order alone change only by rounding.
    """

    def __init__(self, sampling: Sampled, catalog: Catalog) -> None:
        self._sampling, self._catalog = sampling, catalog
        self._changes = -1  # the catalog's count of changes when the versions were last matched
        self._on = np.zeros(0, np.bool_)

    def __call__(self, scored: Scored) -> None:
        """Corrects the scores of these versions in place."""
        if self._changes != self._catalog.changes:
            found = [self._sampling.recalibrated(one.version) is not None for one in self._catalog.series]
            self._on = np.array(found, np.bool_)
            self._changes = self._catalog.changes
        on = self._on[scored.series]
        p = scored.p[on]
        scored.p[on] = p / (p + (1.0 - p) / self._sampling.trained_negatives)
