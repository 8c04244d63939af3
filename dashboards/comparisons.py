"""Comparisons: did the deploy hurt, how sure is that, and where?"""

from __future__ import annotations

from dashboards import house
from dashboards.grafana import (
    GREEN,
    ORANGE,
    RED,
    YELLOW,
    Column,
    Json,
    Query,
    Steps,
    band,
    dashed,
    link,
    override,
    place,
    query_variable,
    row,
    stat,
    state_timeline,
    table,
    text,
    timeseries,
    values,
    wide,
)
from dashboards.queries import MODEL, SLICES, error, mean, of, verdict

UID = "streameval-comparisons"
SIDE = 'baseline_version="$baseline", candidate_version="$candidate"'
CHOSEN = f'{MODEL}, {SIDE}, setup="$setup"'
OVERALL = 'metric="overall"'
WHO = "candidate_version, baseline_version, setup"
CERTAIN = 4.605  # ln(1 / 0.01), of compare.alpha as it is by default
VERDICT: Steps = ((None, GREEN), (1, YELLOW), (2, RED))
EVIDENCE: Steps = ((None, GREEN), (2.3, YELLOW), (CERTAIN, RED))
CLICKS = "slice_window_clicks"
WEIGHT = "slice_window_impressions"
BY = "slice_value"
WORDS = """\
`$candidate` (candidate) against `$baseline` (baseline), by a `$setup` comparison.

- **paired**: one serves, the other scores the same impressions. **split**: each serves its own users. **before_after**:
  same hours, earlier; drift can fool it, so it only warns.
- The interval of a difference is **anytime-valid**: you may check it every minute and stop whenever you like.
- *worse* means beyond the margin at level alpha; *not worse* within the tolerance at level alpha; otherwise *undecided*.
- Evidence is the logarithm of an e-value; beyond the line (alpha 0.01 by default) the verdict is reached.
- Slices are shown side by side without that guarantee: a z of 3 among a hundred slices means nothing. The breakdown with
  one is on the page and at `/api/v1/comparisons`.
"""


def dashboard() -> Json:
    """Comparisons."""
    return house.dashboard(
        UID,
        "Versions against what they replaced: differences with anytime-valid intervals, evidence, verdicts, and slices.",
        [*house.variables(unused=["version"]), *_variables(), house.page_variable()],
        place(
            [
                (4, _header()),
                (1, [row("$candidate against $baseline ($setup): differences with anytime-valid intervals")]),
                (9, _differences()),
                (12, _evidence()),
                (1, [row("Slices by $slice, window $window")]),
                (9, _slices()),
                (10, [_slice_table()]),
                (1, [row("All comparisons of $model")]),
                (8, [_all_comparisons()]),
            ]
        ),
        house.links(UID, f"{house.PAGE}/comparisons", "Page: comparisons"),
        house.deploys(),
    )


def _variables() -> list[Json]:
    def labels(of_what: str, label: str) -> str:
        return f"label_values({of('comparison_impressions', of_what)}, {label})"

    return [
        # 8: the other way round, and v10 after v9
        query_variable("candidate", "Candidate", labels(MODEL, "candidate_version"), sort=8),
        query_variable("baseline", "Baseline", labels(f'{MODEL}, candidate_version="$candidate"', "baseline_version")),
        # of paired, split and before_after the first in the alphabet that there is would be the weakest
        query_variable("setup", "Setup", labels(f"{MODEL}, {SIDE}", "setup"), default="paired", sort=2),
    ]


def _header() -> list[Json]:
    start = of("comparison_start_timestamp_seconds", CHOSEN)
    return [
        stat(
            "Verdict",
            "Over all metrics. With several workers, each evaluates its own users; the worst verdict is shown.",
            [Query(verdict("model_name", f"{CHOSEN}, {OVERALL}"))],
            mappings=house.VERDICTS,
            steps=VERDICT,
            empty="no comparison",
            links=[link("On the page", f"{house.PAGE}/comparisons")],
        ),
        stat(
            "Evidence for worse",
            "Natural logarithm of the e-value over all metrics. 2.3 is odds of 10 to 1; at 4.6 the verdict is reached"
            " with compare.alpha = 0.01.",
            [Query(f"max({of('comparison_log_e', CHOSEN, OVERALL)})")],
            unit="none",
            decimals=1,
            steps=EVIDENCE,
        ),
        stat(
            "Withheld",
            "YES: the join of clicks and impressions is unhealthy, so nothing is decided until it recovers.",
            [Query(f"max({of('comparison_withheld', CHOSEN)})")],
            mappings=values(no=(0, GREEN), YES=(1, RED)),
            steps=((None, GREEN), (1, RED)),
        ),
        stat(
            "Impressions compared",
            "Impressions with final labels in the comparison.",
            [Query(f"sum({of('comparison_impressions', CHOSEN)})")],
        ),
        stat(
            "Clicks compared",
            "Clicks among them. A hundred can show only gross harm; `streameval plan` says how many are needed.",
            [Query(f"sum({of('comparison_clicks', CHOSEN)})")],
            steps=((None, ORANGE), (100, YELLOW), (1000, GREEN)),
        ),
        stat(
            "Comparison age",
            "Time since the comparison began.",
            [Query(f"time() - min({start})")],
            unit="s",
            decimals=0,
        ),
    ]


