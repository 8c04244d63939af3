"""The AUC that tests compare with is scikit-learn's."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

from tests.aucs import auc_of


@pytest.mark.parametrize("distinct", [1, 3, 1_000_000])
def test_it_is_that_of_scikit_learn(distinct: int) -> None:
    rng = np.random.default_rng(distinct)
    for n in (2, 3, 10, 1_000):
        p, label = rng.integers(0, distinct, n) / distinct, rng.permutation(np.arange(n) % 3 == 0).astype(np.int8)
        assert auc_of(label, p) == pytest.approx(roc_auc_score(label, p), abs=1e-13)
