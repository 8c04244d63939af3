"""Lists and exposure: is the top of every list right, what would have been shown and sold, and what are clicks worth?"""

from __future__ import annotations

from typing import Any

from dashboards import house
from dashboards.grafana import (
    GREEN,
    RED,
    YELLOW,
    Column,
    Json,
    Query,
    Steps,
    override,
    place,
    query_variable,
    row,
    stat,
    table,
    timeseries,
)
from dashboards.queries import MODEL, WINDOW, error, mean, newest, of

UID = "streameval-lists"
REQUESTS = "ranking_requests"
IMPRESSIONS = "window_impressions"
POSITIVES = "objective_window_impressions"
MEAN_WEIGHT: Steps = ((None, RED), (0.95, YELLOW), (0.98, GREEN), (1.02, YELLOW), (1.05, RED))
SAMPLES: Steps = ((None, RED), (200, YELLOW), (1000, GREEN))
REPLAYED: Steps = ((None, RED), (0.5, YELLOW), (0.8, GREEN))
ABSENT = "not in the log, or not configured"
_PLAIN = {"id": "color", "value": {"mode": "fixed", "fixedColor": "text"}}
_OWN = "on (job, instance, model_name, model_version, source, window)"


def dashboard() -> Json:
    """Lists and exposure."""
    return house.dashboard(
        UID,
        "Ranked lists, yields, estimates from propensities, objectives of their own, and replayed auctions.",
        [*house.variables(unused=["slice"]), _cut(), house.page_variable()],
        place(
            [
                (4, _header()),
                (1, [row("Ranked lists")]),
                (9, _ranking()),
                (1, [row("Where decisions are made, and what they yield")]),
                (8, _yields()),
                (8, _values()),
                (1, [row("As if everything had been shown equally often")]),
                (9, _exposure()),
                (8, _policies()),
                (1, [row("By the labels of objectives")]),
                (8, _objectives()),
                (1, [row("Replayed auctions")]),
                (9, _auctions()),
                (1, [row("In tables")]),
                (9, [_ranking_table(), _exposure_table()]),
                (9, [_objective_table(), _auction_table()]),
            ]
        ),
        house.links(UID, f"{house.PAGE}/metrics?model=${{model}}&window=${{window}}", "Page: metrics"),
        house.deploys(),
    )


def spread(family: str, *more: str, by: str = "model_version", weight: str = IMPRESSIONS) -> str:
    """`queries.mean` of a gauge with labels of its own, which its weight does not have."""
    value, n = of(family, WINDOW, *more), of(weight, WINDOW)
    weighted = f"sum by ({by}) ({value} * {_OWN} group_left () {n})"
    return f"{weighted} / sum by ({by}) (0 * {value} + {_OWN} group_left () {n})"


def spread_error(family: str, *more: str, by: str = "model_version", weight: str = IMPRESSIONS) -> str:
    """One standard error of `spread`."""
    value, n = of(f"{family}_stderr", WINDOW, *more), of(weight, WINDOW)
    squares = f"sum by ({by}) (({value} * {_OWN} group_left () {n}) ^ 2)"
    return f"sqrt({squares}) / sum by ({by}) (0 * {value} + {_OWN} group_left () {n})"


def ranking(metric: str, k: str = "$k", by: str = "model_version") -> str:
    """Ranking metrics by request, cut at k."""
    return spread("ranking", f'metric=~"{metric}"', f'k="{k}"', 'average="request"', by=by, weight=REQUESTS)


def exposure(metric: str, estimator: str = ".+", by: str = "model_version, estimator") -> str:
    """Estimates from propensities."""
    return spread("exposure", f'metric=~"{metric}"', f'estimator=~"{estimator}"', by=by)


