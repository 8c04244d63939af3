"""What one partition counts for comparisons. The loop feeds it; `Comparisons` reads it when nothing is being counted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from streameval.compare.ledger.gauc_rows import GaucRows
from streameval.compare.ledger.ledger import Ledger
from streameval.counting.arrivals import Arrivals
from streameval.counting.join_panes import JoinPanes
from streameval.counting.late_by_version import LateByVersion
from streameval.counting.late_labels import LateLabels
from streameval.join.fates import Fates
from streameval.join.joiner import Joiner
from streameval.join.pending import PendingImpressions
from streameval.join.policy import DELAY_EDGES, LATE, NEVER
from streameval.join.rows import Table


@dataclass(slots=True)
class Counted:
    """A partition's sums by version and pair, its arrivals, and the past and present state of its join."""

    ledger: Ledger
    gauc: GaucRows
    arrivals: Arrivals
    joins: JoinPanes
    late: LateLabels
    late_clicks: LateByVersion
    late_impressions: LateByVersion
    joiner: Joiner = field(init=False)  # its progress, delays and pending impressions
    online: Sequence[int] = field(init=False)  # the series of the online models, in the order of the joiner's scores

    def begin(self, joiner: Joiner, online: Sequence[int]) -> None:
        """Called before the first batch."""
        self.joiner, self.online = joiner, online

    def came(self, table: Table, rows: NDArray[np.int64], fates: Fates) -> None:
        """Counts a batch as it came: its new rows, which are consecutive, and the fates of its events."""
        new = slice(int(rows[0]), int(rows[-1]) + 1) if rows.size else slice(0)
        ts, behind, series = table.ts[new], table.behind[new], table.series[new]
        late = (table.state[new] & LATE) != 0
        if late.any():
            self.arrivals.seen_late(ts[late], behind[late], series[late])
            self.late_impressions.count_late(ts[late], (ts + behind)[late], series[late])
            self.arrivals.seen(ts[~late], series[~late])
        else:
            self.arrivals.seen(ts, series)
        self.late_impressions.count(ts, ts + behind, series)
        self.joins.add(table, rows, fates)
        self.late.add(fates)
        self.late_clicks.count(*fates.met)
        self.late_clicks.count_late(*fates.corrected)

    @property
    def is_active(self) -> bool:
        """Whether events are arriving, so that other partitions wait for this one."""
        return self.joiner.progress.newest_event > NEVER and not self.joiner.progress.idle

    @property
    def firm(self) -> int:
        """Event time in ms: labels are final up to this less the attribution window; NEVER before the first event."""
        return self.joiner.progress.firm

    @property
    def is_full(self) -> bool:
        """Whether so much is waiting that the look should not be left to the next snapshot."""
        return self.ledger.is_full

    @property
    def pending(self) -> int:
        """Impressions whose label is pending."""
        return self.joiner.pending

    def newest_pending(self, most: int) -> PendingImpressions:
        """Up to `most` of the newest pending impressions; see `Joiner.newest_pending`."""
        return self.joiner.newest_pending(most, list(self.online))

    @property
    def delays(self) -> NDArray[np.int64]:
        """Clicks by delay, int64[len(DELAY_EDGES)]."""
        return self.joiner.delays[: len(DELAY_EDGES)]

    def clear(self, code: int) -> None:
        """Forgets a series, so that its code can be reused."""
        self.ledger.clear(code)
        self.gauc.clear(code)
        self.arrivals.clear(code)
        self.late_clicks.clear(code)
        self.late_impressions.clear(code)

    @property
    def nbytes(self) -> int:
        """Size of the sums in bytes."""
        return self.ledger.nbytes + self.gauc.nbytes
