"""Detects deploys from the traffic itself, by counts of served impressions per pane.

A version of a model is *live* once it has served `share` of the model's impressions, of the recent ones or of all since it
appeared, or `count` impressions in total since then. Its deploy began with its first impression, and replaces the live version
that serves most. A live version is *gone* when its model has served so many impressions without it that, at `share`, twenty of
them would have been its own. If a version comes back after it was gone, that is a deploy again: a roll-back. `__other__`, the versions beyond
those that are distinguished, is no deploy. Late impressions count where nothing newer is known of their version: of one whose
log comes late, all do; stragglers of a version that is gone do not bring it back, but such as go on from the last known ones
without a gap tell that it never was. Time is event time, so the same traffic gives the same deploys, whenever it is read.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from types import MappingProxyType
from typing import Any, Literal

from streameval.compare.reading.reading import Deploy
from streameval.events.names import OTHER

RECENT = 5  # panes over which shares are taken
FEWEST = 30  # impressions of a version before its share means anything
MISSED = 20  # expected impressions that did not come
MOST_VERSIONS = 256  # versions remembered per model
NONE_LATE: Mapping[Any, Any] = MappingProxyType({})


@dataclass(slots=True)
class _Version:
    first: int | None = None  # ms: when it appeared
    total: int = 0  # impressions since then
    of: int = 0  # and those of its model
    live: bool = False
    before: bool = False  # it has been live at some time
    missed: int = 0  # impressions of its model since its last one
    newest: int = 0  # ms: start of the last pane in which it is known to have served
    told: int = 0  # ms: of the time before this, impressions in time have told whether it served
    was: int | None = None  # ms: when it had appeared before it was found to be gone


@dataclass(slots=True)
class _Model:
    recent: deque[dict[str, int]] = field(default_factory=lambda: deque(maxlen=RECENT))
    versions: dict[str, _Version] = field(default_factory=dict)
    champion: str | None = None


class Watch:
    """What has been seen of every model. Deploys are numbered by `number`, which only grows."""

    def __init__(self, share: float, count: int) -> None:
        self._share = share
        self._count = count
        self._models: dict[str, _Model] = {}
        self.number = 0

    def pane(
        self,
        start: int,
        end: int,
        served: Mapping[tuple[str, str], int],
        late: Mapping[tuple[str, str], Mapping[int, int]] = NONE_LATE,
    ) -> list[Deploy]:
        """Adds a pane [start, end) in ms: impressions by (model, version). Returns the deploys noticed from it.

        Panes come in order. `late`: impressions of earlier panes, which came in this one, by the start of their pane (ms).
        """
        by_model: dict[str, dict[str, dict[int, int]]] = {}
        for (model, version), n in served.items():
            by_model.setdefault(model, {})[version] = {start: n}
        for (model, version), row in late.items():
            self._rejoin(model, version, row, end - start)
            since = self._since(model, version, end - start)
            news = {shown: n for shown, n in row.items() if shown >= since}
            if news:
                of = by_model.setdefault(model, {})
                of[version] = of.get(version) or news  # where some are in time, they tell as much
        return [d for model, counts in sorted(by_model.items()) for d in self._model(model, start, end, counts)]

    def shadow(self, model: str, version: str, at: int, noticed: int) -> Deploy:
        """Returns the deploy of a version that only scores what another one serves."""
        return self._deploy(model, version, self.champion(model), at, "shadow", noticed)

    def announced(self, model: str, version: str, at: int, note: str, link: str) -> Deploy:
        """Returns the deploy that CI/CD announced; its traffic may be yet to come."""
        replaces = self.champion(model)
        known = self._models[model].versions.get(version) if model in self._models else None
        back = known is not None and known.before and replaces != version
        kind: Literal["deploy", "rollback"] = "rollback" if back else "deploy"
        deploy = self._deploy(model, version, None if replaces == version else replaces, at, kind, None)
        return Deploy(**{**_fields(deploy), "announced": True, "note": note, "link": link})

    def champion(self, model: str) -> str | None:
        """Returns the live version of a model that serves most."""
        known = self._models.get(model)
        return known.champion if known else None

    def is_live(self, model: str, version: str) -> bool:
        """Whether a version currently serves its model."""
        known = self._models.get(model)
        return known is not None and version in known.versions and known.versions[version].live

    def knows(self, model: str, version: str) -> bool:
        """Whether a version is known to have served, however little."""
        known = self._models.get(model)
        return known is not None and version in known.versions

    def share(self, model: str, version: str) -> float:
        """Returns a version's share of its model's recent impressions."""
        known = self._models.get(model)
        recent = {} if known is None else self._recent(known)
        return recent.get(version, 0) / max(sum(recent.values()), 1)

    def state(self) -> dict[str, Any]:
        """Returns everything, as plain values."""
        models = {
            name: {
                "recent": [dict(counts) for counts in model.recent],
                "versions": {version: asdict(one) for version, one in model.versions.items()},
                "champion": model.champion,
            }
            for name, model in self._models.items()
        }
        return {"number": self.number, "models": models}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Restores what `state` returned."""
        self.number = state["number"]
        self._models = {
            name: _Model(
                deque(saved["recent"], maxlen=RECENT),
                {version: _Version(**one) for version, one in saved["versions"].items()},
                saved["champion"],
            )
            for name, saved in state["models"].items()
        }

    # -- inside --------------------------------------------------------------------------------------------------

    def _since(self, model: str, version: str, pane: int) -> int:
        """Since when impressions of a version tell whether it serves now; partitions may be some panes apart."""
        of = self._models.get(model)
        known = of.versions.get(version) if of is not None else None
        return 0 if known is None else max(known.newest - (RECENT - 1) * pane, known.told)

    def _rejoin(self, model: str, version: str, shown: Iterable[int], pane: int) -> None:
        """Late impressions may tell that a version was never gone: its log was stuck."""
        of = self._models.get(model)
        one = None if of is None else of.versions.get(version)
        if one is None or one.was is None or one.first is not None:
            return
        for then in sorted(shown):
            if one.newest + pane < one.told and one.newest < then <= one.newest + RECENT * pane:
                one.newest = then
        if one.newest + pane >= one.told:
            one.first, one.was, one.live, one.missed = one.was, None, True, 0

    def _model(self, name: str, start: int, end: int, shown: Mapping[str, Mapping[int, int]]) -> list[Deploy]:
        """`shown`: impressions of every version by the start of their pane."""
        model = self._models.setdefault(name, _Model())
        counts = {version: sum(row.values()) for version, row in sorted(shown.items())}
        model.recent.append(counts)
        served, serving = sum(counts.values()), set()
        for version, n in counts.items():
            one = model.versions.setdefault(version, _Version())
            one.first = min(shown[version]) if one.first is None else one.first
            one.total += n
            one.told = end if start in shown[version] else one.told
            if (newest := max(shown[version])) > one.newest:
                one.newest, one.missed = newest, 0
                serving.add(version)
        for version, one in model.versions.items():
            one.of += served
            if version not in serving:
                one.missed += served
                if one.missed >= MISSED / self._share and one.first is not None:
                    one.was = one.first if one.live else None
                    one.first, one.total, one.of, one.live, one.told = None, 0, 0, False, end
        out = []
        recent = self._recent(model)
        whole = sum(recent.values())
        for version in sorted(counts, key=lambda v: (-recent[v], v)):
            one = model.versions[version]
            lately = recent[version] >= max(FEWEST, self._share * whole)
            since = one.total >= max(FEWEST, self._share * one.of)
            enough = lately or since or one.total >= self._count
            if one.live or not enough or one.first is None or version == OTHER:
                continue
            kind: Literal["deploy", "rollback"] = "rollback" if one.before else "deploy"
            replaces = model.champion if model.champion != version else None
            out.append(self._deploy(name, version, replaces, one.first, kind, end))
            one.live = one.before = True
            if model.champion is None:
                model.champion = version
        live = [v for v, one in model.versions.items() if one.live]
        model.champion = max(live, key=lambda v: (recent.get(v, 0), v == model.champion), default=model.champion)
        self._bound(model)
        return out

    @staticmethod
    def _recent(model: _Model) -> dict[str, int]:
        out: dict[str, int] = {}
        for counts in model.recent:
            for version, n in counts.items():
                out[version] = out.get(version, 0) + n
        return out

    @staticmethod
    def _bound(model: _Model) -> None:
        surplus = len(model.versions) - MOST_VERSIONS
        if surplus > 0:
            oldest = sorted((one.live, -one.missed, version) for version, one in model.versions.items())
            for _, _, version in oldest[:surplus]:
                del model.versions[version]

    def _deploy(
        self,
        model: str,
        version: str,
        replaces: str | None,
        at: int,
        kind: Literal["deploy", "rollback", "shadow"],
        noticed: int | None,
    ) -> Deploy:
        self.number += 1
        return Deploy(str(self.number), model, version, replaces, at, kind, noticed)


def _fields(deploy: Deploy) -> dict[str, Any]:
    return {name: getattr(deploy, name) for name in Deploy.__slots__}