def by_objective(metric: str, by: str = "model_version, objective") -> str:
    """A metric by the labels of objectives."""
    value, n = of("objective_metric", WINDOW, f'metric="{metric}"'), of(POSITIVES, WINDOW)
    at = "on (job, instance, model_name, model_version, source, window, objective)"
    return f"sum by ({by}) ({value} * {at} {n}) / sum by ({by}) ({n} and {at} {value})"


def _cut() -> Json:
    cuts = f"label_values({of('ranking', MODEL)}, k)"
    return query_variable("k", "K", cuts, default="10", sort=3)


def _pair(value: str, stderr: str) -> list[Query]:
    return [Query(newest(value), "{{model_version}}"), Query(newest(f"2 * ({stderr})"), "±")]


def _header() -> list[Json]:
    grey = [override("±", _PLAIN)]
    ndcg = ('metric="ndcg"', 'k="$k"', 'average="request"')
    snips = ('metric="log_loss"', 'estimator="snips"')
    return [
        stat(
            "Partial AUC",
            "AUC over the false positive rates where decisions are made (metrics.operating_range), standardised: 0.5 is"
            " chance. Of the version that went live last, ± two standard errors.",
            _pair(mean("partial_auc"), error("partial_auc")),
            unit="none", decimals=4, named=True, overrides=grey, links=[house.history("pauc")],
        ),
        stat(
            "NDCG@$k",
            "Closed requests ranked by the version's scores, ties at their expectation, cut after $k; ± two standard errors.",
            _pair(ranking("ndcg"), spread_error("ranking", *ndcg, weight=REQUESTS)),
            unit="none", decimals=4, named=True, overrides=grey,
        ),
        stat(
            "Click yield",
            "Clicks per request that the version served, ± two standard errors.",
            _pair(spread("click_yield", 'block="all"'), spread_error("click_yield", 'block="all"')),
            unit="none", decimals=4, named=True, overrides=grey, links=[house.history("click_yield")],
        ),
        stat(
            "Log loss, SNIPS",
            "Log loss as if everything had been shown equally often, in nats, ± two standard errors. Believe it only with the"
            " effective samples and the mean weight beside it.",
            _pair(exposure("log_loss", "snips", "model_version"), spread_error("exposure", *snips)),
            unit="none", decimals=4, named=True, overrides=grey, links=[house.history("log_loss_snips")],
        ),
        stat(
            "Effective samples",
            "How many equal weights would have the variance of these, the worst version, added up over workers. Below 200"
            " single impressions decide.",
            [Query(f"min({_effective()})")],
            unit="short", decimals=0, steps=SAMPLES,
        ),
        stat(
            "Policy mean weight",
            "Mean weight of each version's own policy. It is 1 if the logged propensities are right, whatever the policy.",
            [Query(mean("propensity_mean_weight"), "{{model_version}}")],
            unit="none", decimals=3, named=True, steps=MEAN_WEIGHT, links=[house.history("policy_mean_weight")],
        ),
    ]  # fmt: skip


def _lines(title: str, about: str, queries: list[Query], *metrics: str, **more: Any) -> Json:
    """Lines of numbers that are no shares, with links to the history of these metrics."""
    links = [house.history(metric) for metric in metrics]
    given = {"unit": "none", "decimals": 3, "links": links, "empty": ABSENT, **more}
    return timeseries(title, about, queries, **given)


def _effective() -> str:
    return f"sum by (model_version) ({of('exposure_effective_samples', WINDOW)})"


def _ranking() -> list[Json]:
    return [
        _lines(
            "NDCG@$k by version",
            "By the version's scores, and for what served as it was shown.",
            [
                Query(ranking("ndcg"), "{{model_version}}"),
                Query(ranking("shown_ndcg"), "{{model_version}} as shown"),
            ],
        ),
        _lines(
            "MRR and MAP",
            "Of whole lists: how far up the first click stands, and the precision averaged over all clicks.",
            [Query(ranking("mrr|map", "", "model_version, metric"), "{{model_version}} {{metric}}")],
            "mrr",
        ),
        _lines(
            "Cut after $k",
            "Precision divides by K; recall by all clicks; hit rate counts lists with a click in the first K,"
            " click hit rate the clicks.",
            [
                Query(
                    ranking("precision|recall|hit_rate|click_hit_rate", by="model_version, metric"),
                    "{{model_version}} {{metric}}",
                )
            ],
        ),
    ]


