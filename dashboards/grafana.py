"""Grafana's classic JSON in a few words: queries, panels of the oldest stable types, variables, links, a layout.

Panels are plain dicts. `place` gives them ids and a place in the grid of 24 columns.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from string import ascii_uppercase
from typing import Any

Json = dict[str, Any]
COLUMNS = 24
DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}
SCHEMA_VERSION = 39  # Grafana 10.4; newer ones migrate it
GREEN, YELLOW, ORANGE, RED, BLUE, GREY = "green", "yellow", "orange", "red", "blue", "text"
Steps = Sequence[tuple[float | None, str]]  # (from this value on, this colour); the first from None
UP_IS_BAD: Steps = ((None, GREEN), (1, RED))
PLAIN: Steps = ((None, GREY),)


@dataclass(frozen=True, slots=True)
class Query:
    """One PromQL query: at the end of the range if `instant`, as a table if `table`."""

    expr: str
    legend: str = ""
    instant: bool = False
    table: bool = False
    heatmap: bool = False

    def target(self, place: int) -> Json:
        """As a panel has it; the first is A."""
        return {
            "refId": ascii_uppercase[place],
            "datasource": DATASOURCE,
            "editorMode": "code",
            "expr": self.expr,
            "legendFormat": self.legend or "__auto",
            "instant": self.instant,
            "range": not self.instant,
            "format": "table" if self.table else "heatmap" if self.heatmap else "time_series",
        }


@dataclass(frozen=True, slots=True)
class Column:
    """A value column of a table, at least `least` pixels wide."""

    title: str
    expr: str
    unit: str = "short"
    decimals: int | None = None
    steps: Steps | None = None
    mappings: Sequence[Json] = ()
    least: int = 80


def bands(family_value: str, stderr: str) -> list[Query]:
    """A value with two standard errors either way; see `band`."""
    return [
        Query(family_value, "value"),
        Query(f"{family_value} - 2 * ({stderr})", "low"),
        Query(f"{family_value} + 2 * ({stderr})", "high"),
    ]


def band(low: str = "low", high: str = "high") -> list[Json]:
    """Overrides that fill between two series. Grafana finds the lower one by its name, so a panel has one band."""
    hide: list[Json] = [
        {"id": "custom.lineWidth", "value": 0},
        {"id": "custom.hideFrom", "value": {"legend": True, "tooltip": False, "viz": False}},
        {"id": "color", "value": {"mode": "fixed", "fixedColor": "semi-dark-blue"}},
    ]
    return [
        override(low, *hide),
        override(high, *hide, {"id": "custom.fillBelowTo", "value": low}, {"id": "custom.fillOpacity", "value": 18}),
        override("value", {"id": "color", "value": {"mode": "fixed", "fixedColor": BLUE}}),
    ]


def dashed(name: str, colour: str = RED) -> Json:
    """An override that draws a series as a dashed line, for limits."""
    return override(
        name,
        {"id": "custom.lineStyle", "value": {"fill": "dash", "dash": [8, 6]}},
        {"id": "custom.fillOpacity", "value": 0},
        {"id": "custom.lineWidth", "value": 1},
        {"id": "color", "value": {"mode": "fixed", "fixedColor": colour}},
    )


def coloured(name: str, colour: str) -> Json:
    """An override that gives a series a colour that says how good it is."""
    return override(name, {"id": "color", "value": {"mode": "fixed", "fixedColor": colour}})


def dashes(query: str) -> Json:
    """An override that draws the lines of a query ("B") dashed, in their own colours."""
    style = {"id": "custom.lineStyle", "value": {"fill": "dash", "dash": [8, 6]}}
    return {"matcher": {"id": "byFrameRefID", "options": query}, "properties": [style]}


def override(name: str, *properties: Json) -> Json:
    """Properties of the field of this name."""
    return {"matcher": {"id": "byName", "options": name}, "properties": list(properties)}


def values(**words: tuple[int, str]) -> list[Json]:
    """A value mapping: `values(worse=(2, RED))` shows 2 as a red "worse"; `_` stands for a space."""
    return [
        {
            "type": "value",
            "options": {
                str(value): {"text": word.replace("_", " "), "color": colour, "index": i}
                for i, (word, (value, colour)) in enumerate(words.items())
            },
        }
    ]


def link(title: str, url: str) -> Json:
    """A link of a panel or a field, in a new tab."""
    return {"title": title, "url": url, "targetBlank": True}


def timeseries(
    title: str,
    description: str,
    queries: Sequence[Query],
    *,
    unit: str = "short",
    decimals: int | None = None,
    steps: Steps | None = None,
    shade: str = "line",
    stacked: bool = False,
    least: float | None = None,
    most: float | None = None,
    overrides: Sequence[Json] = (),
    links: Sequence[Json] = (),
    empty: str = "",
) -> Json:
    """Lines over time; `steps` are drawn as lines (`shade="area"`: as areas). `empty` stands where there are none.

    A version has one colour everywhere, by a hash of its name; other lines have colours that differ within the panel.
    """
    of_versions = bool(queries) and queries[0].legend.endswith("{{model_version}}")
    defaults: Json = {
        "unit": unit,
        "color": {"mode": "palette-classic-by-name" if of_versions else "palette-classic"},
        "custom": {
            "drawStyle": "line",
            "lineInterpolation": "linear",
            "lineWidth": 1 if stacked else 2,
            "fillOpacity": 35 if stacked else 0,
            "showPoints": "never",
            "spanNulls": False,
            "axisLabel": "",
            "axisSoftMin": least,
            "axisSoftMax": most,
            "stacking": {"mode": "normal" if stacked else "none", "group": "A"},
            "thresholdsStyle": {"mode": shade if steps else "off"},
        },
        "thresholds": thresholds(steps or PLAIN),
    }
    if least is None:
        del defaults["custom"]["axisSoftMin"]
    if most is None:
        del defaults["custom"]["axisSoftMax"]
    if decimals is not None:
        defaults["decimals"] = decimals
    if empty:
        defaults["noValue"] = empty
    options = {
        "legend": {"displayMode": "list", "placement": "bottom", "showLegend": True, "calcs": []},
        "tooltip": {"mode": "multi", "sort": "desc"},
    }
    return panel("timeseries", title, description, queries, defaults, options, overrides, links)


def stat(
    title: str,
    description: str,
    queries: Sequence[Query],
    *,
    unit: str = "short",
    decimals: int | None = None,
    steps: Steps = PLAIN,
    mappings: Sequence[Json] = (),
    named: bool = False,
    overrides: Sequence[Json] = (),
    links: Sequence[Json] = (),
    empty: str = "–",
) -> Json:
    """One number on its colour, or with `named` several with their names; `empty` stands where there is none."""
    defaults: Json = {
        "unit": unit,
        "noValue": empty,
        "color": {"mode": "thresholds"},
        "thresholds": thresholds(steps),
    }
    quiet = named or steps == PLAIN
    # nothing is no alarm: without this it has the colour of the lowest step
    nothing = {"text": empty, "color": GREY if quiet else "transparent", "index": 99}
    absent = {"type": "special", "options": {"match": "null+nan", "result": nothing}}
    defaults["mappings"] = [*mappings, absent]
    if decimals is not None:
        defaults["decimals"] = decimals
    options: Json = {
        "colorMode": "value" if quiet else "background",
        "graphMode": "none",
        "justifyMode": "center",
        "orientation": "auto",
        "textMode": "value_and_name" if named else "value",
        "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False},
    }
    if named:
        options["text"] = {"titleSize": 12}  # or a long name becomes too small to read
    instant = [Query(query.expr, query.legend, instant=True) for query in queries]
    return panel("stat", title, description, instant, defaults, options, overrides, links)


def table(
    title: str,
    description: str,
    keys: Mapping[str, str],
    columns: Sequence[Column],
    *,
    sort: str,
    descending: bool = True,
    overrides: Sequence[Json] = (),
    hidden: Sequence[str] = (),
) -> Json:
    """One line for each set of labels; `keys` are labels and their titles, `columns` follow. At most 26 columns."""
    queries = [Query(column.expr, instant=True, table=True) for column in columns]
    # Grafana calls the value of an only query "Value"
    names = ["Value"] if len(columns) == 1 else [f"Value #{ascii_uppercase[i]}" for i in range(len(columns))]
    renamed = {**keys, **dict(zip(names, (column.title for column in columns), strict=True))}
    # a label is text, also where it looks like a number: a unit would change it, and every link made of it
    own = [
        override(title, {"id": "unit", "value": "string"}, {"id": "custom.minWidth", "value": 130})
        for title in keys.values()
    ]
    for column in columns:
        properties: list[Json] = [
            {"id": "unit", "value": column.unit},
            {"id": "custom.minWidth", "value": column.least},
        ]
        if column.decimals is not None:
            properties.append({"id": "decimals", "value": column.decimals})
        if column.mappings:
            properties.append({"id": "mappings", "value": list(column.mappings)})
        if column.steps or column.mappings:
            properties += [
                {"id": "thresholds", "value": thresholds(column.steps or PLAIN)},
                {"id": "custom.cellOptions", "value": {"type": "color-text"}},
            ]
        own.append(override(column.title, *properties))
    defaults = {
        "custom": {"align": "auto", "cellOptions": {"type": "auto"}, "filterable": False, "inspect": False},
        "color": {"mode": "thresholds"},
        "thresholds": thresholds(PLAIN),
    }
    options = {
        "showHeader": True,
        "cellHeight": "sm",
        "sortBy": [{"displayName": sort, "desc": descending}],
    }
    made = panel("table", title, description, queries, defaults, options, [*own, *overrides])
    made["transformations"] = [
        {"id": "merge", "options": {}},
        {
            "id": "organize",
            "options": {
                "excludeByName": dict.fromkeys(("Time", *hidden), True),
                "indexByName": {name: i for i, name in enumerate(renamed)},
                "renameByName": renamed,
            },
        },
    ]
    return made


def heatmap(
    title: str,
    description: str,
    query: Query,
    *,
    unit: str,
    axis: str,
    of_rows: str,
    lower_edges: bool = False,
    scheme: str = "Blues",
) -> Json:
    """Rows are the query's series, from the bottom up; `unit` is that of the cells, `of_rows` that of their edges."""
    options = {
        "calculate": False,
        "rowsFrame": {"layout": "ge" if lower_edges else "auto", "value": axis},
        "color": {
            "mode": "scheme",
            "scheme": scheme,
            "scale": "exponential",
            "exponent": 0.5,
            "steps": 64,
            "fill": "blue",
            "reverse": False,
        },
        "cellGap": 1,
        "cellValues": {"unit": unit},
        "filterValues": {"le": 1e-9},
        "yAxis": {"axisPlacement": "left", "reverse": False, "unit": of_rows},
        "showValue": "never",
        "tooltip": {"mode": "single", "yHistogram": True, "showColorScale": False},
        "legend": {"show": True},
        "exemplars": {"color": "rgba(255,0,255,0.7)"},
    }
    return panel("heatmap", title, description, [query], {"custom": {}}, options)


