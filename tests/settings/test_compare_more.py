"""`compare.more` and `compare.decide`: what there is, and one clear error for what there is not."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from streameval.compare.evidence.evidence import Rule
from streameval.compare.evidence.rule_from_settings import rule_of
from streameval.compare.ledger.row_shape import PLAIN_ROWS, shape_of
from streameval.compare.reading.further import further_metric
from streameval.compare.reading.reading import COMPARED, sign_of
from streameval.settings.compare import DECIDE, MORE, OF_PAIRS, Compare, Margins, Tolerances
from streameval.settings.toml import ConfigError, load


def told(tmp_path: Path, text: str) -> str:
    path = tmp_path / "streameval.toml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError) as error:
        load(path)
    return str(error.value)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            'more = ["map_5"]',
            "not available; paired comparisons support ndcg_K, mrr, pauc, log_loss_snips, policy_value, split ones ctr, value, click_yield",
        ),
        ('more = ["ndcg_0"]', 'more = ["ndcg_0"]: not available'),
        ('more = ["ndcg_K"]', 'more = ["ndcg_K"]: not available'),
        ('more = ["ndcg"]', 'more = ["ndcg"]: not available'),
        ('more = ["mrr", "mrr"]', 'more: "mrr" is there twice'),
        (
            'decide = ["ctr"]',
            'decide = ["ctr"]: not available; there are log_loss, auc, gauc, calibration; a further metric must be in `more`, too',
        ),
        ('more = ["ndcg_10"]\ndecide = ["ndcg_5"]', 'decide = ["ndcg_5"]: not available'),
        ("decide = []", "decide = []: the overall verdict needs a metric"),
        ('more = ["ndcg_5"]\n[ranking]\ngain = "value"', 'ranking.gain = "value"'),
    ],
)
def test_what_is_not_there_is_one_clear_error(tmp_path: Path, text: str, said: str) -> None:
    assert said in told(tmp_path, f"[compare]\n{text}")


def test_every_metric_has_its_row_its_margin_and_its_sums() -> None:
    assert DECIDE == COMPARED
    for name in (one.replace("_K", "_7") for one in MORE):
        row = further_metric(name)
        assert row is not None
        assert sign_of(name) == row.sign
        assert {row.name} <= set(Margins.model_fields) & set(Tolerances.model_fields)
        shape = shape_of([name], 1e-4)
        assert name == "ctr" or shape.pieces.width or shape.lists.metrics == (name,) or shape.requests
        assert row.setup == ("paired" if name.replace("_7", "_K") in OF_PAIRS else "split")
    assert further_metric("ndcg") is further_metric("mrr_5") is further_metric("log_loss") is None


def test_without_more_the_rule_is_the_one_that_it_was() -> None:
    assert rule_of(Compare()) == Rule(user_cap=30)
    assert (shape_of([], 1e-4).pieces.width, shape_of([], 1e-4).lists.width) == (0, PLAIN_ROWS.lists.width)
    assert rule_of(Compare(more=("ctr", "ndcg_3"))).weights == Rule().weights
    assert rule_of(Compare(more=("ctr",))).log_level() == Rule().log_level()


def test_weights_of_what_decides_are_whole_and_its_level_is_that_of_any_mean() -> None:
    rule = rule_of(Compare(more=("ctr", "mrr"), decide=("auc", "ctr")))
    assert sum(rule.weights.values()) == pytest.approx(1.0)
    assert rule.weights == pytest.approx(
        {"log_loss": 0.0, "auc": 0.35 / 0.55, "gauc": 0.0, "calibration": 0.0, "ctr": 0.2 / 0.55}
    )
    assert (rule.certified, rule.decide) == (("auc", "ctr"), ("auc", "ctr"))
    assert rule.log_level() == pytest.approx(math.log(1.0 / rule.alpha))
    assert Rule.of({**{f: getattr(rule, f) for f in Rule.__slots__}, "more": ["ctr", "mrr"]}, Rule()) == rule
