"""The deploys on record: noticed from arrivals, announced by CI/CD, or shadows, which only score what others serve.

A deploy that is announced and noticed is one deploy, whichever came first.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any

from streameval.compare.announce import Announcement, announced_deploy, with_announcement
from streameval.compare.reading.reading import Deploy
from streameval.compare.tracking.watch import NONE_LATE, Watch

_MOST = 1_000  # kept on record


class Deploys:
    """Those of all models, oldest first."""

    def __init__(self, watch: Watch) -> None:
        self._watch = watch
        self.on_record: list[Deploy] = []

    def announce(self, announcement: Announcement) -> Deploy:
        """Records a deploy announced by CI/CD; returns it, or the one already on record with what was announced."""
        a = announcement
        known = announced_deploy(self.on_record, a)
        if known is not None:
            return self._replace(with_announcement(known, a))
        return self._add(self._watch.announced(a.model, a.version, a.at, a.note, a.link))

    def arrivals(
        self,
        start: int,
        end: int,
        served: Mapping[tuple[str, str], int],
        late: Mapping[tuple[str, str], Mapping[int, int]] = NONE_LATE,
    ) -> list[Deploy]:
        """Adds the arrivals of [start, end) in ms: see `Watch.pane`. Returns the deploys noticed from them, with what was
        announced of them.
        """
        return [self._noticed(deploy) for deploy in self._watch.pane(start, end, served, late)]

    def shadow(self, model: str, version: str, at: int, noticed: int) -> Deploy:
        """Records a version, or an online model, that only scores what a model's champion serves."""
        return self._add(self._watch.shadow(model, version, at, noticed))

    def state(self) -> list[dict[str, Any]]:
        """Returns everything, as plain values."""
        return [asdict(deploy) for deploy in self.on_record]

    def restore(self, state: list[dict[str, Any]]) -> None:
        """Restores what `state` returned."""
        self.on_record = [Deploy(**deploy) for deploy in state]

    def _noticed(self, deploy: Deploy) -> Deploy:
        """Records a deploy noticed from arrivals, in place of the one that announced it, if any."""
        announced = [
            d
            for d in self.on_record
            if (d.model, d.version) == (deploy.model, deploy.version) and d.noticed is None and d.kind != "shadow"
        ]
        if not announced:
            return self._add(deploy)
        return self._replace(
            replace(announced[-1], kind=deploy.kind, noticed=deploy.noticed, replaces=deploy.replaces, at=deploy.at)
        )

    def _add(self, deploy: Deploy) -> Deploy:
        self.on_record.append(deploy)
        del self.on_record[:-_MOST]
        return deploy

    def _replace(self, deploy: Deploy) -> Deploy:
        self.on_record = [deploy if d.id == deploy.id else d for d in self.on_record]
        return deploy
