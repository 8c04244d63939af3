"""A stream of `worlds` as the columns that a `Pipeline` takes: which version serves, in which partition, when clicks arrive."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from benchmarks.detection.worlds import DAY, HOUR, MONDAY, PEAK_HOUR, Stream
from streameval.events.batch import Batch, Catalog, Clicks, Impressions, Shadow

MODEL, BASELINE, CANDIDATE = "default", "v1", "v2"
STEPS = ((0.0, 0.01), (2.0, 0.05), (6.0, 0.2), (12.0, 0.5))  # hours since the deploy, share from there on
LEAST, MOST = 0.01, 0.5  # range of a share that varies with the hour of the day
PLANS = ("paired", "split", "percent", "ramp", "clock")


@dataclass(frozen=True)
class Plan:
    """What happens at the deploy and after it.

    `paired`: the candidate serves everything, with the baseline's pClicks as predictions. `split`: it serves half of
    the users; `percent`: 1% of them; `ramp`: 1, 5, 20 and then 50% of them; `clock`: between 1% and 50%, up and down with the hour of the day.
    """

    setup: str = "paired"
    partitions: int = 1
    mirrored: bool = False  # exchanges the arms: over both, chance differences between users nearly cancel
    pause: float | None = None  # hours after the deploy from which clicks are delayed
    held: float = 1.0  # hours of the delay, after which all of them arrive
    share: float = 1.0  # of the clicks that are delayed: those of one producer of several

    def __post_init__(self) -> None:
        if self.setup not in PLANS:
            raise ValueError(f"setup must be one of {', '.join(PLANS)}, not {self.setup!r}")

    def serves(self, stream: Stream) -> NDArray[np.bool_]:
        """Which impressions the candidate serves."""
        after = stream.ts >= stream.deploy
        if self.setup == "paired":
            return after
        arm = 1.0 - stream.arm if self.mirrored else stream.arm
        if self.setup == "split":
            return after & (arm < 0.5)
        if self.setup == "percent":
            return after & (arm < LEAST)
        if self.setup == "ramp":
            hours = (stream.ts - stream.deploy) / HOUR
            begins, shares = (np.array(x) for x in zip(*STEPS, strict=True))
            share = shares[np.maximum(np.searchsorted(begins, hours, side="right") - 1, 0)]
        else:
            wave = np.sin(2.0 * np.pi * ((stream.ts - MONDAY) / DAY - PEAK_HOUR / 24.0))
            share = LEAST + (MOST - LEAST) * (1.0 + wave) / 2.0
        return after & (arm < share)


PAIRED = Plan()


def batches(stream: Stream, plan: Plan, catalog: Catalog, ends: NDArray[np.int64]) -> Iterator[tuple[int, list[Batch]]]:
    """(end in ms, batches of the partitions) of what arrives before each of `ends`; partitions are by user.

    What arrives after the last one comes with it.
    """
    codes = [catalog.series_code(MODEL, version) for version in (BASELINE, CANDIDATE)]
    candidate = plan.serves(stream)
    click_of = np.flatnonzero(stream.clicked)
    when = stream.click_ts
    if plan.pause is not None:
        begin = stream.deploy + round(plan.pause * HOUR)
        end = begin + round(plan.held * HOUR)
        behind = _id(click_of) / 2.0**64 < plan.share
        when = np.where(behind & (when >= begin) & (when < end), end, when)
    of = np.concatenate((np.arange(len(stream)), click_of))
    arrival = np.concatenate((stream.ts, when))
    ts = np.concatenate((stream.ts, stream.click_ts))
    partition = (stream.user >> np.uint64(40)).astype(np.int64) % plan.partitions
    step = np.minimum(np.searchsorted(ends, arrival, side="right"), ends.size - 1)
    cell = step * plan.partitions + partition[of]
    order = np.lexsort((arrival, cell))
    bounds = np.searchsorted(cell[order], np.arange(ends.size * plan.partitions + 1))
    for number, end in enumerate(ends.tolist()):
        out = []
        for p in range(plan.partitions):
            k = number * plan.partitions + p
            part = order[bounds[k] : bounds[k + 1]]
            if part.size:
                out.append(_batch(stream, plan, candidate, codes, part, of[part], ts[part], p))
        yield end, out


def _batch(
    stream: Stream,
    plan: Plan,
    candidate: NDArray[np.bool_],
    codes: list[int],
    part: NDArray[np.int64],
    of: NDArray[np.int64],
    ts: NDArray[np.int64],
    partition: int,
) -> Batch:
    click = part >= len(stream)
    i, c = of[~click], of[click]
    new = candidate[i]
    both = new if plan.setup == "paired" else np.zeros_like(new)
    shadow = Shadow(
        np.concatenate(([0], np.cumsum(both))).astype(np.int64),
        np.full(int(both.sum()), codes[0], np.int32),
        stream.pclick[0, i[both]],
    )
    n = i.size
    impressions = Impressions(
        order=np.flatnonzero(~click).astype(np.int32), id=_id(i), ts=ts[~click], user=stream.user[i],
        request=np.zeros(n, np.uint64), item=stream.item[i], series=np.where(new, codes[1], codes[0]).astype(np.int32),
        pclick=np.where(new, stream.pclick[1, i], stream.pclick[0, i]), slices=np.zeros(n, np.int64),
        label=np.full(n, -1, np.int8),
        shadow=shadow if both.any() else None,
    )  # fmt: skip
    clicks = Clicks(np.flatnonzero(click).astype(np.int32), _id(c), ts[click])
    return Batch(partition, impressions, clicks, True)


def _id(index: NDArray[np.int64]) -> NDArray[np.uint64]:
    x = (index.astype(np.uint64) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(32))) * np.uint64(0xD6E8FEB86659FD93)
    return x ^ (x >> np.uint64(32)) | np.uint64(1)
