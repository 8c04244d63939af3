"""What tests of sources share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from streameval.testing import carrying_all


@pytest.fixture
def all_carried() -> Iterator[None]:
    """Batches carry what otherwise only the decoder reads."""
    with carrying_all():
        yield
