"""The shapes hold answers to their word: every member there, none that is unknown, no number in place of another kind."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from streameval.compare.reading.as_json import members
from streameval.compare.reading.reading import Deploy, MetricReading
from streameval.metrics.registry import METRICS, rows
from streameval.server.api.schemas import auctions, comparisons, results, status, strata, users
from streameval.server.api.schemas.shape import Problem, Shape

MODULES = (auctions, comparisons, results, status, strata, users)
SHAPES = sorted(
    {one for module in MODULES for one in vars(module).values() if isinstance(one, type) and issubclass(one, Shape)},
    key=lambda one: one.__name__,
)


def row(client) -> dict[str, Any]:
    return client.get("/api/v1/results?window=all&slice=none").json()["results"][0]


@pytest.mark.parametrize("shape", SHAPES, ids=lambda one: one.__name__)
def test_a_member_that_is_not_there_is_an_error_unless_it_may_be_left_out(shape: type[Shape]) -> None:
    with pytest.raises(ValidationError) as error:
        shape.model_validate({"no_such_member": "x"})
    said = {(problem["type"], problem["loc"][0]) for problem in error.value.errors()}
    required = {info.alias or name for name, info in shape.model_fields.items() if info.is_required()}
    assert {name for kind, name in said if kind == "missing"} == required
    assert any(name == "no_such_member" for _, name in said), "not even where metrics by K may follow"


def test_a_row_has_every_metric_and_beside_it_its_standard_error() -> None:
    fields = results.Row.model_fields
    for metric in METRICS:
        assert metric.name in fields
        assert (f"{metric.name}_stderr" in fields) == (metric.influence is not None), metric.name


def test_a_row_may_have_further_metrics_but_nothing_else(client) -> None:
    known = row(client)
    results.FullRow.model_validate({**known, "ndcg_17": 0.5, "ndcg_17_stderr": None})
    for name, value in (("ndcg_17", "0.5"), ("auc", "0.5"), ("impressions", 1.5), ("reasons", None)):
        with pytest.raises(ValidationError) as error:
            results.FullRow.model_validate({**known, name: value})
        assert {problem["loc"][0] for problem in error.value.errors()} == {name}


def test_a_row_of_the_stream_may_lack_metrics_of_further_fields_and_no_others() -> None:
    may_lack = {name for name, info in results.LiveRow.model_fields.items() if not info.is_required()}
    further = {metric.name for metric in rows() if metric.overall}
    assert further <= may_lack
    assert not may_lack & {metric.name for metric in rows() if not metric.overall}


def test_a_shape_made_from_a_dataclass_has_its_members() -> None:
    assert set(comparisons.Reading.model_fields) == set(members(MetricReading))
    assert set(comparisons.Deploy.model_fields) == set(members(Deploy))


def test_a_problem_may_have_members_of_its_own() -> None:
    given = {
        "type": "about:blank",
        "title": "Not Found",
        "status": 404,
        "detail": "no",
        "instance": "/",
        "known": ["a"],
    }
    assert Problem.model_validate(given).model_dump(exclude_none=True) == given
    with pytest.raises(ValidationError):
        Problem.model_validate({**given, "status": "404"})