def barchart(
    title: str,
    description: str,
    key: tuple[str, str],
    columns: Sequence[Column],
    *,
    unit: str,
    sort: str,
    overrides: Sequence[Json] = (),
    hidden: Sequence[str] = (),
) -> Json:
    """Bars side by side for each value of a label; `key` is the label and its title, `sort` the label to order by."""
    made = table(title, description, {key[0]: key[1]}, columns, sort=sort, hidden=[*hidden, sort])
    made["type"] = "barchart"
    made["fieldConfig"] = {
        "defaults": {
            "unit": unit,
            "color": {"mode": "palette-classic-by-name"},
            "custom": {"fillOpacity": 75, "lineWidth": 0, "gradientMode": "none", "axisSoftMin": 0},
            "thresholds": thresholds(PLAIN),
        },
        "overrides": list(overrides),
    }
    made["options"] = {
        "orientation": "auto",
        "xField": key[1],
        "xTickLabelRotation": -45,
        "showValue": "never",
        "stacking": "none",
        "groupWidth": 0.75,
        "barWidth": 0.95,
        "barRadius": 0,
        "fullHighlight": False,
        "legend": {"displayMode": "list", "placement": "bottom", "showLegend": True, "calcs": []},
        "tooltip": {"mode": "multi", "sort": "none"},
    }
    merge, organize = made["transformations"]
    made["transformations"] = [merge, {"id": "sortBy", "options": {"sort": [{"field": sort}]}}, organize]
    return made


