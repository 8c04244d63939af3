// One row per model and version, and above them what the deploys did, in words.

import { go, href } from "../address.js";
import { asker } from "../api.js";
import { sparkline } from "../charts/sparkline.js";
import { select } from "../controls.js";
import { h, replace } from "../dom.js";
import { age, count, DASH, number, short, significant } from "../format.js";
import { interval } from "../intervals.js";
import { metric, reason } from "../metrics.js";
import { key, labelsComplete, look, roleOf, servesNobody } from "../series.js";

export const title = "Overview";

const SHOWN = ["auc", "gauc", "log_loss", "rig", "calibration"];
const PANES = 60;
const AGAIN_MS = 4000; // between two questions for the sparklines

export function mount(root) {
  const verdicts = h("section", { class: "verdicts", "aria-label": "Verdicts on the newest deploys" });
  const tiles = h("dl", { class: "tiles" });
  const tools = h("div", { class: "tools" });
  const table = h("div", { class: "scroll" });
  root.append(verdicts, tiles, tools, table);
  const lines = {}; // metric -> key -> columns
  const questions = asker();
  let asked = -Infinity;
  let overview = null;
  let given = {};
  const rates = rate();

  function refresh() {
    if (performance.now() - asked < AGAIN_MS) return;
    asked = performance.now();
    const ask = SHOWN.map((name) => ["series", { metric: name, limit: PANES, shape: "columns" }]);
    questions.ask(ask, () => {}).then((answers) => {
      if (!answers) return;
      answers.forEach((answer, i) => {
        lines[SHOWN[i]] = new Map(answer.series.map((one) => [key(one), one.columns]));
      });
      draw();
    });
  }

  function draw() {
    const windows = [...new Set(overview.results.map((r) => r.window))];
    const window = windows.includes(given.window) ? given.window : defaultWindow(windows);
    const rows = overview.results.filter((r) => r.window === window);
    const complete = labelsComplete(overview);
    drawVerdicts(verdicts, overview);
    drawTiles(tiles, overview, rates.of(overview), complete);
    const choose = (value) => go("overview", { ...given, window: value }, { replace: true });
    replace(tools, h("h2", {}, "Models and versions"), select("Window", "window", windows, window, choose));
    replace(table, rows.length ? modelTable(overview, rows, lines) : h("p", { class: "quiet" }, "No labelled impressions yet."));
  }

  return {
    update(now, address) {
      overview = now;
      given = address;
      draw();
      refresh();
    },
    close: questions.stop,
  };
}

// The longest window that slides: it forgets what was before the last deploy, and has the smallest error.
function defaultWindow(windows) {
  return windows.filter((w) => w !== "all").at(-1) ?? windows[0];
}

const MARKS = { worse: "✕", not_worse: "✓", undecided: "…" };
const SAYS = { worse: "Worse", not_worse: "Not worse", undecided: "Undecided" };

// What people are served comes first; what serves nobody is told without the colours and marks of an alarm.
function drawVerdicts(place, overview) {
  const cards = overview.verdicts.map((one) =>
    h(
      "a",
      { class: "verdict", "data-verdict": one.verdict, "data-calm": servesNobody(one), "data-focus": one.comparison, href: href("comparisons", { id: one.comparison }) },
      h("span", { class: "mark", "aria-hidden": "true" }, servesNobody(one) ? "·" : MARKS[one.verdict]),
      h("span", { class: "says" }, h("strong", {}, says(one)), h("span", { class: "words" }, one.words)),
      h("span", { class: "quiet evidence" }, `${short(one.impressions)} impressions, ${short(one.clicks)} clicks`),
    ),
  );
  if (!cards.length) cards.push(h("p", { class: "quiet" }, "No deploy has been compared yet: a verdict falls some time after a version goes live."));
  replace(place, cards);
}

function says({ verdict, role, supported_now: supported }) {
  if (role === "learning") return "Learning";
  const word = supported === false ? `${SAYS[verdict]} when decided; not shown any more` : SAYS[verdict];
  return role === "shadow" ? `In shadow: ${word.toLowerCase()}` : word;
}

