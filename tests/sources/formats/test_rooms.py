"""What kernels write to is kept from batch to batch, and what they found is not."""

from __future__ import annotations

import json
import random
import threading
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from streameval.events.batch import Batch, Catalog
from streameval.sources.formats import rooms
from streameval.sources.formats.decode import Decoder
from streameval.sources.formats.rooms import room


def rows(seed: int, n: int = 400, values: int = 50) -> list[bytes]:
    luck = random.Random(seed)
    return [
        json.dumps(
            {
                "impression_id": f"i{seed}-{k}", "ts": 1_700_000_000_000 + k, "user_id": f"u{k}", "model": f"m{luck.randrange(3)}",
                "model_version": f"v{luck.randrange(20)}", "pclick": luck.random(), "slices": {"country": f"c{luck.randrange(values)}"},
                "predictions": {f"s{luck.randrange(5)}": luck.random()},
                "features": {f"f{j}": luck.choice(["a", "b", 0.5]) for j in range(luck.randrange(9))},
            }
        ).encode()
        for k in range(n)
    ]  # fmt: skip


def decoded(decoder: Decoder, values: list[bytes]) -> Batch:
    batch, letters = decoder.messages(
        values, [1] * len(values), topic=("i", "c"), partition=0, offsets=range(len(values)), format="json", shared=False
    )  # fmt: skip
    assert not letters
    return batch


def new_decoder(catalog: Catalog, kernel: bool = True) -> Decoder:
    return Decoder(
        catalog, clock=lambda: 1_800_000_000_000, max_future=0, hashed=True, json_kernel=kernel
    )  # fmt: skip


def seen(batch: Batch, catalog: Catalog) -> list[Any]:
    shown = batch.impressions
    assert shown.features is not None
    assert shown.shadow is not None
    return [
        shown.id.tolist(),
        [catalog.series[code] for code in shown.series],
        [catalog.values[0][code] for code in catalog.split(shown.slices, 0)],
        shown.features.indptr.tolist(),
        shown.features.index.tolist(),
        shown.features.value.tolist(),
        [catalog.series[code] for code in shown.shadow.series],
        shown.shadow.pclick.tolist(),
    ]


def test_a_batch_stays_what_it_was_when_the_next_one_is_decoded() -> None:
    catalog = Catalog(("country",), max_values=1_000)
    decoder = new_decoder(catalog)
    first = decoded(decoder, rows(1))
    before = seen(first, catalog)
    decoded(decoder, rows(2, 300))
    assert seen(first, catalog) == before


@pytest.mark.parametrize("sizes", [(400, 400, 400), (2_000, 10, 2_000, 3_000)])
def test_words_of_one_batch_are_none_of_the_next(sizes: tuple[int, ...]) -> None:
    one, other = Catalog(("country",), max_values=1_000), Catalog(("country",), max_values=1_000)
    quickly, slowly = new_decoder(one), new_decoder(other, kernel=False)
    for seed, n in enumerate(sizes):
        values = rows(seed, n, values=n)
        assert seen(decoded(quickly, values), one) == seen(decoded(slowly, values), other)


def test_each_thread_has_its_own() -> None:
    found: list[NDArray[Any]] = []
    thread = threading.Thread(target=lambda: found.append(room("test", 10, np.int64)))
    thread.start()
    thread.join()
    assert not np.shares_memory(found[0], room("test", 10, np.int64))


def test_a_room_is_kept_if_it_is_not_too_large() -> None:
    first = room("test", 100, np.int64)
    assert room("test", 50, np.int64).ctypes.data == first.ctypes.data
    assert room("test", 100, np.float64).dtype == np.float64
    rooms._kept.arrays.pop("test")
    assert room("test", 1 << 23, np.int64).size == 1 << 23
    assert "test" not in rooms._kept.arrays
