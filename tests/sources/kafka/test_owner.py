"""Who answers for partitions: what was read is counted before a keeper hears anything."""

from __future__ import annotations

from collections.abc import Mapping

from streameval.sources.kafka.owner import PartitionOwner
from streameval.sources.protocol import Place


class Heard:
    """A keeper that says what it heard."""

    def __init__(self, said: list[str]) -> None:
        self._said = said

    def take(self, partitions: frozenset[int]) -> Mapping[Place, int]:
        self._said.append(f"take {sorted(partitions)}")
        return {}

    def topic_ids(self, partitions: frozenset[int]) -> Mapping[Place, str]:
        return {}

    def release(self, partitions: frozenset[int]) -> None:
        self._said.append(f"release {sorted(partitions)}")

    def regain(self, partitions: frozenset[int]) -> None:
        self._said.append(f"regain {sorted(partitions)}")

    def drop(self, partitions: frozenset[int]) -> None:
        self._said.append(f"drop {sorted(partitions)}")


def test_what_was_read_is_counted_before_the_keeper_hears_of_a_rebalance() -> None:
    said: list[str] = []
    owner = PartitionOwner(
        ("i", "c"), "g", Heard(said), lambda partitions: said.append("began"), finish=lambda: said.append("counted")
    )
    both = frozenset((topic, number) for topic in ("i", "c") for number in (0, 1))
    one = frozenset(place for place in both if place[1] == 1)
    owner.assigned(both)
    owner.revoked(both)
    owner.assigned(one)
    owner.lost(one)
    assert said == [
        "counted", "take [0, 1]", "began",
        "counted", "release [0, 1]",
        "counted", "drop [0]", "regain [1]", "began",
        "counted", "drop [1]",
    ]  # fmt: skip
