"""All models: where to begin. Which of them needs somebody, and how far is each from what it replaced?"""

from __future__ import annotations

from typing import Any

from dashboards import house
from dashboards.grafana import (
    GREEN,
    RED,
    UP_IS_BAD,
    YELLOW,
    Column,
    Json,
    Query,
    Steps,
    link,
    override,
    place,
    query_variable,
    row,
    stat,
    state_timeline,
    table,
    timeseries,
)
from dashboards.overview import ALERTS, alerts
from dashboards.queries import SCOPE, labels_behind, mean, of

UID = "streameval-models"
BY = "model_name, model_version"
WINDOW = SCOPE + ', window="$window"'
SETUPS = ("paired", "split", "before_after")  # best first
SERVES = 'kind!="shadow"'
# of every model the version that went live last; what only scores in shadow is not judged here
LIVE = f"topk by (model_name) (1, max by ({BY}) ({of('deploy_timestamp_seconds', SCOPE, SERVES)}))"
NONE = f"0 * count({LIVE})"  # 0 of some models; of none at all it says nothing, not that all is well
VERDICT: Steps = ((None, GREEN), (1, YELLOW), (2, RED))
HARM: Steps = ((None, GREEN), (0, YELLOW), (0.01, RED))  # of a loss, where more is worse
LOSS_OF_RANK: Steps = ((None, RED), (-0.005, YELLOW), (0, GREEN))


def dashboard() -> Json:
    """All models."""
    found = house.dashboard(
        UID,
        "The live version of every model, worst first, with its differences to the version that it replaced.",
        [*house.variables(models=False), house.page_variable()],
        place(
            [
                (4, _numbers()),
                (10, [_models()]),
                (1, [row("Live versions against what they replaced")]),
                (9, _differences()),
                (7, [_verdicts()]),
                (1, [row("Details")]),
                (8, [alerts()]),
            ]
        ),
        house.links(UID, f"{house.PAGE}/overview?window=${{window}}", "Page: overview"),
        house.deploys(models=False),
    )
    windows = query_variable("window", "Window", f"label_values({of('window_impressions')}, window)", default="1h")
    found["templating"]["list"] = [
        windows if one["name"] == "window" else one for one in found["templating"]["list"]
    ]  # here of all models, and not hidden
    return found


def live(value: str) -> str:
    """Of a value by model and version, that of the versions that serve."""
    return f"({value}) and on ({BY}) {LIVE}"


def of_candidate(family: str, metric: str, worst: str, *more: str) -> str:
    """What a comparison says of the version that serves: by its best setup, the worst over baselines and workers."""
    parts = []
    for setup in SETUPS:
        found = of(family, SCOPE, f'metric="{metric}"', f'setup="{setup}"', *more)
        parts.append(f"{worst} by (model_name, candidate_version) ({found})")
    # a comparison calls the version a candidate; label_join of one label copies it
    best = f'label_join({" or ".join(parts)}, "model_version", "", "candidate_version")'
    return live(f"{worst} by ({BY}) ({best})")


def verdict() -> str:
    """2 worse, 1 undecided, 0 not worse: the gravest."""

    def holds(name: str) -> str:
        return of("comparison_verdict", SCOPE, 'metric="overall"', f'verdict="{name}"')

    graded = f"2 * {holds('worse')} or {holds('undecided')} or 0 * {holds('not_worse')}"
    return live(f'max by ({BY}) (label_join({graded}, "model_version", "", "candidate_version"))')