def _yields() -> list[Json]:
    return [
        _lines(
            "Partial AUC by version",
            "Over metrics.operating_range, standardised: 0.5 is chance.",
            [Query(mean("partial_auc"), "{{model_version}}")],
            "pauc",
        ),
        _lines(
            "Click yield by version",
            "Clicks per request that the version served, in all and in the mainline.",
            [Query(spread("click_yield", by="model_version, block"), "{{model_version}} {{block}}")],
            "click_yield",
        ),
    ]


def _values() -> list[Json]:
    return [
        timeseries(
            f"Value per {per}",
            f"What clicks are worth, in the unit of their value, per {per} that the version served.",
            [Query(spread("value", f'per="{per}"'), "{{model_version}}")],
            links=[house.history(f"value_per_{per}")],
            empty=ABSENT,
        )
        for per in ("impression", "request", "user")
    ]


def _exposure() -> list[Json]:
    return [
        _lines(
            "Log loss under uniform exposure",
            "In nats, weighted by inverse propensity, clipped and unclipped: where the two differ, few impressions decide.",
            [Query(exposure("log_loss"), "{{model_version}} {{estimator}}")],
            "log_loss_snips",
            "log_loss_snips_clipped",
        ),
        _lines(
            "Log loss by strata of propensity",
            "Put together by share (the overall mean), plain (strata alike), and as under uniform exposure.",
            [Query(_stratified("log_loss"), "{{model_version}} {{weighting}}")],
        ),
        _lines(
            "AUC by strata of propensity",
            "The same for AUC: clicks of a stratum against all non-clicks.",
            [Query(_stratified("auc"), "{{model_version}} {{weighting}}")],
        ),
    ]


def _stratified(metric: str) -> str:
    return spread("stratified", f'metric="{metric}"', by="model_version, weighting")


def _policies() -> list[Json]:
    return [
        _lines(
            "Clicks under the version's own policy",
            "Clicks per impression if the version had chosen what to show, clipped and unclipped; absent while the"
            " propensities are inconsistent.",
            [
                Query(
                    spread("policy", 'outcome="click"', by="model_version, estimator"),
                    "{{model_version}} {{estimator}}",
                )
            ],
            "policy_snips",
        ),
        _lines(
            "Value under the version's own policy",
            "The same for the value of clicks.",
            [
                Query(
                    spread("policy", 'outcome="value"', by="model_version, estimator"),
                    "{{model_version}} {{estimator}}",
                )
            ],
            "policy_value_snips",
        ),
        _lines(
            "Policy mean weight by version",
            "1 if the logged propensities are right.",
            [Query(mean("propensity_mean_weight"), "{{model_version}}")],
            "policy_mean_weight",
            steps=((None, RED), (0.95, "transparent"), (1.05, RED)),
            shade="area",
            least=0.9,
            most=1.1,
        ),
        timeseries(
            "Effective samples by version",
            "Of the inverse propensities, added up over workers. Below 200 there is no verdict on log_loss_snips.",
            [Query(_effective(), "{{model_version}}")],
            unit="short",
            decimals=0,
            least=0,
            links=[house.history("exposure_ess")],
        ),
    ]


def _objectives() -> list[Json]:
    return [
        _lines(
            title,
            f"{about}, for the label that a click is worth enough.",
            [Query(by_objective(metric), "{{model_version}} {{objective}}")],
        )
        for metric, title, about in (
            ("auc", "AUC by objective", "Area under the ROC curve"),
            ("gauc", "GAUC by objective", "AUC within users, averaged"),
            ("calibration", "Calibration by objective", "Predicted clicks over positive clicks"),
        )
    ]


