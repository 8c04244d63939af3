"""False alarms: equal versions evaluated every minute for seven days, in the simulated world and on clustered Gaussian sums."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from benchmarks.detection.looks import MINUTE, Looks, PairedLooks, SplitLooks, days
from benchmarks.detection.rules import Track, textbook
from benchmarks.detection.world import BASELINE
from streameval.compare.evidence import joint
from streameval.compare.evidence.evidence import OVERALL, Evidence, Rule
from streameval.compare.evidence.paired import GAP, MID
from streameval.compare.evidence.ratio import Statistic, ratio, two_means
from streameval.compare.reading.reading import COMPARED
from streameval.sketches.blocks import BlockSums

ZERO = dict.fromkeys(COMPARED, 0.0)
NAMES = (*COMPARED, "overall")
LEVELS = (0.05, 0.01)


def rules(alpha: float = 0.05) -> dict[str, Rule]:
    """Margin 0, the hardest case, and the floors of the simulation: half an hour, 200 clicks, 30 blocks."""
    return {"margin 0": Rule(alpha=alpha, margins=ZERO, min_duration=30 * MINUTE)}


@dataclass
class Alarms:
    """How often each rule fired, of how many runs."""

    runs: int = 0
    fired: Counter[str] = field(default_factory=Counter)

    def rate(self, name: str) -> tuple[float, float]:
        """Share of runs, and its standard error."""
        p = self.fired[name] / max(self.runs, 1)
        return p, float(np.sqrt(p * (1 - p) / max(self.runs, 1)))


def in_world(seed: int, count: int = 7, peers: bool = True) -> list[set[str]]:
    """Rules that fired in one week of equal versions: in the drawn direction, and (paired only) with the versions exchanged.

    One e-process serves both levels: it has passed 0.01 when e >= 100.
    """
    takers: list[tuple[str, int, PairedLooks | SplitLooks]] = [
        ("paired", 0, PairedLooks()),
        ("paired", 1, PairedLooks(turned=True)),
        ("split", 0, SplitLooks()),
    ]
    evidence = {(setup, side): Evidence(rules()["margin 0"], 0) for setup, side, _ in takers}
    fired: list[set[str]] = [set(), set()]
    tracks: list[Looks] = []
    rows = []
    for minutes in days(seed, lambda _: BASELINE, count, rows=(2, 3)):
        rows.append(minutes.pair)
        for setup, side, taker in takers:
            for looks in taker.take(minutes):
                evidence[setup, side].advance(looks.at, looks.clicks, looks.statistics, correlation=looks.correlation)
                if setup == "paired" and side == 0:
                    tracks.append(_since_start(looks))
    for (setup, side), e in evidence.items():
        for i, name in enumerate(NAMES):
            peak = e.standing(None if i == OVERALL else name).peak_worse
            fired[side] |= {f"{setup} {name} {alpha}" for alpha in LEVELS if peak >= np.log(1 / alpha)}
    if peers:
        fired[0] |= {rule for rule, at in textbook(track(tracks, rows)).items() if at >= 0}
    return fired


def track(looks: list[Looks], rows: list[BlockSums]) -> Track:
    """The first window's looks and the minutes of their sums."""
    whole = {name: _joined([x.statistics[name] for x in looks]) for name in ("log_loss", "auc")}
    return Track(
        whole["log_loss"],
        whole["auc"],
        np.concatenate([x.clicks for x in looks]),
        np.concatenate([x.impressions for x in looks]),
        np.concatenate([x.scalars for x in looks]),
        BlockSums(np.concatenate([r.blocks for r in rows]), np.concatenate([r.scalars for r in rows])),
    )


def _since_start(looks: Looks) -> Looks:
    return replace(
        looks, clicks=looks.clicks[:, 0], statistics={n: looks.statistics[n][:, 0] for n in ("log_loss", "auc")}
    )


def _joined(parts: list[Statistic]) -> Statistic:
    return Statistic(
        *(
            np.concatenate([getattr(p, f) for p in parts])
            for f in ("theta", "weight", "v_clu", "v_iid", "df", "blocks", "v_floor")
        )
    )


