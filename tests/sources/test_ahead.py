"""One step ahead on another thread."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from streameval.sources.ahead import MOST_BATCHES, SLICE_SECONDS, Lookahead, ahead

PATIENCE = 30.0


@pytest.fixture
def worker() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(1) as executor:
        yield executor


def test_the_next_step_is_computed_while_the_previous_one_is_used(worker: ThreadPoolExecutor) -> None:
    made = [threading.Event() for _ in range(5)]

    def steps() -> Iterator[int]:
        for number, event in enumerate(made):
            event.set()
            yield number

    for number in ahead(steps(), worker):
        if number < 4:
            assert made[number + 1].wait(PATIENCE), "nobody makes it"
        assert not any(event.is_set() for event in made[number + 2 :]), "one at a time"


def test_an_exception_of_a_step_is_raised_in_its_place(worker: ThreadPoolExecutor) -> None:
    def steps() -> Iterator[int]:
        yield 1
        yield 2
        raise KeyError("the third")

    got = []
    with pytest.raises(KeyError, match="the third"):
        for number in ahead(steps(), worker):
            got.append(number)
    assert got == [1, 2]


def test_nothing_is_under_way_once_the_caller_has_stopped(worker: ThreadPoolExecutor) -> None:
    under_way = threading.Event()
    release = threading.Event()
    over: list[int] = []

    def steps() -> Iterator[int]:
        yield 1
        under_way.set()
        release.wait(PATIENCE)
        over.append(2)
        yield 2

    stream = ahead(steps(), worker)
    assert next(stream) == 1
    assert under_way.wait(PATIENCE)
    threading.Timer(0.2, release.set).start()
    stream.close()
    assert over == [2]


def test_more_batches_only_while_they_are_counted_soon() -> None:
    one = Lookahead()
    for _ in range(5):
        one.took(SLICE_SECONDS / 2, full=True)
    assert one.batches == MOST_BATCHES
    one.took(SLICE_SECONDS / 2, full=False)
    one.took(1.5 * SLICE_SECONDS, full=True)
    assert one.batches == MOST_BATCHES
    one.took(3 * SLICE_SECONDS, full=True)
    assert one.batches == 1
    one.took(SLICE_SECONDS / 2, full=False)
    assert one.batches == 1
