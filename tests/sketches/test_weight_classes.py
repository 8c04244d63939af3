"""Classes of weights: where they begin and end, whatever their number to the octave."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streameval.sketches.weight_classes import class_begin, class_ends, weight_class


@settings(deadline=None)  # the first call compiles
@given(weight=st.floats(1.0, 1e12), bits=st.sampled_from([0, 2, 7]))
def test_a_weight_lies_in_its_class(weight: float, bits: int) -> None:
    number = weight_class(weight, bits)
    begin = class_begin(number, bits) / (1 << bits)
    end = float(class_ends(np.array([number]), bits)[0])
    assert begin <= weight < end
    assert end == class_begin(number + 1, bits) / (1 << bits)  # without a gap
    assert end / begin <= 1 + 2.0**-bits


@pytest.mark.parametrize("bits", [0, 2, 7])
def test_classes_of_an_octave_are_equally_wide(bits: int) -> None:
    edges = np.array([class_begin(number, bits) for number in range(3 << bits)]) / (1 << bits)
    for octave in range(3):
        mine = edges[octave << bits : (octave + 1) << bits]
        assert mine.tolist() == (2.0**octave * (1 + np.arange(1 << bits) / (1 << bits))).tolist()
