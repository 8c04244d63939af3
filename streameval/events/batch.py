"""The columns that travel between the rooms.

A batch is a struct of arrays: `Impressions` and `Clicks` hold thousands of events as NumPy columns, in arrival order.
Ids are 64-bit hashes made once, at the decoder (`streameval.events.hashing`); names that the results show again (model
versions, slice values) are small integer codes of one `Catalog` that the whole process shares.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import wraps
from typing import Any, Concatenate, NamedTuple, ParamSpec, TypeVar

import numpy as np
from numpy.typing import NDArray

from streameval.events.codes import Codes, counted_values
from streameval.events.names import MAX_NAME, MISSING, OTHER, spelled

U64 = NDArray[np.uint64]
I64 = NDArray[np.int64]
I32 = NDArray[np.int32]
I8 = NDArray[np.int8]
F64 = NDArray[np.float64]

_P = ParamSpec("_P")
_T = TypeVar("_T")

LABEL_UNKNOWN = -1


@dataclass(frozen=True, slots=True)
class Features:
    """What online models learn from: row i owns `index[indptr[i]:indptr[i+1]]` and the `value`s beside it.

    `index` is the stable 64-bit hash of `name=value` (strings, value 1) or of `name` (numbers and booleans).
    `dicts` holds the same rows as River wants them ({name: number | "name=value": 1}), only when a model asks for it.
    """

    indptr: I64  # [n + 1]
    index: U64  # [k]
    value: F64  # [k]
    dicts: tuple[dict[str, float], ...] | None = None
    offset: I64 | None = None  # [n] of the row's message, or its number in a file: to find the event again

    @property
    def rows(self) -> int:
        """The number of impressions, n."""
        return self.indptr.size - 1


class Shadow(NamedTuple):
    """The `predictions` of n impressions: row i owns `series[indptr[i]:indptr[i+1]]` and the pClicks beside them.

    `policies` have the same form: there they are the probabilities of being shown.
    """

    indptr: I64  # [n + 1]
    series: I32  # [k] codes of the catalog
    pclick: F64  # [k] in [0, 1]


@dataclass(frozen=True, slots=True)
class Names:
    """The ids as they were written, kept only for `replay --predictions`; "" where absent."""

    impression_id: NDArray[np.object_]  # [n] of str
    user_id: NDArray[np.object_]
    request_id: NDArray[np.object_]


@dataclass(frozen=True, slots=True)
class Impressions:
    """n valid impressions, in arrival order."""

    order: I32  # [n] place in the batch's arrival order, shared with Clicks.order; strictly increasing
    id: U64
    ts: I64  # ms since the epoch
    user: U64
    request: U64  # 0: no request_id
    item: U64  # 0: no item_id
    series: I32  # code of (model, model_version, "logged")
    pclick: F64  # NaN: not logged (then `shadow` has at least one prediction)
    slices: I64  # slice values of the configured dimensions in one number, see Catalog.combine
    label: I8  # 1 or 0 when the event carried `clicked`, else -1
    fields: Mapping[str, F64] = field(default_factory=dict)  # `events.fields.carried`, by name; NaN: absent
    shadow: Shadow | None = None
    features: Features | None = None
    names: Names | None = None
    query: U64 | None = None  # 0: no query_id; None: no impression here has one
    policies: Shadow | None = None  # by series; None: no impression here has any

    def __len__(self) -> int:
        return len(self.id)


@dataclass(frozen=True, slots=True)
class Clicks:
    """m valid clicks, in arrival order."""

    order: I32
    id: U64  # the impression's id
    ts: I64
    fields: Mapping[str, F64] = field(default_factory=dict)  # see Impressions.fields

    def __len__(self) -> int:
        return len(self.id)


@dataclass(frozen=True, slots=True)
class Batch:
    """What a source hands over for one partition: decoded events and where they came from.

    `shared` says that one input (a shared topic) carries both kinds, so either kind moves the same watermark; otherwise
    impressions and clicks are two inputs, each with its own order, and the slower one holds the watermark back.
    `offsets` maps (topic, partition) to the next offset to read once this batch is done (for checkpoints and lag).
    `invalid` counts the events that went to the dead letters, by reason. `whole` gives (original bytes, topic, offset)
    of an event by its place in the arrival order, for one that turns out later to be of no use.
    `topic_ids` has the ids of the topics that the offsets are of, where they may be others than before.
    `gaps` says in words what is missing before the events of this batch, by (topic, partition).
    `candidates` were considered and not shown: they are no events of the join, have no label, and move no watermark.
    """

    partition: int
    impressions: Impressions
    clicks: Clicks
    shared: bool
    offsets: Mapping[tuple[str, int], int] = field(default_factory=dict)
    invalid: Mapping[str, int] = field(default_factory=dict)
    whole: Callable[[int], tuple[bytes, str, int]] | None = None
    topic_ids: Mapping[tuple[str, int], str] = field(default_factory=dict)
    gaps: Mapping[tuple[str, int], str] = field(default_factory=dict)
    candidates: Impressions = field(default_factory=lambda: NO_IMPRESSIONS)

    def __len__(self) -> int:
        return len(self.impressions) + len(self.clicks)


class Series(NamedTuple):  # a key everywhere: a tuple's hash is the cheapest
    """One stream of scores: who gave them. `source` is "logged" (production) or "online" (a model learning here).

    `objective`: by whose labels they are counted; "" is the click itself.
    """

    model: str
    version: str
    source: str
    objective: str = ""

    @property
    def plain(self) -> Series:
        """The same scores, counted by clicks."""
        return Series(self.model, self.version, self.source)


RETIRED = Series("", "", "")  # in place of a series that is no more


def _alone(method: Callable[Concatenate[Catalog, _P], _T]) -> Callable[Concatenate[Catalog, _P], _T]:
    """One thread at a time: a batch is decoded while others are counted, and either may give a name its code."""

    @wraps(method)
    def locked(self: Catalog, /, *args: _P.args, **kwargs: _P.kwargs) -> _T:
        with self.lock:
            return method(self, *args, **kwargs)

    return locked


class Catalog:
    """Names behind the codes, shared by every partition of the process, up to its limits.

    `dimensions` are the slice dimensions that the config keeps. A dimension holds at most `most_values` values (first
    seen), of which results show the `max_values` with most impressions; later ones, and longer ones than `MAX_NAME`,
    become `__other__`, and an impression without the dimension is `__missing__`. At most `max_series` series are told
    apart; versions beyond (and longer names) become `__other__` of their model. No event can name a placeholder itself
    (`spelled`). A series that nothing is about any more can be retired; its code is then given to another. Series of
    objectives have codes, too, as many as there are plain ones for each: the limit does not count them.
    `mainline`: positions of the mainline, for the dimension `block`.
    """

    def __init__(
        self, dimensions: Sequence[str] = (), max_values: int = 50, max_series: int = 64, mainline: int = 3
    ) -> None:
        self.lock = threading.RLock()
        self.dimensions = tuple(dimensions)
        self.mainline = mainline
        self.max_values = max_values
        self.max_series = max_series
        self._series: dict[tuple[str, str, str], int] = {}
        self._of_objectives: dict[Series, int] = {}
        self.series: list[Series] = []
        self._free: list[int] = []  # codes of retired series
        self._free_of_objectives: list[int] = []
        self._plain = 0  # codes that plain series have, or had
        self.changes = 0  # series that came or went
        if (max_values + 2) ** max(1, len(self.dimensions)) > 2**62:
            raise ValueError(
                f"slices.dimensions = {list(dimensions)!r} with slices.max_values = {max_values}: too many "
                "combinations to number; keep fewer dimensions or values"
            )
        self.most_values = counted_values(max_values, max(1, len(self.dimensions)))
        self.radix = self.most_values + 2
        # code 0 is __missing__, code 1 is __other__
        self.values: list[list[str]] = [[MISSING, OTHER] for _ in self.dimensions]
        self._values: list[dict[str, int]] = [{} for _ in self.dimensions]
        self.overflowed = [False] * len(self.dimensions)  # more than `most_values` came: which were kept is by order

    def series_code(self, model: str, version: str, source: str = "logged") -> int:
        """The code of what events call so, giving out a new one for a pair not seen before."""
        return self._series_code(spelled(model), spelled(version), source)

    def version_code(self, series: int, version: str) -> int:
        """The code of another version of a series' model, which events call so, as production scores it."""
        return self._series_code(self.series[series].model, spelled(version), "logged")

    @_alone
    def _series_code(self, model: str, version: str, source: str) -> int:
        """By the names that results show, placeholders among them."""
        if (
            len(model) > MAX_NAME or len(version) > MAX_NAME
        ):  # writers of events must not be able to flood labels and answers
            model = OTHER if len(model) > MAX_NAME else model
            version = OTHER if len(version) > MAX_NAME else version
        code = self._series.get((model, version, source))
        if code is None:
            if not self._free and self._plain >= self.max_series:
                known = self._series.get((model, OTHER, source))
                if known is not None:
                    return known
                if self._plain >= 2 * self.max_series:  # models too are bounded
                    model = OTHER
                    if (model, OTHER, source) in self._series:
                        return self._series[(model, OTHER, source)]
                version = OTHER
            self._plain += not self._free
            code = self._series[(model, version, source)] = self._place(Series(model, version, source), self._free)
        return code

    @_alone
    def objective_code(self, series: int, objective: str) -> int:
        """The code of a plain series as an objective counts it."""
        named = self.series[series]._replace(objective=objective)
        code = self._of_objectives.get(named)
        if code is None:
            code = self._of_objectives[named] = self._place(named, self._free_of_objectives)
        return code

    def _place(self, series: Series, free: list[int]) -> int:
        self.changes += 1
        if free:
            code = free.pop()
            self.series[code] = series
            return code
        self.series.append(series)
        return len(self.series) - 1

    @property
    def codes(self) -> list[int]:
        """The codes that plain series have now."""
        return list(self._series.values())

    def objectives_of(self, code: int) -> list[int]:
        """The codes that a plain series has for objectives."""
        return [number for series, number in self._of_objectives.items() if series.plain == self.series[code]]

    @_alone
    def retire(self, code: int) -> None:
        """Forgets a series; nothing may be left that has its code. A plain one goes after those of its objectives."""
        series = self.series[code]
        self.changes += 1
        self.series[code] = RETIRED
        if series.objective:
            del self._of_objectives[series]
            self._free_of_objectives.append(code)
        else:
            del self._series[(series.model, series.version, series.source)]
            self._free.append(code)

    def value_code(self, dimension: int, value: str) -> int:
        """The code of what events call so in a dimension (its index in `dimensions`)."""
        return self._value_code(dimension, spelled(value))

    @_alone
    def _value_code(self, dimension: int, value: str) -> int:
        codes = self._values[dimension]
        code = codes.get(value)
        if code is None:
            if len(value) > MAX_NAME:
                return 1
            if len(codes) >= self.most_values:
                self.overflowed[dimension] = True
                return 1
            code = len(self.values[dimension])
            self.values[dimension].append(value)
            codes[value] = code
        return code

    @_alone
    def names(self) -> dict[str, Any]:
        """Every name by its code, for `adopt` in another process."""
        series = [[s.model, s.version, s.source, *([s.objective] if s.objective else [])] for s in self.series]
        values = [list(values) for values in self.values]
        return {"series": series, "values": values, "radix": self.radix, "overflowed": list(self.overflowed)}

    @_alone
    def adopt(self, names: Mapping[str, Any]) -> Codes:
        """Learns another process' names (same dimensions and `max_values`), and says what its codes mean here."""
        retired = [RETIRED.model, RETIRED.version, RETIRED.source]
        series = [0 if name == retired else self._adopted(*name) for name in names["series"]]
        radix = names.get("radix", self.max_values + 2)  # older ones counted what they showed
        values = []
        for dimension, known in enumerate(names["values"]):
            # and there events could name placeholders
            found = (spelled(value) if value in (MISSING, OTHER) else value for value in known[2:])
            values.append(np.array([0, 1, *(self._value_code(dimension, value) for value in found)], np.int64))
            full = "radix" not in names and len(known) >= radix
            self.overflowed[dimension] |= full or bool(names.get("overflowed", self.overflowed)[dimension])
        return Codes(np.array(series, np.int32), tuple(values), radix, self.radix)

    def _adopted(self, model: str, version: str, source: str, objective: str = "") -> int:
        plain = self._series_code(model, version, source)
        return self.objective_code(plain, objective) if objective else plain

    def combine(self, codes: Sequence[I64]) -> I64:
        """One number for the value codes of all dimensions: sum over d of codes[d] * radix ** d."""
        out = np.zeros(len(codes[0]) if codes else 0, dtype=np.int64)
        for column in reversed(codes):
            out = out * self.radix + column
        return out

    def split(self, combined: I64, dimension: int) -> I64:
        """The value codes of one dimension out of combined numbers."""
        return (combined // self.radix**dimension) % self.radix


def empty_impressions() -> Impressions:
    """No impressions."""
    u, i = np.empty(0, np.uint64), np.empty(0, np.int64)
    s, f = np.empty(0, np.int32), np.empty(0, np.float64)
    return Impressions(
        order=s,
        id=u,
        ts=i,
        user=u,
        request=u,
        item=u,
        series=s,
        pclick=f,
        slices=i,
        label=np.empty(0, np.int8),
    )


def empty_clicks() -> Clicks:
    """No clicks."""
    return Clicks(np.empty(0, np.int32), np.empty(0, np.uint64), np.empty(0, np.int64))


NO_IMPRESSIONS: Impressions = empty_impressions()
