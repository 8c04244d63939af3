"""Prints what ranx finds in the log of `test_lists_judged.py`, where the numbers are kept: ranx brings some thirty packages
and compiles itself for two minutes, so it is none of the development packages. To make them again:

    python3 -m venv build/ranx
    build/ranx/bin/pip install -r requirements.lock
    build/ranx/bin/pip install ranx==0.3.21
    build/ranx/bin/python -m tests.metrics.judged_by_ranx
"""

from __future__ import annotations

from importlib.metadata import version
from pprint import pprint

from ranx import Qrels, Run, evaluate

from tests.ranked_lists import JUDGED, KS, documents, untied

# by ours: the name that ranx has for it, and whether it is a mean of the lists with a gain or of all lists
NAMES = {
    **{f"{ours}_{k}": (f"{theirs}@{k}", some) for k in KS for ours, theirs, some in (
        ("ndcg", "ndcg", True), ("map", "map", True), ("recall", "recall", True),
        ("precision", "precision", False), ("hit_rate", "hit_rate", False),
    )},
    "map": ("map", True), "mrr": ("mrr", True),
}  # fmt: skip


def judged(gain: str) -> dict[str, float]:
    """Every metric; of gains that are no clicks NDCG alone: an item that was clicked and has no gain is not relevant."""
    wanted, ranked = documents(untied(*JUDGED), gain)
    of_all = Qrels(wanted), Run(ranked)
    gained = [request for request, of in wanted.items() if any(of.values())]
    of_some = Qrels({one: wanted[one] for one in gained}), Run({one: ranked[one] for one in gained})
    return {
        ours: float(evaluate(*(of_some if some else of_all), theirs))
        for ours, (theirs, some) in NAMES.items()
        if gain == "click" or ours.startswith("ndcg")
    }


if __name__ == "__main__":
    print(f"# ranx {version('ranx')}")
    pprint({gain: judged(gain) for gain in ("click", "value")})