def gaussian(
    seed: int, deff: float, setup: str, alpha: float = 0.05, looks: int = 10080, restart: int = 360
) -> Mapping[str, bool]:
    """One week of a Gaussian null in 64 blocks: noise of impressions plus a lasting effect of each block's users, so that the
    design effect grows to `deff` at the end. Looks every minute for six hours, then every ten. Split: two such arms.
    """
    rng = np.random.default_rng([seed, round(10 * deff), setup == "split"])
    at = np.concatenate([np.arange(30, 361), np.arange(370, looks + 1, 10)])
    steps = np.diff(np.concatenate([[0], at])).astype(np.float64)
    arms = []
    for _ in range(2 if setup == "split" else 1):
        noise = np.cumsum(rng.standard_normal((at.size, 64)) * np.sqrt(steps)[:, None], axis=0)
        arms.append(noise + at[:, None] * np.sqrt((deff - 1) / looks) * rng.standard_normal(64))
    rule = Rule(alpha=alpha, margins=ZERO, min_duration=0, min_clicks=30, certified=("log_loss",))
    evidence = Evidence(rule, 0)
    starts = np.arange(0, looks, restart)
    cut = np.minimum(np.searchsorted(at, starts, side="right"), at.size)
    before = [np.stack([a[c - 1] if c else 0 * a[0] for c in cut]) for a in arms]
    when = np.array([at[c - 1] if c else 0 for c in cut], np.float64)
    hit = naive = False
    for begin in range(0, at.size, 64):
        part = slice(begin, begin + 64)
        so_far = int((starts < at[part][-1]).sum())
        n = at[part].astype(np.float64)[:, None] - when[:so_far]
        begun = n > 0
        n = np.where(begun, n, 0.0)
        w = np.repeat(n[..., None], 64, axis=-1)
        sums = [
            np.where(begun[..., None], a[part][:, None] - b[:so_far], 0.0) for a, b in zip(arms, before, strict=True)
        ]
        total = n * 64
        statistic = two_means(sums[1], w, -sums[0], w, total, total) if setup == "split" else ratio(sums[0], w, total)
        path = evidence.advance(at[part] * MINUTE, n.astype(np.int64), {"log_loss": statistic})
        hit = hit or bool((path.verdict[:, 0] == 1).any())
        s = statistic[:, 0]
        naive = naive or bool((s.theta > 1.645 * np.sqrt(s.v_iid)).any())
    return {"ours": hit, "naive z": naive}


def overall(seed: int, deff: float, alpha: float = 0.05, looks: int = 10080, restart: int = 360) -> dict[str, bool]:
    """One such week of all metrics of the overall verdict: log loss and AUC (whose noise has a correlation of 0.9), GAUC, and
    calibration in its hardest case, with one of its two statistics far beyond its margin and the other one at it.
    """
    rng = np.random.default_rng([seed, round(10 * deff), 7])
    at = np.concatenate([np.arange(30, 361), np.arange(370, looks + 1, 10)])
    steps = np.diff(np.concatenate([[0], at])).astype(np.float64)
    noise = np.cumsum(rng.standard_normal((4, at.size, 64)) * np.sqrt(steps)[:, None], axis=1)
    noise += at[:, None] * np.sqrt((deff - 1) / looks) * rng.standard_normal((4, 1, 64))
    noise[1] = 0.9 * noise[0] + np.sqrt(1 - 0.9**2) * noise[1]
    names = ("log_loss", "auc", "gauc", GAP)
    e = Evidence(Rule(alpha=alpha, margins=ZERO, min_duration=0, min_clicks=30), 0)
    starts = np.arange(0, looks, restart)
    cut = np.searchsorted(at, starts, side="right")
    before = np.stack([noise[:, c - 1] if c else 0 * noise[:, 0] for c in cut], axis=1)
    when = np.array([at[c - 1] if c else 0 for c in cut], np.float64)
    naive = False
    for begin in range(0, at.size, 64):
        part = slice(begin, begin + 64)
        so_far = int((starts < at[part][-1]).sum())
        n = np.maximum(at[part].astype(np.float64)[:, None] - when[:so_far], 0.0)
        sums = np.where((n > 0)[..., None], noise[:, part, None] - before[:, None, :so_far], 0.0)
        w = np.repeat(n[..., None], 64, axis=-1)
        some = {name: ratio(x, w, 64 * n) for name, x in zip(names, sums, strict=True)}
        some[MID] = replace(some[GAP], theta=some[GAP].theta + 10.0)
        with np.errstate(invalid="ignore"):
            devs = [(x - some[m].theta[..., None] * w) for m, x in zip(names[:2], sums[:2], strict=True)]
        r = joint.correlation(devs[0], devs[1])
        e.advance(at[part] * MINUTE, n.astype(np.int64), some, correlation=r)
        first = some["log_loss"][:, 0]
        naive = naive or bool((first.theta > 1.645 * first.stderr()).any())
    return {"overall": e.standing().verdict == "worse", "naive z": naive} | {
        name: e.standing(name).verdict == "worse" for name in COMPARED
    }


def overall_alarms(deff: float, runs: int, alpha: float = 0.05) -> Alarms:
    """`runs` weeks of it."""
    out = Alarms()
    for seed in range(runs):
        out.runs += 1
        out.fired.update(name for name, hit in overall(seed, deff, alpha).items() if hit)
    return out


def gaussian_alarms(deff: float, setup: str, runs: int, alpha: float = 0.05) -> Alarms:
    """`runs` weeks of it."""
    out = Alarms()
    for seed in range(runs):
        out.runs += 1
        out.fired.update(name for name, hit in gaussian(seed, deff, setup, alpha).items() if hit)
    return out


def world_alarms(runs: int, seed: int = 10_000, peers: int = 100) -> tuple[Alarms, Alarms, Alarms]:
    """`runs` weeks: paired in both directions (2 * runs), split (runs), and the textbook rules on the first `peers`."""
    both, one, others = Alarms(), Alarms(), Alarms()
    for i in range(runs):
        add_run(in_world(seed + i, peers=i < peers), both, one, others if i < peers else None)
    return both, one, others


def add_run(fired: list[set[str]], both: Alarms, one: Alarms, others: Alarms | None) -> None:
    """Counts the alarms that `in_world` found."""
    for names in fired:
        both.runs += 1
        both.fired.update(names)
    for alarms in (one, others):
        if alarms is not None:
            alarms.runs += 1
            alarms.fired.update(fired[0])