def _auctions() -> list[Json]:
    replayed = spread("auction_replayed_ratio", by="model_version, point")
    return [
        _lines(
            "Click yield by operating point",
            "Clicks per request that each version would have got. At one reserve they do not compare: who over-predicts"
            " sells more places; the page has them at matched mainline ads.",
            [
                Query(
                    spread("auction_click_yield", 'block="all"', by="model_version, point"),
                    "{{model_version}} at {{point}}",
                )
            ],
            links=[_auctions_page()],
        ),
        timeseries(
            "Mainline ads by operating point",
            "Mainline ads per request that each version would have shown.",
            [Query(spread("auction_mainline_ads", by="model_version, point"), "{{model_version}} at {{point}}")],
            unit="none",
            decimals=2,
            links=[_auctions_page()],
        ),
        timeseries(
            "Placements with a history",
            "Share of a version's placements whose query and ad have a history; the others count as an average ad there.",
            [Query(replayed, "{{model_version}} at {{point}}")],
            unit="percentunit",
            steps=REPLAYED,
            least=0,
            most=1,
            links=[_auctions_page()],
        ),
    ]


def _auctions_page() -> Json:
    return {
        "title": "Frontier of every version",
        "url": f"{house.PAGE}/auctions?model=${{model}}&window=${{window}}",
        "targetBlank": True,
    }


def _ranking_table() -> Json:
    keys = "model_version, metric"
    of_k = ('k="$k"', 'average="request"')
    stderr = spread_error("ranking", *of_k, by=keys, weight=REQUESTS)
    return table(
        "Ranking cut after $k",
        "By request; shown_ndcg is by the position shown.",
        {"model_version": "version", "metric": "metric"},
        [
            Column("value", ranking(".+", by=keys), "none", 4),
            Column("standard error", stderr, "none", 4),
        ],
        sort="metric",
        descending=False,
    )


def _exposure_table() -> Json:
    keys = "model_version, metric"
    return table(
        "Exposure",
        "As if everything had been shown equally often; log loss in nats. Weights are clipped at exposure.max_weight.",
        {"model_version": "version", "metric": "metric"},
        [
            Column(title, exposure(".+", estimator, keys), "none", 4)
            for title, estimator in (
                ("IPS", "ips"),
                ("IPS, clipped", "ips_clipped"),
                ("SNIPS", "snips"),
                ("SNIPS, clipped", "snips_clipped"),
            )
        ],
        sort="metric",
        descending=False,
    )


def _objective_table() -> Json:
    keys = "model_version, objective"
    return table(
        "Objectives",
        "Impressions, those with a positive label, and metrics by that label.",
        {"model_version": "version", "objective": "objective"},
        [
            Column("impressions", f"sum by ({keys}) ({of('objective_window_impressions', WINDOW)})"),
            Column("positive", f"sum by ({keys}) ({of('objective_window_positives', WINDOW)})"),
            *(Column(title, by_objective(metric), "none", 4) for metric, title in (("auc", "AUC"), ("log_loss", "log loss"))),
        ],
        sort="objective",
        descending=False,
    )  # fmt: skip


def _auction_table() -> Json:
    keys = "model_version, point"

    def column(title: str, family: str, *more: str, unit: str = "none", steps: Steps | None = None) -> Column:
        return Column(title, spread(family, *more, by=keys), unit, 3 if unit == "none" else 0, steps)

    return table(
        "Auctions",
        "Per request, by version and operating point.",
        {"model_version": "version", "point": "operating point"},
        [
            column("click yield", "auction_click_yield", 'block="all"'),
            column("mainline click yield", "auction_click_yield", 'block="mainline"'),
            column("mainline ads", "auction_mainline_ads"),
            column("with a history", "auction_replayed_ratio", unit="percentunit", steps=REPLAYED),
        ],
        sort="operating point",
        descending=False,
    )