function drawTiles(place, overview, perSecond, complete) {
  const { events, join, partitions } = overview;
  const lag = partitions.flatMap((p) => p.lag).reduce((sum, l) => sum + l.value, 0);
  const invalid = Object.values(events.invalid ?? {}).reduce((sum, n) => sum + n, 0);
  const tile = (name, value, about = "") => h("div", {}, h("dt", {}, name), h("dd", {}, value), about ? h("dd", { class: "quiet" }, about) : null);
  replace(
    place,
    tile("Impressions a second", perSecond === null ? DASH : short(perSecond), `${short(events.impressions)} since the start`),
    tile("Labels final", complete === null ? DASH : `${age(complete * 1000)} ago`, "newest pane whose labels cannot change by themselves"),
    tile("Clicks that found their impression", join.join_rate === null ? DASH : `${(join.join_rate * 100).toFixed(1)} %`, join.reliable ? "the join is healthy" : (join.reason ?? "")),
    tile("Behind", short(lag), "messages not read yet"),
    tile("Dead letters", short(invalid), "events that could not be read"),
  );
}

function modelTable(overview, rows, lines) {
  const models = new Set(rows.map((r) => r.model)).size;
  const head = h(
    "tr",
    {},
    h("th", { scope: "col" }, "Version"),
    SHOWN.map((name) => h("th", { scope: "col", class: "number", title: metric(name).about }, metric(name).name)),
    h("th", { scope: "col", class: "number", title: "impressions with a final label, in this window" }, "Impressions"),
    h("th", { scope: "col", class: "number", title: "time since the newest impression with a final label" }, "Newest label"),
  );
  return h("table", { class: "models" }, h("thead", {}, head), h("tbody", {}, rows.map((row) => modelRow(overview, row, lines, models))));
}

function modelRow(overview, row, lines, models) {
  const id = key(row);
  const style = look(overview, row);
  const name = h(
    "th",
    { scope: "row", class: style.class },
    h("span", { class: "swatch", "aria-hidden": "true" }),
    h("a", { href: href("history", { model: row.model, metric: "auc" }), "data-focus": `row-${id}` }, models > 1 ? `${row.model} ${row.version}` : row.version),
    h("span", { class: "quiet source", "data-role": row.role ?? "" }, roleOf(row) || row.source),
    row.reliable ? null : h("span", { class: "pill", "data-state": "lost", title: row.reliable_reason ?? "" }, "not reliable"),
  );
  const newest = row.newest_label ? age(Date.parse(row.newest_label)) : DASH;
  return h(
    "tr",
    { class: style.class, "data-series": id },
    name,
    SHOWN.map((of) => metricCell(row, of, lines[of]?.get(id))),
    h("td", { class: "number", "data-label": "Impressions" }, h("span", { class: "value" }, count(row.impressions)), h("span", { class: "quiet" }, `${short(row.clicks)} clicks${perSecond(lines.auc?.get(id))}`)),
    h("td", { class: "number", "data-label": "Newest label" }, h("span", { class: "value" }, newest)),
  );
}

// Impressions a second in the newest pane whose labels are final.
function perSecond(line) {
  const last = line ? line.start.length - 1 : -1;
  return last < 0 ? "" : `, ${significant(line.impressions[last] / line.seconds[last])}/s`;
}

function metricCell(row, name, line) {
  const { name: label, digits } = metric(name);
  const value = row[name];
  const ends = interval(value, row[`${name}_stderr`], name === "gauc" ? row.gauc_stderr_df : row.stderr_df);
  const cell = h("td", { class: "number metric", "data-label": label, "data-metric": name });
  if (value === null) {
    cell.append(h("span", { class: "value" }, DASH), h("span", { class: "quiet" }, reason(row.reasons[name])));
    return cell;
  }
  const certified = name === "auc" && row.auc_error ? `; within ${significant(row.auc_error, 2)} of exact` : "";
  const about = ends === null ? "" : `95 %: ${number(ends.low, digits)} to ${number(ends.high, digits)}${certified}`;
  cell.append(
    h("span", { class: "value", title: about, "data-value": value }, number(value, digits)),
    h("span", { class: "quiet error", title: about }, ends === null ? "" : `± ${number(ends.half, digits)}`),
  );
  if (line) cell.append(sparkline(line, { about: `${label}, the last ${line.value.length} panes` }));
  return cell;
}

// Impressions a second between two snapshots some seconds apart.
function rate() {
  const seen = [];
  return {
    of({ as_of, events }) {
      const at = Date.parse(as_of) / 1000;
      if (!seen.length || at > seen.at(-1).at) seen.push({ at, impressions: events.impressions });
      if (seen.length > 1 && events.impressions < seen.at(-2).impressions) seen.splice(0, seen.length - 1); // restarted
      while (seen.length > 2 && at - seen[1].at > 10) seen.shift();
      const seconds = at - seen[0].at;
      return seconds > 0 ? (events.impressions - seen[0].impressions) / seconds : null;
    },
  };
}
