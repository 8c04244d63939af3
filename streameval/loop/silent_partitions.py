"""Which partitions nothing comes of, and what that means for the others."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence, Set

from streameval.compare.counted import Counted
from streameval.join.policy import NEVER
from streameval.loop.partition import Partition


def resumes(
    partitions: Mapping[int, Partition],
    inputs: Sequence[str],
    at_end: Collection[tuple[str, int]],
    waited_for: Callable[[Counted], bool],
) -> bool:
    """Whether messages wait for a partition that was silent, and without which no look has been taken yet.

    After a silence of all partitions one is read first: to compare then would leave out what the others have of the same
    time. `at_end`: each (input, partition) that has been read to its end; `waited_for`: see `Comparisons`.
    """
    return any(
        part.idle
        and waited_for(part.counted)
        and any((name, partition) not in at_end for name in inputs[: part.inputs])
        for partition, part in partitions.items()
    )


def follow_others(partitions: Mapping[int, Partition], gone: Set[int]) -> None:
    """Labels of partitions that are `gone` become final when those of the others do."""
    ours = gone & partitions.keys()
    if ours:
        others = [m for p, m in partitions.items() if p not in ours and m.newest_event > NEVER]
        firm = min((m.firm for m in [m for m in others if not m.idle] or others), default=NEVER)
        for partition in ours:
            partitions[partition].follow(firm)
