"""Calls every kernel once, on made-up events, before the first real one.

On the first start on a machine the kernels are compiled, which takes up to a minute, and a monitor that compiles in the
middle of traffic falls behind and appears dead. So they are compiled beforehand, with a pipeline and a decoder that are
then discarded: at least those that the first batch needs, since its labels are due later.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from streameval.counting.references import PROMISED
from streameval.join.cold.ids import SortedIds, in_pages, merged
from streameval.join.cold.index import Index, in_order
from streameval.join.cold.lookup import Lookup
from streameval.join.cold.ribbon import RibbonMaker
from streameval.loop.pipeline import Pipeline
from streameval.sketches.narrow import narrow, widen
from streameval.sources.formats.decode import Decoder

_MANY = 2 * PROMISED + 8  # impressions of a batch, so that both versions have placement curves and are compared
_PLAIN = 8  # impressions of a batch of one version
_START = 1_000_000_000_000  # ms: long ago, so events are never refused for being in the future


def first_batch(pipeline: Pipeline, decoder: Decoder) -> None:
    """Decodes, scores and joins some plain impressions of one version, and a click. `decoder`: without the JSON kernel."""
    plain = ("type", "impression_id", "ts", "user_id", "model_version", "pclick", "slices", "features")
    impressions = [_impression(f"{_START}-{i}", _START + i, 2 * i, pipeline.catalog.dimensions) for i in range(_PLAIN)]
    events = [{name: one[name] for name in plain} for one in impressions]
    _send(pipeline, decoder, [*events, {"type": "click", "impression_id": f"{_START}-1", "ts": _START + 2}])
    pipeline.advance()
    pipeline.snapshot()


def warm_up(pipeline: Pipeline, decoder: Decoder) -> None:
    """Takes some impressions and clicks all the way: joined, scored, counted, corrected, evaluated, compared."""
    with _muted("streameval.compare.comparisons"):
        _send_all(pipeline, decoder)
    _go_to_disk_and_back()


@contextmanager
def _muted(name: str) -> Iterator[None]:
    """Mutes a logger, whose messages would be about made-up events."""
    log = logging.getLogger(name)
    before, log.disabled = log.disabled, True
    try:
        yield
    finally:
        log.disabled = before


def _send_all(pipeline: Pipeline, decoder: Decoder) -> None:
    join = pipeline.settings.join
    step = join.attribution_window + join.allowed_lateness + 1000

    def send(begin: int, clicks: list[tuple[str, int]]) -> None:
        impressions = [_impression(f"{begin}-{i}", begin + i, i, pipeline.catalog.dimensions) for i in range(_MANY)]
        events = impressions + [
            {"impression_id": which, "ts": ts, "type": "click", "value": 1.0} for which, ts in clicks
        ]
        _send(pipeline, decoder, events)

    first, second = _START, _START + step
    send(first, [(f"{first}-1", first + 10), (f"{second}-2", second + 5)])  # the second arrives before its impression
    send(second, [(f"{first}-2", first + 20)])  # after its label is due, which is then corrected
    pipeline.advance()
    pane = pipeline.settings.windows.pane
    for later in (2, 4):  # from the third look on, the run's AUC is updated incrementally
        end = -(-(second + later * step) // pane) * pane
        send(end - _MANY // 2, [])  # half of it in the next pane: both are counted together
        pipeline.advance()
    pipeline.finish()
    pipeline.advance()


def _send(pipeline: Pipeline, decoder: Decoder, events: list[dict[str, object]]) -> None:
    values = [json.dumps(event).encode() for event in events]
    values[0] = values[0].replace(b"item_id", b"item\\u005fid")  # calls the kernels of the slow decoder
    values[1] = b"[" + values[1] + b"]"  # calls the kernel of arrays
    batch, _ = decoder.messages(
        values,
        [0] * len(values),
        topic=("warm-up",),
        partition=0,
        offsets=range(len(values)),
        format="json",
        shared=True,
    )
    pipeline.take(batch)


def _go_to_disk_and_back() -> None:
    """Calls the kernels of ids on disk, and of numbers in checkpoints."""
    ids = np.arange(1, 3, dtype=np.uint64)
    ribbon = RibbonMaker(ids.size)
    for some, rows in merged([in_order(ids)]):
        ribbon.add(some)
        index = Index(Path(), 0, 0, ids.size, SortedIds.of_pages(ids.size, *in_pages(some, rows)), ribbon.finish())
        Lookup([index]).find(ids)
    numbers = np.arange(2)
    widen(narrow(numbers), numbers.size)


def _impression(name: str, ts: int, number: int, dimensions: tuple[str, ...]) -> dict[str, object]:
    return {
        "type": "impression",
        "impression_id": name,
        "ts": ts,
        "user_id": f"user-{number % 50}",
        "request_id": f"{name.split('-', maxsplit=1)[0]}-{number % 3}",
        "item_id": "item",
        "model_version": f"v{number % 2}",
        "pclick": 0.1 + 0.1 * (number % 8),
        "predictions": {f"v{1 - number % 2}": 0.5},
        "slices": dict.fromkeys(dimensions, "some"),
        "features": {"text": "some", "number": 1.5, "list": ["a", "b"]},
        "position": number % 8,
        "propensity": 0.5,
        "policies": {"v0": 0.25},
    }
