"""Model health: is the serving model healthy, and are its labels reliable?"""

from __future__ import annotations

from typing import Any

from dashboards import house
from dashboards.grafana import (
    BLUE,
    GREEN,
    GREY,
    ORANGE,
    RED,
    UP_IS_BAD,
    YELLOW,
    Column,
    Json,
    Query,
    band,
    bands,
    dashes,
    link,
    override,
    place,
    row,
    stat,
    table,
    timeseries,
    values,
)
from dashboards.queries import MODEL, VERSIONS, WINDOW, error, labels_behind, mean, newest, of, rate, verdict

UID = "streameval-overview"
CANDIDATE = f'{MODEL}, candidate_version=~"$version", metric="overall"'
CLICKS = "window_clicks"
WHICH = "Of the version that went live last. ± is two user-clustered standard errors."
ALERTS = 'ALERTS{job=~"$job", alertname=~"Streameval.*"}'


def dashboard() -> Json:
    """Model health."""
    return house.dashboard(
        UID,
        "Ranking, calibration and verdicts of one model by version, from labels that are final.",
        [*house.variables(unused=["slice"]), house.page_variable()],
        place(
            [
                (4, _trust()),
                (4, _newest()),
                (1, [row("All versions of $model, window $window")]),
                (9, _ranking()),
                (8, _losses()),
                (8, _rates()),
                (1, [row("$version: within two standard errors", repeat="version")]),
                (7, _bands()),
                (1, [row("Details")]),
                (8, [_versions()]),
                (8, [alerts()]),
            ]
        ),
        house.links(UID, f"{house.PAGE}/overview?window=${{window}}", "Page: overview"),
        house.deploys(),
    )


def _trust() -> list[Json]:
    found = verdict("candidate_version", CANDIDATE)
    return [
        stat(
            "Alerts firing",
            "Alerts on this model or on the pipeline that are firing; the table at the end lists those of all models, with"
            " links to their runbooks.",
            [Query(f'count({ALERTS[:-1]}, alertstate="firing", model_name=~"$model|"}}) or vector(0)')],
            steps=UP_IS_BAD,
        ),
        stat(
            "Verdict",
            "On the version that went live last, over all metrics, against what it replaced; the worst of its comparisons. It"
            " is anytime-valid: checking it often adds no false alarms. A before/after comparison can be fooled by drift.",
            [Query(newest(f'label_join({found}, "model_version", "", "candidate_version")'))],
            mappings=house.VERDICTS,
            steps=((None, GREEN), (1, YELLOW), (2, RED)),
            links=[link("All comparisons", f"{house.PAGE}/comparisons")],
            empty="no deploy",
        ),
        stat(
            "Labels reliable",
            "NO: too few clicks match their impressions, or scores could have known their label. Then no number below"
            " can be trusted, and verdicts are withheld. See the Pipeline dashboard.",
            [Query(f"min({of('result_reliable', WINDOW)})")],
            mappings=house.BELIEVABLE,
            steps=((None, RED), (1, GREEN)),
        ),
        stat(
            "Label delay",
            "Age of the newest final label beyond the attribution window. Every number here is that much older than"
            " necessary.",
            [Query(labels_behind())],
            unit="s",
            decimals=0,
            steps=house.BEHIND,
        ),
        stat(
            "Clicks in the window",
            "Clicks with final labels of the version that has the most. Below a thousand, differences are mostly noise.",
            [Query(f"max(sum by (model_version) ({of('window_clicks', WINDOW)}))")],
            decimals=0,
            steps=((None, RED), (100, YELLOW), (1000, GREEN)),
        ),
        stat(
            "Impressions",
            "Impressions per second whose label became final, of the version that has the most.",
            [Query(f"max(sum by (model_version) ({rate('impressions_total', VERSIONS)}))")],
            unit="eps",
            decimals=1,
        ),
    ]


