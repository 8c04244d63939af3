"""What a process knows beside what it has counted, when a snapshot is taken: of its source and its disk (`Surroundings`)."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable

from streameval.loop.keeper import PartitionKeeper
from streameval.loop.silent_places import SilentPlaces, Transactions
from streameval.results.snapshot import Surroundings
from streameval.sources.protocol import Place, Source

MAX_LAG = 100_000  # messages behind the end, over all partitions, up to which the monitor counts as caught up


class Around:
    """Asks the source and the keeper."""

    def __init__(self, source: Source, keeper: PartitionKeeper | None) -> None:
        self._source, self._keeper = source, keeper
        self._unread = SilentPlaces()
        self._transactions = Transactions()
        self.at_end: frozenset[Place] = frozenset()  # at the last look
        self.complete = False  # every partition of this process had been heard from, or there was nothing to read

    def heard(self, places: Iterable[Place]) -> None:
        """Something was read of these."""
        self._unread.heard(places, time.monotonic())

    def look(self, counted: Collection[int]) -> Surroundings:
        """As it is now. `counted`: the partitions of which something was counted. May wait a second for the brokers."""
        source, ours = self._source, self._source.partitions()
        lag, unpaired, schemas, connected = source.lag(), source.unpaired(), source.schemas(), source.connected()
        self.at_end = source.caught_up()
        self.complete = all(one in counted or (source.inputs[0], one) in self.at_end for one in ours)
        read = set(ours) - set(() if self._keeper is None else self._keeper.fenced)
        places = [(name, partition) for name in source.inputs for partition in read]
        transactions, now = source.in_transaction(), time.monotonic()
        young = self._transactions.young(transactions, now)
        # while messages wait for their schemas, or for the disk, nothing is read, which says nothing of leaders
        rests = self._keeper is not None and self._keeper.is_behind
        awaited = frozenset(places) if schemas or rests else self.at_end | source.held() | young
        unread = self._unread.places(places, awaited, now)
        if connected:
            self._unread.tell(unread, transactions)
        return Surroundings(
            unread=unread,
            in_transaction=dict(transactions),
            lag=dict(lag),
            lost=dict(source.lost()),
            empty_offsets=dict(source.empty()),
            recreated=dict(source.recreated()),
            unpaired=dict(unpaired),
            strangers=dict(source.strangers()),
            schemas=schemas,
            ready={
                "broker": connected,
                "assigned": bool(ours),
                "caught_up": bool(ours) and not unread and not schemas and sum(lag.values()) <= MAX_LAG,
                "topics": not unpaired and not source.missing(),
            },
            checkpoints=None if self._keeper is None else self._keeper.state(),
            history=None if self._keeper is None else self._keeper.history_state(),
            whole=bool(ours) and self.complete,
        )