def state_timeline(title: str, description: str, query: Query, mappings: Sequence[Json]) -> Json:
    """A state over time, one line for each series."""
    defaults = {
        "mappings": list(mappings),
        "color": {"mode": "thresholds"},
        "thresholds": thresholds(PLAIN),
        "custom": {"fillOpacity": 80, "lineWidth": 0},
    }
    options = {
        "mergeValues": True,
        "showValue": "auto",
        "alignValue": "left",
        "rowHeight": 0.8,
        "legend": {"displayMode": "list", "placement": "bottom", "showLegend": True, "calcs": []},
        "tooltip": {"mode": "single", "sort": "none"},
    }
    return panel("state-timeline", title, description, [query], defaults, options)


def text(title: str, description: str, markdown: str) -> Json:
    """Words."""
    made = panel("text", title, description, [], {}, {"mode": "markdown", "content": markdown})
    del made["targets"], made["fieldConfig"]
    return made


def row(title: str, *, repeat: str | None = None) -> Json:
    """A headline; with `repeat`, it and what follows it once for each value of that variable."""
    made: Json = {"type": "row", "title": title, "collapsed": False, "panels": []}
    return made | ({"repeat": repeat} if repeat else {})


def panel(
    kind: str,
    title: str,
    description: str,
    queries: Sequence[Query],
    defaults: Json,
    options: Json,
    overrides: Sequence[Json] = (),
    links: Sequence[Json] = (),
) -> Json:
    """What all panels have."""
    made: Json = {
        "type": kind,
        "title": title,
        "description": description,
        "datasource": DATASOURCE,
        "targets": [query.target(i) for i, query in enumerate(queries)],
        "fieldConfig": {"defaults": defaults, "overrides": list(overrides)},
        "options": options,
    }
    return made | ({"links": list(links)} if links else {})