def _newest() -> list[Json]:
    def one(title: str, what: str, family: str, metric: str, weight: str = "window_impressions", **more: Any) -> Json:
        return stat(
            title,
            f"{what} {WHICH}",
            [
                Query(newest(mean(family, weight=weight)), "{{model_version}}"),
                Query(newest(f"2 * {error(family, weight=weight)}"), "±"),
            ],
            named=True,
            # the error has no thresholds of its own
            overrides=[override("±", {"id": "color", "value": {"mode": "fixed", "fixedColor": "text"}})],
            links=[house.history(metric)],
            **{"decimals": 4, "unit": "none", **more},
        )

    return [
        one("AUC", "Area under the ROC curve over all samples.", "auc", "auc", steps=((None, RED), (0.5, BLUE))),
        one("GAUC", "AUC within each user, averaged.", "gauc", "gauc", steps=((None, RED), (0.5, BLUE))),
        one(
            "Normalised entropy",
            "Log loss relative to predicting the base rate; at 1 or above a constant does as well or better.",
            "normalized_entropy",
            "rig",
            steps=house.ENTROPY,
        ),
        one(
            "Calibration",
            "Predicted clicks over clicks; the objective is 0.8 to 1.25.",
            "calibration_ratio",
            "calibration",
            CLICKS,
            steps=house.CALIBRATION,
            decimals=3,
        ),
        one("Log loss", "Mean log loss, in nats. Compare versions only on the same traffic.", "log_loss", "log_loss"),
        one("CTR", "Clicks over impressions.", "ctr_ratio", "ctr", unit="percentunit", decimals=2),
    ]


def _line(
    title: str, description: str, family: str, metric: str, weight: str = "window_impressions", **more: Any
) -> Json:
    return timeseries(
        title,
        f"{description} By version, over the window $window.",
        [Query(mean(family, weight=weight), "{{model_version}}")],
        links=[house.history(metric)],
        **{"decimals": 4, "unit": "none", **more},
    )


def _ranking() -> list[Json]:
    return [
        _line("AUC", "Does the model rank? 0.5 is chance.", "auc", "auc"),
        _line("GAUC", "Does it rank within users? Closer than AUC to what a single user sees.", "gauc", "gauc"),
    ]


def _losses() -> list[Json]:
    return [
        _line(
            "Normalised entropy",
            "Log loss relative to predicting the base rate; above the line a constant would do better.",
            "normalized_entropy",
            "rig",
            steps=((None, "transparent"), (1, RED)),
        ),
        _line(
            "Calibration",
            "Predicted clicks over clicks; red is outside the objective.",
            "calibration_ratio",
            "calibration",
            CLICKS,
            steps=house.CALIBRATION_AREA,
            shade="area",
            decimals=2,
            least=0.7,
            most=1.35,
        ),
        _line("Log loss", "Mean log loss, in nats; it also moves with the click rate.", "log_loss", "log_loss"),
    ]


def _rates() -> list[Json]:
    return [
        timeseries(
            "pClick and CTR",
            "Mean pClick by version, and what happened (dashed): when they diverge, calibration is drifting.",
            [
                Query(mean("predicted_ctr_ratio"), "{{model_version}}"),
                Query(mean("ctr_ratio"), "{{model_version}} clicked"),
            ],
            unit="percentunit",
            decimals=2,
            overrides=[dashes("B")],
        ),
        timeseries(
            "Impressions by version",
            "Evaluated impressions per second. A shadow version scores the traffic of the serving one.",
            [Query(f"sum by (model_version) ({rate('impressions_total', VERSIONS)})", "{{model_version}}")],
            unit="eps",
            least=0,
        ),
        timeseries(
            "Labels final",
            "Share of the impressions in the window whose label is final. The others may still be clicked.",
            [Query(f"min by (model_version) ({of('window_matured_ratio', WINDOW)})", "{{model_version}}")],
            unit="percentunit",
            least=0,
            most=1,
        ),
    ]


