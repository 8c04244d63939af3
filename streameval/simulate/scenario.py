"""What happens: the world, its traffic, the versions that serve it, and what goes wrong."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import isfinite

_POSITIVE = {
    "rate": 200.0, "duration_s": 120.0, "users": 2_000, "items": 500, "click_delay_s": 4.0, "window_s": 1_800.0,
    "request_size": 5,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Version:
    """A model version: its pClick is sigmoid(logit(p*) + bias + noise * z), z fixed per user and item.

    It serves from `start_s` on (seconds after the scenario's start), a `share` of the users; a later one goes first.
    """

    name: str
    noise: float = 0.3
    bias: float = 0.0
    start_s: float = 0.0
    share: float = 1.0

    def __post_init__(self) -> None:
        if not (isfinite(self.noise) and self.noise >= 0):
            raise ValueError(f"version {self.name}: noise = {self.noise}: must not be negative, for example 0.3")
        if not isfinite(self.bias):
            raise ValueError(f"version {self.name}: bias = {self.bias}: must be a finite number, for example 0.0")
        if not 0 <= self.share <= 1:
            raise ValueError(f"version {self.name}: share = {self.share}: must be between 0 and 1, for example 0.5")


@dataclass(frozen=True, slots=True)
class Scenario:
    """Everything that `Traffic` needs to know. Shares are probabilities per impression (or per click)."""

    seed: int = 1
    start_ms: int = 1_760_000_000_000
    rate: float = 200.0  # impressions a second of event time, on average over a day
    duration_s: float = 120.0
    users: int = 2_000
    items: int = 500
    ctr: float = 0.06
    click_delay_s: float = 4.0  # median; log-normal with sigma 0.8
    late_share: float = 0.0  # clicks that come after the attribution window
    window_s: float = 1_800.0  # the attribution window that late clicks miss
    request_size: int = 5
    versions: tuple[Version, ...] = field(default=(Version("v1"),))
    shadow: bool = False  # the pClick of the other versions that have started rides along as `predictions`
    malformed: float = 0.0
    duplicate: float = 0.0  # impressions sent twice, and clicks sent twice
    unmatched: float = 0.0  # clicks whose impression was never sent
    shuffle_s: float = 0.0  # events arrive up to this much out of order
    random_labels: bool = False  # clicks that have nothing to do with anything
    dead_clicks: tuple[float, float] | None = None  # no click arrives between these seconds

    def __post_init__(self) -> None:
        for name, example in _POSITIVE.items():
            value = getattr(self, name)
            if not (isfinite(value) and value > 0):
                raise ValueError(f"{name} = {value}: must be positive, for example {example}")
        for name in ("users", "items", "request_size", "seed", "start_ms"):
            value = getattr(self, name)
            if value != int(value):
                raise ValueError(f"{name} = {value}: must be a whole number, for example {int(value)}")
        if not 0 <= self.seed < 1 << 32:
            raise ValueError(f"seed = {self.seed}: must be between 0 and {(1 << 32) - 1}, for example 1")
        if self.start_ms < 0:
            raise ValueError(f"start_ms = {self.start_ms}: must be ms since the epoch, for example 1760000000000")
        for name in ("late_share", "malformed", "duplicate", "unmatched"):
            if not 0 <= getattr(self, name) <= 1:
                raise ValueError(f"{name} = {getattr(self, name)}: must be between 0 and 1, for example 0.02")
        if not 0 < self.ctr < 1:
            raise ValueError(f"ctr = {self.ctr}: must be between 0 and 1, for example 0.05")
        if not (isfinite(self.shuffle_s) and self.shuffle_s >= 0):
            raise ValueError(f"shuffle_s = {self.shuffle_s}: must not be negative; 0 keeps events in order")
        if self.dead_clicks is not None and not 0 <= self.dead_clicks[0] < self.dead_clicks[1]:
            raise ValueError(
                f"dead_clicks = {self.dead_clicks}: must be (from, to) in seconds, for example (20.0, 30.0)"
            )
        names = [version.name for version in self.versions]
        if not names:
            raise ValueError('versions = (): at least one must serve, for example (Version("v1"),)')
        if len(set(names)) < len(names):
            raise ValueError(f"versions = {names}: the names must differ")


def demo_scenario(start_ms: int, duration_s: float) -> Scenario:
    """v1 serves well; after 30 s a bad deploy, v2, takes all traffic: noisy, and over-confident by 0.7 log-odds.

    From then on v1 scores in shadow, as one should let the old version do.
    """
    return Scenario(
        start_ms=start_ms,
        duration_s=duration_s,
        rate=300.0,
        ctr=0.08,
        click_delay_s=3.0,
        window_s=20.0,
        versions=(Version("v1", noise=0.3), Version("v2", noise=1.5, bias=0.7, start_s=30.0)),
        shadow=True,
        malformed=0.002,
        duplicate=0.001,
    )


def bench_scenario(impressions: int) -> Scenario:
    """1 % CTR and nothing out of the ordinary."""
    return Scenario(rate=1_000.0, duration_s=max(1.0, impressions / 1_000.0), users=20_000, items=2_000, ctr=0.01)


def nasty_scenario() -> Scenario:
    """Everything that can go wrong, at once."""
    return Scenario(
        duration_s=300.0,
        late_share=0.03,
        window_s=60.0,
        versions=(Version("v1"), Version("v2", noise=1.0, start_s=120.0, share=0.3)),
        shadow=True,
        malformed=0.02,
        duplicate=0.02,
        unmatched=0.02,
        shuffle_s=10.0,
    )
