"""What a metric is: one row with its function, its uncertainty, and its names in every output.

The report, standard errors, the history, the API's schema, /metrics, the page and the docs are derived from these rows.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from numpy.typing import NDArray

from streameval.metrics.view import Ranked, Undefined, View

Cells = NDArray[Any]  # [..., BLOCK_CELLS], of reals; complex where errors take a gradient


@dataclass(frozen=True, slots=True)
class OfCells:
    """The error of a function of a few sums over impressions: left out block by block, or linearised between impressions.

    `function`: the metric, up to a constant, of the cells of `sketches.blocks` and `sketches.layout`, smooth in each of
    them. `alone`: single impressions have cells that it can be known from. `placed`: it is of placements, which the
    first impressions of a version do not have.
    """

    function: Callable[[Cells], Cells]
    alone: bool = True
    placed: bool = False


@dataclass(frozen=True, slots=True)
class OfUsers:
    """The error of a mean over single users, of their number and weights alone: (standard error, degrees of freedom)."""

    errors: Callable[[Ranked], tuple[float, float | None] | None]


@dataclass(frozen=True, slots=True)
class OfImpressions:
    """The error of anything else: its variance between impressions, times the design effect of another metric.

    Of a sampled log the variance is by `View.spread_of_weights`, the design effect what is beside them.
    """

    variance: Callable[[View], float]
    widened_as: str


@dataclass(frozen=True, slots=True)
class OfTally:
    """The error of a function of a tally's sums: left out block by block.

    `cells`: of a view, float64[blocks, cells], None where they are not kept; `function`: the metric of them, up to a
    constant. `most_df`: degrees of freedom, where there are fewer blocks than `sketches.blocks` has.
    """

    cells: Callable[[View], Cells | None]
    function: Callable[[Cells], Cells]
    most_df: float = math.inf


@dataclass(frozen=True, slots=True)
class OfView:
    """The error of anything else, as the view has it; None: unknown."""

    error: Callable[[View], float | None]


Influence = OfCells | OfUsers | OfImpressions | OfTally | OfView


@dataclass(frozen=True, slots=True)
class Gauge:
    """A family of /metrics: a gauge per window; `name` is without the prefix.

    `stderr`: the meaning of `<name>_stderr`, None: there is no such family. `in_slices`: also as `slice_<name>`, with
    its standard error. `value`: what is exported of the metric's value. `place`: among the other gauges. `labels`: further
    label pairs; metrics whose gauges differ in nothing else are one family. `last`: the first to be left out when there are
    too many series.
    """

    name: str
    meaning: str
    stderr: str | None = None
    in_slices: bool = False
    value: Callable[[float], float] = float
    place: int = 0
    labels: tuple[tuple[str, str], ...] = ()
    last: bool = False


@dataclass(frozen=True, slots=True)
class Column:
    """How the page shows it: its title, and digits behind the point; `overview`: as a column of the first view.

    `least`, `most`: beyond which it never is, nor is any interval drawn.
    """

    title: str
    digits: int = 4
    overview: bool = False
    place: int = 0
    least: float | None = None
    most: float | None = None


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric. `function` returns a number, or why there is none; its docstring is the formula in the docs.

    `better` is "higher", "lower", "one" (closest to 1), "zero" (closest to 0) or "" (neither). `needs`: what of a series
    it cannot be made without; sums are cheap to keep and read, the score histogram and the users' ranks are not.
    `bound`: the metric that is the half-width of the interval certain to hold this one's exact value. `overall`: it is made of
    what slices do not keep, so in slices it is `not_kept_for_slices` without being asked. `of_samples`: it can be estimated from a
    sample of the impressions by their weights; if not, it is `weights_not_supported` there.
    """

    name: str
    function: Callable[[View], float | int | Undefined]
    explanation: str
    unit: str = "ratio"
    better: Literal["higher", "lower", "one", "zero", ""] = ""
    influence: Influence | None = None  # None: it has no standard error
    needs: Literal["sums", "scores", "users"] = "sums"
    bound: str = ""
    whole: bool = False  # a whole number
    overall: bool = False
    of_samples: bool = True
    gauge: Gauge | None = None  # None: not in /metrics
    column: Column | None = None  # None: not offered on the page

    @property
    def formula(self) -> str:
        """How it is made, in the symbols of docs/reference/metrics.md, and who says so."""
        return " ".join((self.function.__doc__ or "").split())

    @property
    def of_users(self) -> bool:
        """Whether it is a mean over single users: its error has degrees of freedom of its own, and users may be sampled."""
        return isinstance(self.influence, OfUsers)

    @property
    def reads_scores(self) -> bool:
        """Whether it is made of what a series' vector has behind its sums and buckets."""
        return self.needs == "scores" or isinstance(self.influence, OfTally)

    def df(self, of_blocks: float | None) -> float | None:
        """Degrees of freedom of its error, where those of metrics of blocks are `of_blocks` (None: between impressions)."""
        most = self.influence.most_df if isinstance(self.influence, OfTally) else math.inf
        found = min(math.inf if of_blocks is None else of_blocks, most)
        return found if math.isfinite(found) else None


@dataclass(frozen=True, slots=True)
class ByK:
    """Metrics that differ in where a ranked list is cut. `name` has the place of K: "ndcg_{k}"."""

    name: str
    make: Callable[[int], Metric]


def ratio(of: int, to: int) -> OfCells:
    """The influence of one sum over another."""
    return OfCells(lambda cells: cells[..., of] / cells[..., to])