def _numbers() -> list[Json]:
    def one(title: str, what: str, expr: str, **more: Any) -> Json:
        return stat(title, what, [Query(expr)], **more)

    return [
        one(
            "Models worse",
            "Models whose live version was found worse than the one it replaced. The table below has them on top.",
            f"count(({verdict()}) == 2) or {NONE}",
            steps=UP_IS_BAD,
        ),
        one(
            "Models undecided",
            "Models whose live version is compared, and neither certified nor found worse yet.",
            f"count(({verdict()}) == 1) or {NONE}",
        ),
        one(
            "Models not reliable",
            "Models whose labels cannot be trusted at the moment; their verdicts are withheld.",
            f"count(min by (model_name) ({of('result_reliable', WINDOW)}) == 0) or {NONE}",
            steps=UP_IS_BAD,
        ),
        one(
            "Alerts firing",
            "Alerts of streameval that are firing; the table at the end lists them with links to their runbooks.",
            f'count({ALERTS[:-1]}, alertstate="firing"}}) or vector(0)',
            steps=UP_IS_BAD,
        ),
        one(
            "Models",
            "Models with a live version.",
            f"count(count by (model_name) ({LIVE}))",
        ),
        one(
            "Label delay",
            "Age of the newest final label beyond the attribution window, of the slowest worker.",
            labels_behind(),
            unit="s",
            decimals=0,
            steps=house.BEHIND,
        ),
    ]


def _models() -> Json:
    # ${__from} and ${__to} are moments, not "now-6h": a link that is passed on shows the same tomorrow
    time = "from=${__from}&to=${__to}"
    passed = "&".join(f"${{{name}:queryparam}}" for name in ("datasource", "job", "instance", "window", "page"))
    chosen = "var-model=${__data.fields.model}&" + passed
    links = [
        link(title, f"/d/{uid}?{chosen}&{time}")
        for uid, title in house.BOARDS.items()
        if uid not in (UID, "streameval-pipeline")
    ]
    counted = f"sum by ({BY}) ({of('window_clicks', WINDOW)})"
    made = table(
        "Live versions, worst first",
        "A line a model: the version that went live last, what the comparison with its predecessor says (Δ: candidate"
        " minus baseline; of log loss and calibration more is worse, of AUC less), and its numbers over $window."
        " Click a model for its dashboards at this time.",
        {"model_name": "model", "model_version": "live version"},
        [
            Column("verdict", verdict(), "none", 0, VERDICT, house.VERDICTS),
            Column("Δ log loss", of_candidate("comparison_difference", "log_loss", "max"), "percentunit", 1, HARM),
            Column("Δ AUC", of_candidate("comparison_difference", "auc", "min"), "none", 4, LOSS_OF_RANK),
            Column("Δ calibration", of_candidate("comparison_difference", "calibration", "max"), "percentunit", 1),
            Column("AUC", live(mean("auc", WINDOW, by=BY)), "none", 4),
            Column(
                "calibration",
                live(mean("calibration_ratio", WINDOW, by=BY, weight="window_clicks")),
                "none",
                3,
                house.CALIBRATION,
            ),
            Column("log loss", live(mean("log_loss", WINDOW, by=BY)), "none", 4),
            Column("clicks", live(counted), "short", 0),
            Column(
                "reliable",
                live(f"min by ({BY}) ({of('result_reliable', WINDOW)})"),
                "none",
                mappings=house.BELIEVABLE,
            ),
            Column("live since", f"{LIVE} * 1000", "dateTimeFromNow", least=130),
        ],
        sort="verdict",
        overrides=[override("model", {"id": "links", "value": links})],
    )
    made["options"]["sortBy"].append({"displayName": "Δ log loss", "desc": True})
    return made


def _differences() -> list[Json]:
    def one(title: str, what: str, metric: str, worst: str, **more: Any) -> Json:
        return timeseries(
            title,
            f"{what} Of each model's live version minus the one it replaced; the comparison's own estimate.",
            [Query(of_candidate("comparison_difference", metric, worst), "{{model_name}} {{model_version}}")],
            **{"unit": "none", "decimals": 4, **more},
        )

    return [
        one("Δ log loss", "Relative; above zero is worse.", "log_loss", "max", unit="percentunit", decimals=1),
        one("Δ AUC", "Below zero is worse.", "auc", "min"),
        one(
            "Δ calibration error",
            "Calibration error increase, relative; above zero is worse.",
            "calibration",
            "max",
            unit="percentunit",
            decimals=1,
        ),
    ]


def _verdicts() -> Json:
    return state_timeline(
        "Verdicts",
        "The verdict on each model's live version over time. It is anytime-valid: looking often adds no false alarms.",
        Query(verdict(), "{{model_name}} {{model_version}}"),
        house.VERDICTS,
    )
