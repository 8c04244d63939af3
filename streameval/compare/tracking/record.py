"""The history of a comparison: changes of its verdict, and looks to plot."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import numpy as np

from streameval.compare.reading.reading import COMPARED, Looks, Verdict, VerdictChange

MOST_LOOKS = 400  # looks kept to plot; beyond that every other one is dropped
MOST_CHANGES = 100
UNKNOWN = (math.nan, math.nan, math.nan)


@dataclass(frozen=True, slots=True)
class _Look:
    at: int
    impressions: int
    clicks: int
    log_e: float
    metrics: tuple[tuple[float, float, float, float], ...]  # difference, lower, upper, log e of each metric


class LastLook(NamedTuple):
    """What is known of the last look recorded."""

    impressions: int
    clicks: int
    blocks: int  # of users; 0 in checkpoints from before they were recorded
    differences: dict[str, tuple[float, float, float]]  # by metric, as in `Record.draw`


class Record:
    """Changes and looks, oldest first."""

    def __init__(self, metrics: tuple[str, ...] = COMPARED) -> None:
        """`metrics`: those recorded with each look."""
        self._metrics = metrics
        self.changes: list[VerdictChange] = []
        self.withheld: str | None = None  # why verdicts are withheld
        self._looks: list[_Look] = []
        self._drawn = 0  # impressions at the last look that was recorded
        self._blocks = 0  # of users with impressions, at the same look

    def withhold(self, at: int, withheld: str | None, verdict: Verdict) -> None:
        """Records at every look whether the labels are reliable."""
        was, self.withheld = self.withheld, withheld
        if (withheld is None) == (was is None):
            return
        if withheld is None:
            self._add(VerdictChange(at, "restored", verdict, "labels are reliable again"))
        else:
            self._add(VerdictChange(at, "withheld", verdict, withheld))

    def note(
        self, at: int, was: Verdict, now: Verdict, before: float | None, worse: float, not_worse: float = 0.0
    ) -> None:
        """Records what a look has changed; `before` and `worse`: log e for worse at the previous look and at
        this one.
        """
        evidence = {"log_e_worse": worse, "log_e_not_worse": not_worse}
        if now != was:
            text = f"{was} -> {now}".replace("_", " ")
            self._add(VerdictChange(at, "verdict" if was == "undecided" else "contrary", now, text, evidence))
        elif now == "worse" and before is not None and worse < 0 <= before:
            self._add(VerdictChange(at, "contrary", now, "the evidence behind the verdict is gone", evidence))

    def start_over(self, at: int, why: str) -> None:
        """Starts over: only what comes from now on counts."""
        self._add(VerdictChange(at, "anew", "undecided", why))
        self._drawn = 0

    def retract(self, at: int, was: Verdict, now: Verdict) -> None:
        """Records that verdicts were retracted."""
        text = f"{was} was found while clicks or impressions were delayed, and is retracted".replace("_", " ")
        if was == now:
            text = "verdicts on single metrics, found while clicks or impressions were delayed, are retracted"
        self._add(VerdictChange(at, "retracted", now, text))

    def due(self, impressions: int) -> bool:
        """Whether a look with this many impressions should be recorded: they have grown by a 50th."""
        return impressions - self._drawn > self._drawn // 50

    def draw(
        self,
        at: int,
        impressions: int,
        clicks: int,
        differences: Mapping[str, tuple[float, float, float]],
        log_e: Mapping[str, float],
        overall: float,
        blocks: int = 0,
    ) -> None:
        """Records a look. `differences`: difference, lower, upper by metric; `log_e`: of each metric, and `overall`;
        `blocks`: of users, kept of the last look only.
        """
        self._drawn, self._blocks = impressions, blocks
        metrics = tuple((*differences.get(name, UNKNOWN), log_e[name]) for name in self._metrics)
        self._looks.append(_Look(at, impressions, clicks, overall, metrics))
        if len(self._looks) > MOST_LOOKS:
            del self._looks[:-1:2]

    def looks(self) -> Looks | None:
        """Returns the looks for readers; None before the first."""
        if not self._looks:
            return None
        table = np.array([look.metrics for look in self._looks])  # [T, metrics, 4]
        names = ("difference", "lower", "upper", "log_e")
        metrics = {m: {name: table[:, i, k] for k, name in enumerate(names)} for i, m in enumerate(self._metrics)}
        return Looks(
            np.array([look.at for look in self._looks]),
            np.array([look.impressions for look in self._looks]),
            np.array([look.log_e for look in self._looks]),
            metrics,
            np.array([look.clicks for look in self._looks]),
        )

    def last(self) -> LastLook | None:
        """Returns the last look recorded, if any."""
        if not self._looks:
            return None
        look = self._looks[-1]
        differences = {name: look.metrics[i][:3] for i, name in enumerate(self._metrics)}
        return LastLook(look.impressions, look.clicks, self._blocks, differences)

    def state(self) -> dict[str, Any]:
        """Returns everything, as plain values."""
        return {
            "changes": [
                {k: v for k, v in asdict(change).items() if k not in ("told", "untold")} for change in self.changes
            ],
            "withheld": self.withheld,
            "drawn": self._drawn,
            "blocks": self._blocks,
            "looks": [
                [look.at, look.impressions, look.clicks, look.log_e, *map(list, look.metrics)] for look in self._looks
            ],
        }

    @classmethod
    def restore(cls, state: Mapping[str, Any], metrics: tuple[str, ...] = COMPARED) -> Record:
        """Restores what `state` returned."""
        out = cls(metrics)
        out.changes = [VerdictChange(**change) for change in state["changes"]]
        out.withheld, out._drawn, out._blocks = state["withheld"], state["drawn"], state.get("blocks", 0)
        out._looks = [
            _Look(at, n, clicks, log_e, tuple((_real(m[0]), _real(m[1]), _real(m[2]), _real(m[3])) for m in metrics))
            for at, n, clicks, log_e, *metrics in state["looks"]
        ]
        return out

    def _add(self, change: VerdictChange) -> None:
        self.changes.append(change)
        del self.changes[1:-MOST_CHANGES]  # the first one is kept


def _real(value: float | None) -> float:
    """Returns a number from a checkpoint: JSON has neither NaN nor infinities, so both are stored as null."""
    return math.nan if value is None else value
