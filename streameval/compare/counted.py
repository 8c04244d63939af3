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
    """A partition's sums of versions and pairs, its arrivals, and how its join went and stands."""

    ledger: Ledger
    gauc: GaucRows
    arrivals: Arrivals
    joins: JoinPanes
    late: LateLabels
    joiner: Joiner = field(init=False)  # of whose progress, delays and pending impressions comparisons know
    online: Sequence[int] = field(init=False)  # the series of the online models, as the joiner's scores are ordered

    def begin(self, joiner: Joiner, online: Sequence[int]) -> None:
        """Before the first batch."""
        self.joiner, self.online = joiner, online

    @property
    def speaks(self) -> bool:
        """Whether events come, so that others wait for it."""
        return self.joiner.progress.newest_event > NEVER and not self.joiner.progress.idle

    @property
    def firm(self) -> int:
        """Labels are final before this time (ms) less the attribution window; NEVER before the first event."""
        return self.joiner.progress.firm

    def clear(self, code: int) -> None:
        """Forgets a series; its code may be given to another."""
        self.ledger.clear(code)
        self.gauc.clear(code)

    @property
    def nbytes(self) -> int:
        """Bytes of the sums."""
        return self.ledger.nbytes + self.gauc.nbytes
