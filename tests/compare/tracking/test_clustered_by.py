"""What a reading says that its errors are clustered by."""

from __future__ import annotations

import numpy as np
import pytest

from streameval.compare.tracking.sums import shared_by


@pytest.mark.parametrize(
    ("blocks", "named", "said"),
    [(64, 900, "user_and_item"), (64, 899, "user"), (30, 1000, "user_and_item"), (29, 1000, "user"), (0, 0, "user")],
)
def test_items_are_named_where_nearly_all_impressions_have_one_and_there_are_enough(
    blocks: int, named: int, said: str
) -> None:
    by_item = np.zeros(64, np.int64)
    by_item[:blocks] = 1
    by_item[:1] += named - blocks
    assert shared_by(by_item, 1000) == said
    assert shared_by(0 * by_item, 0) == "user"
