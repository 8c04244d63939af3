"""Calibration: do predicted clicks match clicks, over the whole range of scores, and how are scores distributed?"""

from __future__ import annotations

from dashboards import house
from dashboards.grafana import (
    BLUE,
    GREEN,
    RED,
    YELLOW,
    Column,
    Json,
    Query,
    band,
    bands,
    barchart,
    dashes,
    heatmap,
    override,
    place,
    row,
    stat,
    table,
    timeseries,
)
from dashboards.queries import RANGE, SCOPE, VERSIONS, error, mean, newest, of, rate

UID = "streameval-calibration"
CLICKS = "window_clicks"
OVER_RANGE = "[$__range]"
BURN = 'model_version:streameval_calibration_out:ratio{over}{{job=~"$job", model_name="$model", model_version=~"$version"}}'


def dashboard() -> Json:
    """Calibration."""
    return house.dashboard(
        UID,
        "Predicted clicks against clicks: overall, over time, and by pClick bucket.",
        [*house.variables(unused=["slice"]), house.page_variable()],
        place(
            [
                (4, _header()),
                (1, [row("All versions of $model")]),
                (9, _overall()),
                (8, _objective()),
                (1, [row("$version by pClick", repeat="version")]),
                (9, _reliability()),
                (9, _buckets()),
                (12, [_table()]),
            ]
        ),
        house.links(UID, f"{house.PAGE}/calibration?model=${{model}}&window=${{window}}", "Page: calibration"),
        house.deploys(),
    )


def per_bucket(kind: str, span: str = RANGE, *, edges: bool = True) -> str:
    """Growth of a bucket's counter; with `edges`, labelled by them."""
    grown = f"increase({of(f'bucket_{kind}_total', VERSIONS)}{span})"
    if not edges:
        return f"sum by (bucket) ({grown})"
    info = of("bucket_info", SCOPE)
    return f"sum by (bucket, lower, upper) ({grown} * on (job, instance, bucket) group_left (lower, upper) {info})"


def named(expr: str) -> str:
    """With the edges in one label, as in "0.01 – 0.02"."""
    return f'label_join({expr}, "pclick", " – ", "lower", "upper")'


def _header() -> list[Json]:
    clicks = "window_clicks"
    return [
        stat(
            "Calibration",
            "Predicted clicks over clicks of the version that went live last, ± two standard errors.",
            [
                Query(newest(mean("calibration_ratio", weight=clicks)), "{{model_version}}"),
                Query(newest(f"2 * {error('calibration_ratio', weight=clicks)}"), "±"),
            ],
            unit="none",
            decimals=3,
            named=True,
            steps=house.CALIBRATION,
            overrides=[override("±", {"id": "color", "value": {"mode": "fixed", "fixedColor": "text"}})],
            links=[house.history("calibration")],
        ),
        stat(
            "Expected calibration error",
            "Mean distance between mean pClick and click rate over the buckets, weighted by impressions; the version that"
            " went live last. It is large where overall calibration is 1 only by cancellation.",
            [Query(newest(mean("expected_calibration_error")), "{{model_version}}")],
            unit="percentunit",
            decimals=2,
            named=True,
            steps=((None, GREEN), (0.02, YELLOW), (0.05, RED)),
        ),
        stat(
            "Outside, last hour",
            "Share of the last hour's five-minute windows outside 0.8 to 1.25, worst version. The budget is 5%; above 72%"
            " the fast-burn alert fires.",
            [Query(f"max({BURN.format(over='1h')})")],
            unit="percentunit",
            decimals=0,
            steps=house.SHARE_OUT,
        ),
        stat(
            "Outside, last 6 hours",
            "The same over six hours; above 30% the slow-burn alert fires.",
            [Query(f"max({BURN.format(over='6h')})")],
            unit="percentunit",
            decimals=0,
            steps=((None, GREEN), (0.05, YELLOW), (0.3, RED)),
        ),
        stat(
            "Mean pClick",
            "What the version that went live last predicts.",
            [Query(newest(mean("predicted_ctr_ratio")), "{{model_version}}")],
            unit="percentunit",
            decimals=2,
            named=True,
        ),
        stat(
            "CTR",
            "The click rate of the impressions that it scores.",
            [Query(newest(mean("ctr_ratio")), "{{model_version}}")],
            unit="percentunit",
            decimals=2,
            named=True,
        ),
    ]


def _overall() -> list[Json]:
    return [
        timeseries(
            "Calibration",
            "Predicted clicks over clicks by version, over the window $window; red is outside the objective.",
            [Query(mean("calibration_ratio", weight=CLICKS), "{{model_version}}")],
            unit="none",
            decimals=2,
            steps=house.CALIBRATION_AREA,
            shade="area",
            least=0.7,
            most=1.35,
            links=[house.history("calibration")],
        ),
        timeseries(
            "pClick and CTR",
            "Both sides of the ratio, mean pClick and what happened (dashed): has the model changed, or have the users?",
            [
                Query(mean("predicted_ctr_ratio"), "{{model_version}}"),
                Query(mean("ctr_ratio"), "{{model_version}} clicked"),
            ],
            unit="percentunit",
            decimals=2,
            overrides=[dashes("B")],
        ),
    ]


