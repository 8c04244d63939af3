"""What the dashboards share: variables, deploy marks, links to each other, to the page and to the runbooks."""

from __future__ import annotations

from collections.abc import Sequence

from dashboards.grafana import (
    DATASOURCE,
    GREEN,
    ORANGE,
    RED,
    SCHEMA_VERSION,
    YELLOW,
    Json,
    Steps,
    datasource_variable,
    link,
    query_variable,
    text_variable,
    values,
)
from dashboards.queries import MODEL, SCOPE, VERSIONS, of

BOARDS = {
    "streameval-models": "All models",
    "streameval-overview": "Model health",
    "streameval-calibration": "Calibration",
    "streameval-comparisons": "Comparisons",
    "streameval-lists": "Lists and exposure",
    "streameval-pipeline": "Pipeline",
}
RUNBOOKS = "https://github.com/streameval/streameval/blob/main/docs/runbooks"
PAGE = "${page}/#"

# The bounds of the calibration objective, as in the alert rules.
CALIBRATION: Steps = ((None, RED), (0.8, GREEN), (1.25, RED))
CALIBRATION_AREA: Steps = ((None, RED), (0.8, "transparent"), (1.25, RED))
ENTROPY: Steps = ((None, GREEN), (0.98, YELLOW), (1, RED))
SHARE_OUT: Steps = ((None, GREEN), (0.05, YELLOW), (0.3, ORANGE), (0.72, RED))  # budget, slow burn, fast burn
BEHIND: Steps = ((None, GREEN), (300, YELLOW), (900, RED))
VERDICTS = values(not_worse=(0, GREEN), undecided=(1, YELLOW), WORSE=(2, RED))
BELIEVABLE = values(yes=(1, GREEN), NO=(0, RED))


def history(metric: str, versions: str = "${version:csv}", slice_of: str = "") -> Json:
    """A link to a metric's history on the built-in page, over the dashboard's time."""
    time = "from=${__from:date:seconds}&to=${__to:date:seconds}"
    asked = f"model=${{model}}&metric={metric}&versions={versions}&{time}"
    shown = "rig (1 − normalised entropy)" if metric == "rig" else metric
    return link(f"History of {shown}", f"{PAGE}/history?{asked}{slice_of}")


def variables(*, models: bool = True, unused: Sequence[str] = ()) -> list[Json]:
    """Those of every dashboard. Without `models` the ones about models are hidden, and only passed on by links; so are
    `unused` ones."""
    hidden = {*unused, *(() if models else ("model", "version", "window", "slice"))}
    found = _variables()
    return [{**one, "hide": 2} if one["name"] in hidden else one for one in found]


def _variables() -> list[Json]:
    seen = of("window_impressions", MODEL)
    return [
        datasource_variable(),
        query_variable("job", "Job", "label_values(streameval_build_info, job)", multi=True, allValue=".+"),
        query_variable(
            "instance",
            "Instance",
            'label_values(streameval_build_info{job=~"$job"}, instance)',
            multi=True,
            allValue=".+",
        ),
        query_variable("model", "Model", f"label_values({of('window_impressions', SCOPE)}, model_name)"),
        query_variable("version", "Version", f"label_values({seen}, model_version)", multi=True),
        query_variable("window", "Window", f"label_values({seen}, window)", default="1h"),
        query_variable(
            "slice",
            "Slice",
            f"label_values({of('slice_window_impressions', MODEL)}, slice)",
            default="country",
        ),
    ]


def page_variable() -> Json:
    """Where the built-in page is, for the links."""
    return text_variable("page", "Page", "http://127.0.0.1:8080")


def deploys(*, models: bool = True) -> list[Json]:
    """Marks for deploys, and for the moment a comparison said `worse`: of the selected versions, or of all models."""
    chosen = (MODEL, 'candidate_version=~"$version"') if models else (SCOPE,)
    live = of("deploy_timestamp_seconds", VERSIONS if models else SCOPE)
    worse = of("comparison_verdict", *chosen, 'metric="overall"', 'verdict="worse"')
    who, name = ("", "") if models else ("model_name, ", "{{model_name}} ")
    sides = f"{who}candidate_version, baseline_version, setup"
    return [
        {
            "name": "Deploys",
            "datasource": DATASOURCE,
            "enable": True,
            "hide": False,
            "iconColor": "purple",
            # the value is when it went live, in milliseconds
            "expr": f"max by ({who}model_version, kind) ({live}) * 1000",
            "useValueForTime": True,
            "step": "60s",
            "titleFormat": f"{name}{{{{model_version}}}}",
            "textFormat": "went live ({{kind}})",
            "tagKeys": "kind",
        },
        {
            "name": "Verdicts: worse",
            "datasource": DATASOURCE,
            "enable": True,
            "hide": False,
            "iconColor": RED,
            # where it begins: a region as long as the verdict stands would cover the lines
            "expr": f"(max by ({sides}) ({worse}) == 1) unless max by ({sides}) ({worse} offset 1m) == 1",
            "useValueForTime": False,
            "step": "30s",
            "titleFormat": f"{name}{{{{candidate_version}}}} is worse than {{{{baseline_version}}}}",
            "textFormat": "in a {{setup}} comparison",
            "tagKeys": "setup",
        },
    ]


def links(uid: str, page: str, title: str) -> list[Json]:
    """To the others, with the variables and the time; to the page at `page`; and to the runbooks."""
    others = [
        {"title": name, "url": f"/d/{other}", "icon": "dashboard", "includeVars": True, "keepTime": True}
        for other, name in BOARDS.items()
        if other != uid
    ]
    outside = [
        {"title": title, "url": page, "icon": "external link", "targetBlank": True},
        {"title": "Runbooks", "url": f"{RUNBOOKS}/README.md", "icon": "doc", "targetBlank": True},
    ]
    whole = {"type": "link", "asDropdown": False, "tags": [], "tooltip": ""}
    no = {"includeVars": False, "keepTime": False, "targetBlank": False}
    return [{**whole, **no, **one} for one in (*others, *outside)]


def dashboard(
    uid: str,
    description: str,
    variables: Sequence[Json],
    panels: Sequence[Json],
    links: Sequence[Json],
    annotations: Sequence[Json],
    *,
    since: str = "now-6h",
) -> Json:
    """A whole dashboard."""
    return {
        "uid": uid,
        "title": f"streameval / {BOARDS[uid]}",
        "description": description,
        "tags": ["streameval"],
        "schemaVersion": SCHEMA_VERSION,
        "version": 1,
        "editable": False,
        "graphTooltip": 1,
        "timezone": "browser",
        "time": {"from": since, "to": "now"},
        "refresh": "30s",
        "links": list(links),
        "annotations": {"list": list(annotations)},
        "templating": {"list": list(variables)},
        "panels": list(panels),
    }