def _difference(title: str, metric: str, description: str, margin: str, unit: str) -> Json:
    at = f'metric="{metric}"'
    # the widest interval of all workers: each of them has the stated certainty, no mean of them has it
    return timeseries(
        title,
        f"{description} Band: anytime-valid interval. Dashed: the margin; an interval entirely beyond it is a verdict.",
        [
            Query(f"avg({of('comparison_difference', CHOSEN, at)})", "value"),
            Query(f"min({of('comparison_lower_bound', CHOSEN, at)})", "low"),
            Query(f"max({of('comparison_upper_bound', CHOSEN, at)})", "high"),
            Query(f"{margin}max({of('comparison_margin', CHOSEN, at)})", "margin"),
        ],
        unit=unit,
        decimals=2 if unit == "percentunit" else 4,
        overrides=[*band(), dashed("margin")],
    )


def _differences() -> list[Json]:
    return [
        _difference("Log loss", "log_loss", "Relative; above 0 the candidate is worse.", "", "percentunit"),
        _difference("AUC", "auc", "Candidate − baseline; below 0 the candidate ranks worse.", "-", "none"),
        _difference("GAUC", "gauc", "Candidate − baseline, within users; below 0 it ranks worse.", "-", "none"),
        _difference(
            "Calibration",
            "calibration",
            "Calibration error increase, relative; above 0 it is worse.",
            "",
            "percentunit",
        ),
    ]


def _evidence() -> list[Json]:
    return [
        wide(
            8,
            timeseries(
                "Evidence for worse, by metric",
                "Natural logarithm of the e-values. Beyond the line (compare.alpha = 0.01) the candidate is worse, however"
                " often it is checked.",
                [Query(f"max by (metric) ({of('comparison_log_e', CHOSEN)})", "{{metric}}")],
                unit="none",
                decimals=1,
                steps=((None, "transparent"), (CERTAIN, RED)),
                most=6,
            ),
        ),
        wide(
            8,
            state_timeline(
                "Verdicts on $model",
                "Overall verdict of every comparison of the model. Once reached, it stays.",
                Query(verdict(WHO, f"{MODEL}, {OVERALL}"), "{{candidate_version}} / {{baseline_version}} ({{setup}})"),
                house.VERDICTS,
            ),
        ),
        wide(8, text("How to read this", "What the words and bands mean.", WORDS)),
    ]


def _side(version: str, family: str, weight: str) -> str:
    return mean(family, *_of(version), by=BY, weight=weight)


def _of(version: str) -> tuple[str, str]:
    scope = SLICES.replace('model_version=~"$version"', f'model_version="{version}"')
    return scope, 'slice_value!=""'


def _delta(family: str, weight: str) -> tuple[str, str]:
    """Candidate less baseline by slice value, and the standard error of that were the two independent."""
    value = f"({_side('$candidate', family, weight)}) - ({_side('$baseline', family, weight)})"
    errors = [error(family, *_of(version), by=BY, weight=weight) for version in ("$candidate", "$baseline")]
    return value, f"sqrt(({errors[0]}) ^ 2 + ({errors[1]}) ^ 2)"


