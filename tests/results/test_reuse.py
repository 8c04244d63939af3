"""What a snapshot uses again of the last one is what it would have made anew."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from random import Random

import pytest

from streameval.counting.growing_auc import Aucs
from streameval.loop.pipeline import Pipeline
from streameval.metrics.registry import evaluate
from streameval.metrics.view import View
from streameval.results import result as result_module
from streameval.results.result import Result, Span
from streameval.results.reuse import Reuse
from streameval.simulate.encode import events
from streameval.simulate.traffic import Traffic
from streameval.sources.formats.decode import Decoder
from streameval.testing import ManualClock, Shown, make_batch, readers_see
from tests.laws.streams import differences, make_settings, scenario, weighed, worth

T0 = 1_700_000_000_000


class Forgetful(Reuse):
    """Makes everything anew."""

    def known(self, key: Hashable, inputs: tuple[object, ...], span: Span) -> Result | None:
        return None


class Reader:
    """A pipeline with a decoder of its own, of two partitions."""

    def __init__(self, *, forgetful: bool) -> None:
        self.pipeline = Pipeline(make_settings("clicks", "impression", False, True, valued=True), ManualClock())
        if forgetful:
            self.pipeline._evaluator._reuse = Forgetful()
        self.decoder = Decoder(self.pipeline.catalog, clock=lambda: 1 << 62, max_future=0)

    def take(self, partition: int, values: list[bytes], at: int) -> None:
        batch, _ = self.decoder.messages(
            values, [0] * len(values), topic=("i", "i"), partition=partition, offsets=list(range(at, at + len(values))),
            format="json", shared=True, next_offsets={("i", partition): at + len(values)},
        )  # fmt: skip
        self.pipeline.take(batch)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2))
def test_looking_again_and_again_shows_what_is_made_anew(seed: int) -> None:
    luck = Random(seed)
    logs: list[list[bytes]] = [[], []]
    late: list[list[bytes]] = [[], []]
    for event in events(Traffic(scenario(duration_s=150.0, rate=15.0))):
        is_click, partition = event.kind == "click", sum(event.key) % 2
        value = worth(event.json()) if is_click else weighed(event.json())
        (late if is_click and luck.random() < 0.1 else logs)[partition].append(value)
    for partition in (0, 1):  # they correct labels
        logs[partition] += late[partition]
    readers = [Reader(forgetful=False), Reader(forgetful=True)]
    at = [0, 0]

    def look() -> Iterator[dict]:
        anew = readers[1].pipeline._evaluator
        anew._aucs = Aucs()
        anew._slices._seen.clear()
        first, second = (readers_see(reader.pipeline).report() for reader in readers)
        assert not differences(first, second)
        yield from first["results"]

    while any(at[p] < len(log) for p, log in enumerate(logs)):
        size, partition = luck.choice([1, 5, 400]), luck.randrange(2)
        values = logs[partition][at[partition] : at[partition] + size]
        for reader in readers:
            reader.take(partition, values, at[partition])
        at[partition] += len(values)
        list(look())
    for reader in readers:
        reader.pipeline.finish()
    assert any(one["corrected"] for one in look())


def test_only_what_has_changed_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[View] = []

    def evaluated(view: View) -> tuple[dict[str, float | int | None], dict[str, str]]:
        made.append(view)
        return evaluate(view)

    monkeypatch.setattr(result_module, "evaluate", evaluated)
    pipeline = Pipeline(make_settings("impressions", "impression", False, True), ManualClock())

    def take(numbers: range, version: str) -> int:
        shown = [
            Shown(f"i{i}", T0 + i * 100, f"u{i % 7}", 0.1 + i % 8 / 10, clicked=i % 2, version=version) for i in numbers
        ]
        pipeline.take(make_batch(shown, pipeline.catalog))
        made.clear()
        readers_see(pipeline)
        return len(made)

    first = take(range(3_000), "v1")
    assert first == 3  # by window; slices have their own test
    made.clear()
    readers_see(pipeline)
    assert not made, "nothing came"
    after = take(range(3_000, 3_001), "v2")  # the first one to wait for its click: the windows stand where they stood
    assert 0 <= after < first
