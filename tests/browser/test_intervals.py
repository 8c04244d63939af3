"""The page's 95% intervals: Student's t, without a library."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser
from scipy.stats import t as student

from streameval.server.http import pages

MODULE = Path(pages.__file__).parents[1] / "page" / "intervals.js"


@pytest.fixture
def asked(browser: Browser) -> Any:
    """`asked(expression)`: what an expression in the module's names is, in a browser."""
    tab = browser.new_page()
    code = base64.b64encode(MODULE.read_bytes()).decode()

    def ask(expression: str) -> Any:
        return tab.evaluate(
            f"import('data:text/javascript;base64,{code}').then(({{ halfWidth, interval }}) => {expression})"
        )

    yield ask
    tab.close()


def test_a_half_width_is_the_quantile_of_t(asked: Any) -> None:
    degrees = [1, 1.05, 1.3, 1.5, 2, 2.7, 3, 5, 8.7, 10, 21.3, 30, 54.6, 63, 1000, 1e9]
    assert asked(f"{degrees}.map(halfWidth)") == pytest.approx(student.ppf(0.975, degrees), rel=2e-3)


def test_errors_between_impressions_are_normal_and_one_user_alone_has_no_interval(asked: Any) -> None:
    assert asked("[null, undefined].map(halfWidth)") == pytest.approx([1.959964] * 2)
    assert asked("[0, 0.5, 0.999].map(halfWidth)") == [None] * 3


def test_an_interval_is_known_where_value_and_error_are(asked: Any) -> None:
    assert asked("interval(0.7, 0.01, 10)") == pytest.approx(
        {"low": 0.677718, "high": 0.722282, "half": 0.022282}, rel=1e-4
    )
    assert asked("[interval(null, 0.01, 10), interval(0.7, null, null), interval(0.7, 0.01, 0.5)]") == [None] * 3