def _slices() -> list[Json]:
    delta, _ = _delta("slice_normalized_entropy", WEIGHT)
    return [
        timeseries(
            "Normalised entropy, candidate − baseline",
            "The ten slice values where the candidate is worst; above 0 it is worse than the baseline.",
            [Query(f"topk(10, {delta})", "{{slice_value}}")],
            unit="none",
            decimals=3,
            steps=((None, "transparent"), (0, RED)),
        ),
        timeseries(
            "Calibration of $candidate by $slice",
            "Predicted clicks over clicks of the ten largest slice values.",
            [
                Query(
                    f"({_side('$candidate', 'slice_calibration_ratio', CLICKS)}) and on ({BY})"
                    f" topk(10, sum by ({BY}) ({of(WEIGHT, *_of('$candidate'))}))",
                    "{{slice_value}}",
                )
            ],
            unit="none",
            decimals=2,
            steps=house.CALIBRATION_AREA,
            shade="area",
            least=0.7,
            most=1.35,
        ),
        timeseries(
            "Impressions by $slice",
            "Of the candidate in the window: a slice that appears or disappears changes the overall numbers without any change of model.",
            [Query(f"topk(10, sum by ({BY}) ({of(WEIGHT, *_of('$candidate'))}))", "{{slice_value}}")],
            stacked=True,
            least=0,
        ),
    ]


def _slice_table() -> Json:
    delta, stderr = _delta("slice_normalized_entropy", WEIGHT)
    history = house.history("rig", "${candidate},${baseline}", "&slice=${slice}:${__data.fields.value}")
    return table(
        "Slices, worst first",
        "z is the difference over its standard error, as if the two were independent: conservative when they score the"
        " same impressions. It is not corrected for the number of slices.",
        {"slice_value": "value"},
        [
            Column("Δ norm. entropy", delta, "none", 4, ((None, GREEN), (0, ORANGE))),
            Column("± 2σ", f"2 * {stderr}", "none", 4),
            Column("z", f"({delta}) / {stderr}", "none", 1, ((None, GREEN), (2, YELLOW), (4, RED))),
            Column("candidate", _side("$candidate", "slice_normalized_entropy", WEIGHT), "none", 3, house.ENTROPY),
            Column("baseline", _side("$baseline", "slice_normalized_entropy", WEIGHT), "none", 3, house.ENTROPY),
            Column("Δ AUC", _delta("slice_auc", WEIGHT)[0], "none", 4, ((None, ORANGE), (0, GREEN))),
            Column("calibration", _side("$candidate", "slice_calibration_ratio", CLICKS), "none", 2, house.CALIBRATION),
            Column("impressions", f"sum by ({BY}) ({of(WEIGHT, *_of('$candidate'))})"),
            Column("clicks", f"sum by ({BY}) ({of(CLICKS, *_of('$candidate'))})"),
        ],
        sort="Δ norm. entropy",
        overrides=[override("value", {"id": "links", "value": [history]})],
    )


def _all_comparisons() -> Json:
    def reading(metric: str) -> str:
        return f"""avg by ({WHO}) ({of("comparison_difference", MODEL, f'metric="{metric}"')})"""

    here = link(
        "Show here",
        f"/d/{UID}?${{__url_time_range}}&${{datasource:queryparam}}&${{job:queryparam}}&${{instance:queryparam}}"
        "&${model:queryparam}&${version:queryparam}&${window:queryparam}&${slice:queryparam}&${page:queryparam}"
        "&var-candidate=${__data.fields.candidate}&var-baseline=${__data.fields.baseline}"
        "&var-setup=${__data.fields.setup}",
    )
    return table(
        "Comparisons",
        "Every comparison of the model that is still kept, with its latest numbers. Click a candidate to show it above.",
        {"candidate_version": "candidate", "baseline_version": "baseline", "setup": "setup"},
        [
            Column("verdict", verdict(WHO, f"{MODEL}, {OVERALL}"), "none", None, VERDICT, house.VERDICTS),
            Column("evidence", f"max by ({WHO}) ({of('comparison_log_e', MODEL, OVERALL)})", "none", 1, EVIDENCE),
            Column("log loss", reading("log_loss"), "percentunit", 2),
            Column("AUC", reading("auc"), "none", 4),
            Column("GAUC", reading("gauc"), "none", 4),
            Column("calibration", reading("calibration"), "percentunit", 1),
            Column("impressions", f"sum by ({WHO}) ({of('comparison_impressions', MODEL)})"),
            Column("clicks", f"sum by ({WHO}) ({of('comparison_clicks', MODEL)})"),
            Column(
                "since",
                f"min by ({WHO}) ({of('comparison_start_timestamp_seconds', MODEL)}) * 1000",
                "dateTimeFromNow",
                least=130,
            ),
        ],
        sort="since",
        overrides=[override("candidate", {"id": "links", "value": [{**here, "targetBlank": False}]})],
    )
