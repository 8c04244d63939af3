"""The stream, the settings and the comparisons of states that the laws about restarts and about two logs have in common."""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any
from unittest.mock import patch

import numpy as np

from streameval.counting import join_panes
from streameval.results import panes
from streameval.settings.tree import Settings
from streameval.simulate.scenario import Scenario, Version
from streameval.store import container

PARTITIONS = 2
WHOLE = 0.4  # of the looks in between, for which everything that readers may ask is made
BROKEN_S = (150.0, 185.0)  # of the stream: most of its clicks are for impressions that nobody has heard of


OBJECTIVES = [
    {"name": "dear", "value_at_least": 1.0},
    {"name": "dearest", "value_at_least": 2.5, "versions": ["v2", "onl*"]},
]


def scenario(duration_s: float, rate: float) -> Scenario:
    """Two versions that both score, and some of everything that can be wrong with a stream."""
    return Scenario(
        duration_s=duration_s,
        rate=rate,
        users=80,
        ctr=0.2,
        late_share=0.05,
        window_s=40.0,
        versions=(Version("v1"), Version("v2", noise=1.0, start_s=90.0, share=0.3)),
        shadow=True,
        malformed=0.02,
        duplicate=0.03,
        unmatched=0.03,
        shuffle_s=15.0,  # more than the lateness that is allowed
    )


def weighed(impression: bytes) -> bytes:
    """The same impression with a propensity, in four of five, and with policies, in every other one, also of a version
    that never serves; one in six has the id of its user's session, or one id for all, for that of its request."""
    if not impression.endswith(b"}"):  # malformed
        return impression
    luck = Random(impression)
    found = json.loads(impression)
    if luck.random() < 0.8:
        found["propensity"] = 10 ** luck.uniform(-5, 0)
    if luck.random() < 0.5:
        found["policies"] = {version: luck.random() for version in ("v1", "v2", "v9")[: luck.randint(1, 3)]}
    if luck.random() < 0.15:
        found["request_id"] = luck.choice(["session-" + str(found["user_id"]), "none"])
    return json.dumps(found, separators=(",", ":")).encode()


def astray(click: bytes) -> bytes:
    """The same click on no impression."""
    return click.replace(b'_id":"', b'_id":"astray-')


def worth(click: bytes, more: float = 1.0) -> bytes:
    """The same click with a value, which is one of a few that depend on it alone, times `more`."""
    return click[:-1] + b',"value":%.2f}' % ((zlib.crc32(click) % 4) * more) if click.endswith(b"}") else click


def make_settings(
    weighting: str,
    score_at: str,
    models: bool,
    shared: bool,
    over: bool = False,
    valued: bool = False,
    pane: str = "10s",
) -> Settings:
    """`over`: comparisons end, and their sums are let go, within the stream; `valued`: what clicks are worth counts."""
    learners = [
        {"name": "ftrl", "kind": "ftrl", "bits": 12},
        {"name": "lr", "kind": "river", "factory": "river.linear_model.LogisticRegression"},
    ]
    return Settings.model_validate(
        {
            "join": {
                "attribution_window": "40s", "allowed_lateness": "8s", "correction_horizon": "90s",
                "request_gap": "20s", "score_at": score_at,
            },
            "windows": {"pane": pane, "sliding": ["30s", "60s"]},
            "slices": {"dimensions": ["country", "device"]},
            "users": {"weighting": weighting},
            "strata": {"count": 3},
            "metrics": {"value": valued},
            "objectives": OBJECTIVES if valued else [],
            "models": learners if models else [],
            "compare": {
                "more": ["ctr", "value", "click_yield", "log_loss_snips", "policy_value", "ndcg_2", "mrr", "pauc"], "count": 20, "min_duration": "30s", "min_clicks": 20, "min_blocks": 10, "gauc_window": "20s",
                **({"horizon": "50s", "keep": "90s"} if over else {}),
            },
            "kafka": {"impressions_topic": "i", "clicks_topic": "i" if shared else "c"},
        }
    )  # fmt: skip


# Readers' panes are in no report, and took as long as all the rest: those of every look, four of the newest are enough
few_panes = patch.object(panes, "AT_ONCE", 4)


@contextmanager
def looks_of(pane: str) -> Iterator[None]:
    """Looks judge the join by panes as long as what is broken in the stream, and evaluate few panes."""
    recent = 4 if pane == "10s" else 40
    with patch.object(join_panes, "RECENT_PANES", recent), few_panes:
        yield


def through_disk(process: Any, partition: int, path: Path) -> dict:
    state = process.pipeline.partition_state(partition)
    assert state is not None
    container.write(path, state)
    process.pipeline.state_written(partition)
    tree = container.read(path)
    for learner in tree["monitor"]["learners"] if tree["monitor"] else []:
        if "pickle" in learner["model"]:
            learner["model"]["pickle"] = learner["model"]["pickle"].tobytes()
    return tree


def differences(a: object, b: object, where: str = "") -> list[str]:
    if isinstance(a, dict) and isinstance(b, dict) and a.keys() == b.keys():
        return [found for key in a for found in differences(a[key], b[key], f"{where}.{key}")]
    if isinstance(a, list) and isinstance(b, list) and len(a) == len(b):
        return [
            found for i, (x, y) in enumerate(zip(a, b, strict=True)) for found in differences(x, y, f"{where}[{i}]")
        ]
    if isinstance(a, np.ndarray) and isinstance(b, np.ndarray):
        same = a.dtype == b.dtype and a.shape == b.shape and np.array_equal(a, b, equal_nan=a.dtype.kind == "f")
        return [] if same else [where]
    return [] if a == b else [where]