def _objective() -> list[Json]:
    return [
        timeseries(
            "Expected calibration error",
            "Mean distance between mean pClick and click rate over the buckets, weighted by impressions.",
            [Query(mean("expected_calibration_error"), "{{model_version}}")],
            unit="percentunit",
            decimals=2,
            least=0,
            links=[house.history("ece")],
        ),
        timeseries(
            "Share of windows outside the objective",
            "Of the last hour's five-minute windows with 500 clicks and reliable labels, those outside 0.8 to 1.25."
            " Lines: the budget, slow burn and fast burn.",
            [Query(f"max by (model_version) ({BURN.format(over='1h')})", "{{model_version}}")],
            unit="percentunit",
            steps=((None, "transparent"), *house.SHARE_OUT[1:]),
            least=0,
            most=1,
        ),
        timeseries(
            "Squared error",
            "Mean squared distance of pClick and click (Brier score), all traffic.",
            [
                Query(
                    f"sum by (model_version) ({rate('squared_error_total', VERSIONS)})"
                    f" / sum by (model_version) ({rate('impressions_total', VERSIONS)})",
                    "{{model_version}}",
                )
            ],
            unit="none",
            decimals=4,
        ),
    ]


def _reliability() -> list[Json]:
    predicted, happened = (
        named(f"{per_bucket(kind, OVER_RANGE)} / ({per_bucket('impressions', OVER_RANGE)} > 0)")
        for kind in ("predicted_clicks", "clicks")
    )
    return [
        barchart(
            "Reliability of $version",
            "Mean pClick and click rate of each pClick bucket over the dashboard's time range: the bars of a pair are"
            " equal where the scores are calibrated.",
            ("pclick", "pClick"),
            [Column("mean pClick", predicted), Column("click rate", happened)],
            unit="percentunit",
            sort="bucket",
            hidden=["lower", "upper"],
            overrides=[
                override("mean pClick", {"id": "color", "value": {"mode": "fixed", "fixedColor": BLUE}}),
                override("click rate", {"id": "color", "value": {"mode": "fixed", "fixedColor": "orange"}}),
            ],
        ),
        timeseries(
            "Calibration of $version",
            "Predicted clicks over clicks, with two standard errors either way, over the window $window.",
            bands(mean("calibration_ratio", weight=CLICKS), error("calibration_ratio", weight=CLICKS)),
            unit="none",
            decimals=2,
            steps=house.CALIBRATION_AREA,
            shade="area",
            overrides=band(),
        ),
    ]


def _buckets() -> list[Json]:
    ratio = f"{per_bucket('predicted_clicks')} / ({per_bucket('clicks')} >= 5)"
    seen = per_bucket("impressions")
    return [
        heatmap(
            "pClick of $version",
            "Distribution of the scores: impressions by pClick bucket over time. A deploy that shifts all of it has"
            " changed the scores, whatever AUC says.",
            Query(seen, "{{lower}}"),
            unit="short",
            axis="impressions",
            of_rows="percentunit",
            lower_edges=True,
        ),
        timeseries(
            "Calibration of $version by pClick",
            "Predicted clicks over clicks of each bucket; one with fewer than five clicks in a step is absent there.",
            [Query(ratio, "{{lower}} – {{upper}}")],
            unit="none",
            decimals=2,
            steps=house.CALIBRATION_AREA,
            shade="area",
            least=0.5,
            most=1.6,
        ),
        timeseries(
            "Share of impressions of $version by pClick",
            "The same as the heat map, as shares.",
            [
                Query(
                    f"{seen} / ignoring (bucket, lower, upper) group_left () sum({per_bucket('impressions', edges=False)})",
                    "{{lower}} – {{upper}}",
                )
            ],
            unit="percentunit",
            decimals=1,
            stacked=True,
            least=0,
            most=1,
        ),
    ]


def _table() -> Json:
    impressions, clicks, predicted = (
        per_bucket(kind, OVER_RANGE) for kind in ("impressions", "clicks", "predicted_clicks")
    )
    return table(
        "Buckets of $version",
        "Over the dashboard's time range. z is how many binomial standard deviations the clicks are from the prediction,"
        " where at least five were predicted: beyond 4 the bucket is miscalibrated, not unlucky. Users who click in"
        " clusters make it larger.",
        {"bucket": "bucket", "lower": "from", "upper": "to"},
        [
            Column("impressions", impressions, "short", 0),
            Column("clicks", clicks, "short", 0),
            Column("predicted clicks", predicted, "short", 0),
            Column("mean pClick", f"{predicted} / ({impressions} > 0)", "percentunit", 2),
            Column("click rate", f"{clicks} / ({impressions} > 0)", "percentunit", 2),
            Column("ratio", f"{predicted} / ({clicks} > 0)", "none", 2, house.CALIBRATION),
            Column(
                "z",
                f"({clicks} - {predicted}) / sqrt(({predicted} >= 5) * (1 - {predicted} / {impressions}))",
                "none",
                1,
                ((None, RED), (-4, GREEN), (4, RED)),
            ),
        ],
        sort="bucket",
        descending=False,
    )
