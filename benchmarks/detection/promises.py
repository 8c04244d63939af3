"""The promises about verdicts, row by row: which streams, which verdicts are false there, and which are required."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import mean

from benchmarks.detection.feed import Plan
from benchmarks.detection.rates import bounds, rate
from benchmarks.detection.whole import Case, Outcome

AUC = ("auc",)
EVERY = ("overall", "log_loss", "auc", "gauc", "calibration")
UPPER = {"default": 0.02, "0.05/m0": 0.07}  # largest upper 95% bound of rates that should be 1% and 5%
USERS = ("zipf 0.8", "zipf 1.1", "zipf 1.3")
SWINGS = ("zipf 0.8", "swing 0.8", "trend", "trend and swing", "600 a minute")
ORDINARY = (*USERS, "swing 0.8", "weekend", "flash", "bots", "busy 0.9", "items 6 h")


@dataclass(frozen=True)
class Promise:
    """A promise about one kind of stream: `case` with any seed.

    `wrong`: names for which `verdict` is false; at most `most` of the runs may have it (0: none at all, otherwise the upper 95%
    bound). `due`: names that must be certified in every stream. `at_the_end`: the verdict must not hold at the end.
    """

    case: Case
    wrong: tuple[str, ...]
    verdict: str = "worse"
    most: float = 0.0
    due: tuple[str, ...] = ()
    at_the_end: bool = False

    @property
    def name(self) -> str:
        """The text of the table's first column."""
        plan = self.case.plan
        pause = "" if plan.pause is None else ", clicks paused" if plan.share == 1.0 else ", half of the clicks lag"
        many = "" if plan.partitions == 1 else f", {plan.partitions} partitions"
        return f"{self.case.pair}: {self.case.world}, {plan.setup}{many}{pause}, {self.case.rule}"

    def said(self, outs: Sequence[Outcome], name: str) -> int:
        """The number of streams with the false verdict: at any time, or at the end."""
        if self.at_the_end:
            return sum(out.final.get(name) == self.verdict for out in outs)
        return sum(name in (out.worse if self.verdict == "worse" else out.not_worse) for out in outs)

    def holds(self, outs: Sequence[Outcome]) -> bool:
        """Whether these outcomes keep the promise."""
        for name in self.wrong:
            hits = self.said(outs, name)
            if (bounds(hits, len(outs))[1] if self.most else hits) > self.most:
                return False
        return all(name in out.not_worse for out in outs for name in self.due)

    def cells(self, outs: Sequence[Outcome]) -> list[str]:
        """The row of the table."""
        false = [rate(self.said(outs, name), len(outs)) if name in self.wrong else "" for name in EVERY]
        certified = rate(sum("overall" in out.not_worse for out in outs), len(outs))
        back = str(sum(bool(out.retracted) for out in outs))
        harm = f"{mean(out.harm for out in outs):+.4f}"
        return [self.name, self.verdict, *false, certified, back, harm, "yes" if self.holds(outs) else "**no**"]


HEAD = ("streams", "false verdict", *EVERY, "certified overall", "taken back", "true harm", "holds")


# delayed clicks: all of them for an hour, or half of them for three
HELD_UP: Mapping[str, Plan] = {"pause": Plan(pause=1.0), "lag": Plan(pause=1.0, held=3.0, share=0.5)}


