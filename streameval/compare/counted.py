"""What one partition counts for comparisons. The loop feeds it; `Comparisons` reads it when nothing is being counted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from streameval.compare.ledger.gauc_rows import GaucRows
from streameval.compare.ledger.ledger import Ledger
from streameval.counting.arrivals import Arrivals
from streameval.counting.join_panes import JoinPanes
from streameval.counting.late_labels import LateLabels
from streameval.join.joiner import Joiner
from streameval.join.policy import NEVER


@dataclass(slots=True)
class Counted:
    """A partition's sums by version and pair, its arrivals, and the past and present state of its join."""

    ledger: Ledger
    gauc: GaucRows
    arrivals: Arrivals
    joins: JoinPanes
    late: LateLabels
    joiner: Joiner = field(init=False)  # its progress, delays and pending impressions
    online: Sequence[int] = field(init=False)  # the series of the online models, in the order of the joiner's scores

    def begin(self, joiner: Joiner, online: Sequence[int]) -> None:
        """Called before the first batch."""
        self.joiner, self.online = joiner, online

    @property
    def is_active(self) -> bool:
        """Whether events are arriving, so that other partitions wait for this one."""
        return self.joiner.progress.newest_event > NEVER and not self.joiner.progress.idle

    @property
    def firm(self) -> int:
        """Event time in ms: labels are final up to this less the attribution window; NEVER before the first event."""
        return self.joiner.progress.firm

    def clear(self, code: int) -> None:
        """Forgets a series, so that its code can be reused."""
        self.ledger.clear(code)
        self.gauc.clear(code)

    @property
    def nbytes(self) -> int:
        """Size of the sums in bytes."""
        return self.ledger.nbytes + self.gauc.nbytes