def thresholds(steps: Steps) -> Json:
    """Absolute thresholds."""
    return {"mode": "absolute", "steps": [{"value": value, "color": colour} for value, colour in steps]}


def place(lines: Iterable[tuple[int, Sequence[Json]]]) -> list[Json]:
    """Panels in lines of equal width: (height, panels) each. A width of a panel's own is in its `width`.

    Raises ValueError when a line is wider than the grid.
    """
    placed: list[Json] = []
    y = 0
    for height, panels in lines:
        x = 0
        for one in panels:
            w = one.pop("width", COLUMNS // len(panels))
            if x + w > COLUMNS:
                raise ValueError(f"{one['title']}: the line is wider than {COLUMNS} columns")
            placed.append({"id": len(placed) + 1, **one, "gridPos": {"h": height, "w": w, "x": x, "y": y}})
            x += w
        y += height
    return placed


def wide(width: int, one: Json) -> Json:
    """The panel with a width of its own, in columns."""
    return {**one, "width": width}


def query_variable(name: str, label: str, query: str, *, default: str = "", multi: bool = False, **more: Any) -> Json:
    """A variable whose values Prometheus says; with `multi`, all of them at first."""
    current = {"text": ["All"], "value": ["$__all"]} if multi else {"text": default, "value": default}
    return {
        "name": name,
        "label": label,
        "type": "query",
        "datasource": DATASOURCE,
        "query": query,
        "definition": query,
        "refresh": 2,
        "regex": "",
        "sort": 1,
        "multi": multi,
        "includeAll": multi,
        "current": current if multi or default else {},
        "options": [],
        "hide": 0,
        **more,
    }


def datasource_variable() -> Json:
    """Which Prometheus."""
    return {
        "name": "datasource",
        "label": "Data source",
        "type": "datasource",
        "query": "prometheus",
        "current": {},
        "options": [],
        "refresh": 1,
        "regex": "",
        "multi": False,
        "includeAll": False,
        "hide": 0,
    }


def text_variable(name: str, label: str, value: str) -> Json:
    """A variable that one types."""
    chosen = {"text": value, "value": value}
    return {
        "name": name,
        "label": label,
        "type": "textbox",
        "query": value,
        "current": chosen,
        "options": [{**chosen, "selected": True}],
        "hide": 0,
    }