def nulls(
    worlds: Sequence[str] | None,
    pairs: Sequence[str] | None,
    plans: Sequence[str] | None,
    partitions: Sequence[int] | None,
    rules: Sequence[str],
    hours: float,
) -> Iterator[Promise]:
    """The promises about equally good versions, and about hidden failures; None: the default choice."""
    base = Case("zipf 0.8", "identical", 0, hours=hours)
    for pair in pairs or ("identical", "0.8 x", "exchangeable", "item noise", "user noise", "rare failures", *HELD_UP):
        paused = pair in HELD_UP
        given = "0.93 and 1.07" if paused else pair
        same = given in {"identical", "0.8 x"}
        usual = SWINGS if same else ("200 a minute",) if paused else ORDINARY if pair == "exchangeable" else USERS[:2]
        for rule in rules if not paused else ("default",):
            for world in worlds or usual:
                for setup in plans or (("paired", "split") if same else ("paired",)):
                    for count in partitions or ((1, 8) if same else (1,)):
                        case = replace(
                            base,
                            world=world,
                            pair=given,
                            rule=rule,
                            plan=replace(HELD_UP.get(pair, Plan()), setup=setup, partitions=count),
                        )
                        yield _promise(case, pair)


def _promise(case: Case, pair: str) -> Promise:
    limit = UPPER[case.rule]
    if pair == "identical":
        paired = case.plan.setup == "paired"
        return Promise(case, EVERY if paired else AUC, due=("overall", "log_loss", "auc") if paired else ())
    if pair == "0.8 x":
        return Promise(case, AUC)
    if pair == "rare failures":
        return Promise(case, ("overall", "log_loss"), "not_worse", limit)
    if pair == "pause":
        return Promise(case, ("overall", "log_loss", "auc"))
    if pair == "lag":  # it cannot be detected before the clicks arrive
        return Promise(case, ("overall", "log_loss", "auc"), at_the_end=True)
    return Promise(case, EVERY, most=limit)


# pair, expected verdict, world, days, target median and ninetieth percentile (0.05, margin 0)
POWER: tuple[tuple[str, str, str, float, float, float], ...] = (
    ("AUC -0.02", "worse", "documented", 2.0, 12e3, 26e3),
    ("log loss +1%", "worse", "documented", 3.0, 20e3, 45e3),
    ("AUC -0.005", "worse", "documented", 6.0, 86e3, 215e3),
    ("equal", "not_worse", "documented", 3.0, 50e3, 145e3),
    ("AUC -0.02", "worse", "documented, zipf 1.1", 3.0, float("inf"), 75e3),
)


def power(
    worlds: Sequence[str] | None, pairs: Sequence[str] | None, rules: Sequence[str]
) -> Iterator[tuple[Case, str, tuple[float, float]]]:
    """(stream, expected verdict, target median and ninetieth percentile)."""
    for pair, verdict, world, days, median, late in POWER:
        if pairs is not None and pair not in pairs:
            continue
        chosen = [world] if worlds is None else worlds if world == "documented" else []
        for place in chosen:
            for rule in rules:
                case = Case(
                    place,
                    pair,
                    0,
                    rule=rule,
                    hours=24.0 * days,
                    alone=6.0,
                    pane="1m",
                    floor="30m",
                    marks=(24.0 * days,),
                    until=verdict,
                )
                wish = (median, late) if place == world and rule == "0.05/m0" else (float("nan"), float("nan"))
                yield case, verdict, wish


LAWS: Mapping[str, Case] = {
    "identical, paired": Case("600 a minute", "identical", 0, hours=12.5, alone=24.0),
    "0.8 x, paired": Case("600 a minute", "0.8 x", 0, hours=12.5, alone=24.0),
    "identical, split": Case("600 a minute", "identical", 0, Plan("split"), hours=12.5, alone=24.0),
    "identical, split, 3,000 a minute": Case("3,000 a minute", "identical", 0, Plan("split"), hours=12.5, alone=24.0),
    "identical, ramp": Case("600 a minute", "identical", 0, Plan("ramp"), hours=36.0, marks=(4.0, 12.0, 36.0)),
    "identical, by the clock": Case("600 a minute", "identical", 0, Plan("clock"), hours=36.0, marks=(4.0, 12.0, 36.0)),
    "identical, trend": Case("trend", "identical", 0, hours=96.0, marks=(12.0, 48.0, 96.0)),
    "exchangeable, paired": Case("600 a minute", "exchangeable", 0, hours=12.5, alone=24.0),
}  # fmt: skip