def _bands() -> list[Json]:
    def one(title: str, family: str, weight: str = "window_impressions", **more: Any) -> Json:
        return timeseries(
            f"{title} ± 2σ",
            f"{title} with two user-clustered standard errors either way. Bands that do not overlap are worth a look;"
            " for a verdict see the comparisons.",
            bands(mean(family, weight=weight), error(family, weight=weight)),
            overrides=band(),
            **{"decimals": 4, "unit": "none", **more},
        )

    return [
        one("AUC", "auc"),
        one("GAUC", "gauc"),
        one("Normalised entropy", "normalized_entropy", steps=((None, "transparent"), (1, RED))),
        one("Calibration", "calibration_ratio", CLICKS, steps=house.CALIBRATION_AREA, shade="area", decimals=2),
    ]


def _versions() -> Json:
    by_version = "max by (model_version)"
    page = f"{house.PAGE}/calibration?model=${{model}}&a=${{__data.fields.version}}&window=${{window}}"
    return table(
        "Versions",
        "The versions of the model side by side, over the window.",
        {"model_version": "version"},
        [
            Column(
                "live since",
                f"{by_version} ({of('deploy_timestamp_seconds', VERSIONS)}) * 1000",
                "dateTimeFromNow",
                least=130,
            ),
            Column("AUC", mean("auc"), "none", 4),
            Column("± 2σ", f"2 * {error('auc')}", "none", 4),
            Column("GAUC", mean("gauc"), "none", 4),
            Column("GAUC users", f"sum by (model_version) ({of('gauc_users', WINDOW)})", "short", 0, least=105),
            Column("norm. entropy", mean("normalized_entropy"), "none", 4, house.ENTROPY, least=115),
            Column("calibration", mean("calibration_ratio", weight=CLICKS), "none", 3, house.CALIBRATION, least=95),
            Column("log loss", mean("log_loss"), "none", 4),
            Column("pClick", mean("predicted_ctr_ratio"), "percentunit", 2),
            Column("CTR", mean("ctr_ratio"), "percentunit", 2),
            Column("impressions", f"sum by (model_version) ({of('window_impressions', WINDOW)})", "short", least=105),
            Column("clicks", f"sum by (model_version) ({of('window_clicks', WINDOW)})", "short"),
            Column(
                "reliable",
                f"min by (model_version) ({of('result_reliable', WINDOW)})",
                "none",
                mappings=house.BELIEVABLE,
            ),
        ],
        sort="live since",
        overrides=[
            override(
                "version",
                {
                    "id": "links",
                    "value": [link("Calibration", page), house.history("auc", "${__data.fields.version}")],
                },
            )
        ],
    )


def alerts() -> Json:
    """All that fire or will, whatever is chosen."""
    runbook = link("Runbook", f"{house.RUNBOOKS}/${{__data.fields.alert}}.md")
    labels = "alertname, alertstate, about, model_name, model_version, instance"
    grades = ((3, "critical"), (2, "warning"), (1, "info"))
    graded = (f'{n} * max by ({labels}) ({ALERTS[:-1]}, severity="{name}"}})' for n, name in grades)
    severity = f"{' or '.join(graded)} or 0 * max by ({labels}) ({ALERTS})"
    made = table(
        "Alerts",
        "Firing and pending alerts of the whole of streameval. Click a name to open its runbook.",
        {
            "alertname": "alert",
            "alertstate": "state",
            "about": "about",
            "model_name": "model",
            "model_version": "version",
            "instance": "instance",
        },
        [
            Column(
                "severity",
                severity,
                "none",
                mappings=values(critical=(3, RED), warning=(2, ORANGE), info=(1, BLUE), other=(0, GREY)),
            )
        ],
        sort="severity",
        overrides=[
            override("alert", {"id": "links", "value": [runbook]}, {"id": "custom.width", "value": 330}),
        ],
    )
    made["options"]["sortBy"].append({"displayName": "state", "desc": False})
    organized = made["transformations"][1]["options"]
    name, *others, grade = organized["indexByName"]
    organized["indexByName"] = {title: i for i, title in enumerate((name, grade, *others))}
    return made
