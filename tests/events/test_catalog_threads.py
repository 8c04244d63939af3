"""Names get their codes from several threads: a batch is decoded while others are counted."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator

import pytest

from streameval.events.batch import Catalog, Series


@pytest.fixture(autouse=True)
def impatient() -> Iterator[None]:
    """Threads take turns as often as they can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def test_every_name_has_one_code_and_every_code_one_name() -> None:
    for _ in range(30):
        catalog = Catalog(("country",), max_series=400)
        begin = threading.Barrier(4)
        given: list[dict[object, int]] = [{} for _ in range(4)]

        def name(
            thread: int,
            catalog: Catalog = catalog,
            begin: threading.Barrier = begin,
            given: list[dict[object, int]] = given,
        ) -> None:
            begin.wait()
            for i in range(100):
                version = f"v{i}" if i % 2 else f"v{i}-{thread}"
                code = catalog.series_code("m", version)
                given[thread][Series("m", version, "logged")] = code
                given[thread][Series("m", version, "logged", "long")] = catalog.objective_code(code, "long")
                given[thread][f"c{i % 40}"] = catalog.value_code(0, f"c{i % 40}")

        threads = [threading.Thread(target=name, args=(thread,)) for thread in range(4)]
        for one in threads:
            one.start()
        for one in threads:
            one.join()
        for known in given:
            for what, code in known.items():
                assert (catalog.series if isinstance(what, Series) else catalog.values[0])[code] == what
        assert len(set(catalog.series)) == len(catalog.series)
        assert len(set(catalog.values[0])) == len(catalog.values[0])
