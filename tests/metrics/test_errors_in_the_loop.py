"""Standard errors of everything that the loop counts, with Zipf users: what is stated is what repeating the experiment says."""

from __future__ import annotations

import pytest

from benchmarks.errors import FIRST, RATIOS, ZIPF, judged, repetition


@pytest.mark.parametrize("users", [300, 3_000])
@pytest.mark.slow
def test_with_zipf_users_they_are_those_of_repeating_the_experiment(users: int) -> None:
    results = [repetition(seed, users, ZIPF["Zipf 1.1"]) for seed in range(80)]
    found = {name: judged(results, name) for name in FIRST}
    assert all(RATIOS[0] < one.ratio < RATIOS[1] for one in found.values()), found
    assert all(one.covers > 0.875 for one in found.values()), found  # 95% less three standard errors
