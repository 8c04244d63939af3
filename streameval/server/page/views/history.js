// A metric over time, versions side by side, with error bands, deploys and what is not final yet.

import { go, href, listOf, namesOf } from "../address.js";
import { asker, useToken } from "../api.js";
import { timeline } from "../charts/timeline.js";
import { button, chips, refusal, select } from "../controls.js";
import { h, replace } from "../dom.js";
import { metricTerm, term } from "../explain.js";
import { count, dateTime, number, short } from "../format.js";
import { lineOf } from "../lines.js";
import { METRICS, metric, rangeOf } from "../metrics.js";
import { sliceNote } from "../rates.js";
import { shorten } from "../names.js";
import { objective, objectiveControl } from "../objectives.js";
import { direction } from "../readings.js";
import { byImportance, labelsComplete, look, modelsOf, seriesOf } from "../series.js";
import { sliceOptions } from "../slices.js";
import { taking } from "../share.js";
import { scroller, table } from "../tables.js";

export const needsLabels = true;

const RANGES = { "5m": 300, "15m": 900, "1h": 3600, "6h": 21600, "24h": 86400, "7d": 604800, "30d": 2592000 };
const STEPS = [["raw resolution", ""], "1m", "5m", "15m", "1h", "1d"];
const AGAIN_MS = 2500; // between two questions while time goes on
const MOST_POINTS = 11000;

export function mount(root) {
  const tools = h("div", { class: "tools" });
  const note = h("div");
  const place = h("div", { class: "chart" });
  const volume = h("div", { class: "chart low" });
  const caption = h("figcaption");
  const take = h("div");
  const takeVolume = h("div");
  const tablePlace = scroller("The numbers", []);
  const details = h("details", {}, h("summary", {}, "Show the numbers as a table"), tablePlace);
  root.append(tools, note, h("figure", {}, place, take, caption), h("h2", {}, term("impression", "Impressions")), h("figure", {}, volume, takeVolume), details);
  const rows = () => {
    const now = choice();
    const [from, to] = ends();
    return ["series", { model: now.model, metric: now.metric, from, to, limit: MOST_POINTS, slice: now.slice === "none" ? null : now.slice, step: now.step, objective: now.objective }];
  };
  // the range of now, which a later reader sees too
  const fixed = () => {
    const now = choice();
    const [from, to] = ends();
    return href("history", { ...given, model: now.model, metric: now.metric, versions: listOf(now.chosen), range: null, from, to });
  };
  take.append(taking("history", { link: fixed, csv: rows, png: () => place, title: () => `${metric(choice().metric).name} of ${choice().model}` }));
  takeVolume.append(taking("impressions", { link: fixed, csv: rows, png: () => volume }));
  const chart = timeline(place, { height: 360, screen: 0.45 });
  const small = timeline(volume, { height: 170 });
  const questions = asker();
  let overview = null;
  let given = {};
  let asked = { question: "", at: -Infinity };
  let dimensions = null; // the slices there are
  let answer = null;

  function choice() {
    const models = modelsOf(overview);
    const model = models.includes(given.model) ? given.model : models[0];
    const all = seriesOf(overview).filter((one) => one.model === model);
    const versions = all.map((one) => one.version);
    const chosen = given.versions ? namesOf(given.versions).filter((v) => versions.includes(v)) : first(overview, all);
    const zoomed = given.from && given.to;
    return {
      models, model, versions, chosen, zoomed,
      objective: objective(overview, given), metric: given.metric ?? "auc", slice: given.slice ?? "none", step: given.step ?? "", range: RANGES[given.range] ? given.range : "1h",
    };
  }

  const change = (part) => go("history", { ...given, ...part });

  function drawTools(now) {
    const seconds = now.zoomed ? null : RANGES[now.range];
    const versions = now.versions.map((version) => ({
      value: version,
      text: shorten(version),
      title: version,
      look: look(overview, seriesOf(overview).find((one) => one.model === now.model && one.version === version)),
    }));
    replace(
      tools,
      now.models.length > 1 ? select("Model", "model", now.models, now.model, (model) => change({ model, versions: null })) : null,
      select("Metric", "metric", Object.entries(METRICS).map(([id, { name }]) => [name, id]), now.metric, (of) => change({ metric: of })),
      objectiveControl(overview, given, change),
      select("Slice", "slice", sliceOptions(dimensions, now.slice), now.slice, (slice) => change({ slice: slice === "none" ? null : slice })),
      select("Step", "step", STEPS, now.step, (step) => change({ step })),
      select("Range", "range", [...Object.keys(RANGES), ...(now.zoomed ? [["zoomed", "zoomed"]] : [])], now.zoomed ? "zoomed" : now.range, (range) =>
        change({ range, from: null, to: null }),
      ),
      chips("Versions", versions, now.chosen, (chosen) => change({ versions: chosen.length ? listOf(chosen) : null })),
      h(
        "div",
        { class: "buttons", role: "group", "aria-label": "Zoom" },
        button("−", () => zoom(2), { "aria-label": "Zoom out" }),
        button("+", () => zoom(0.5), { "aria-label": "Zoom in" }),
        button("◀", () => zoom(1, -0.5), { "aria-label": "Earlier" }),
        button("▶", () => zoom(1, 0.5), { "aria-label": "Later" }),
        now.zoomed ? button("Now", () => change({ from: null, to: null })) : null,
      ),
    );
    return seconds;
  }

  function ends() {
    const now = choice();
    if (now.zoomed) return [Number(given.from), Number(given.to)];
    const end = Math.ceil(Date.parse(overview.as_of) / 1000);
    return [end - RANGES[now.range], end];
  }

  function zoom(factor, move = 0) {
    const [from, to] = ends();
    const middle = (from + to) / 2 + move * (to - from);
    const half = ((to - from) * factor) / 2;
    change({ from: Math.round(middle - half), to: Math.round(middle + half) });
  }

  function refresh() {
    const now = choice();
    const [from, to] = ends();
    const fixed = [now.model, now.metric, now.objective, now.slice, now.step, now.zoomed ? [from, to] : now.range];
    const question = JSON.stringify(fixed);
    if (question === asked.question && performance.now() - asked.at < AGAIN_MS) return;
    asked = { question, at: performance.now() };
    const parameters = {
      model: now.model, metric: now.metric, from, to: now.zoomed ? to : null, limit: MOST_POINTS, shape: "columns", objective: now.objective,
      slice: now.slice === "none" ? null : now.slice, step: now.step,
    };
    const ask = [["series", parameters]];
    if (dimensions === null) ask.push(["status"]);
    questions
      .ask(ask, (error) => replace(note, refusal(error, refresh, useToken)))
      .then((answers) => {
        if (!answers) return;
        answer = answers[0];
        if (answers[1]) dimensions = answers[1].slices;
        replace(note);
        draw();
      });
  }

  function draw() {
    const now = choice();
    drawTools(now);
    if (!answer) return;
    const shown = answer.series.filter((one) => one.model === now.model && now.chosen.includes(one.version));
    const { name, digits, about, ideal } = metric(now.metric);
    const limits = rangeOf(now.metric);
    const lines = shown.map((one) => lineOf(overview, one, limits));
    const range = fitted(ends(), lines, now.zoomed);
    const complete = labelsComplete(overview);
    const markers = answer.deploys.map((d) => ({ at: Date.parse(d.at) / 1000, text: d.kind === "deploy" ? shorten(d.version) : `${shorten(d.version)} (${d.kind})` }));
    const zoomed = (from, to) => change({ from: Math.round(from), to: Math.round(to) });
    const common = { markers, range, from: complete, zoomed };
    chart.draw({ ...common, lines, limits, format: (v) => number(v, digits), tick: number, levels: ideal === undefined ? [] : [{ value: ideal, text: "" }] });
    small.draw({ ...common, markers: [], lines: shown.map((one) => ({ ...lineOf(overview, one, limits), y: one.columns.impressions, low: undefined, high: undefined })), levels: [{ value: 0, text: "" }], limits: [0, null], format: short });
    replace(
      caption,
      h("p", {}, metricTerm(now.metric), `: ${about}${direction(now.metric) && ` (${direction(now.metric)})`}. Bands are 95% intervals (Student's t, user-clustered standard errors; variation between items or days is not included). Hatched: labels not final yet. Drag to zoom.`),
      sliceNote(now.metric, now.slice),
      answer.deploys.length ? h("p", {}, "Deploys: ", answer.deploys.map((d) => `${shorten(d.version)} ${dateTime(d.at)}${d.kind === "deploy" ? "" : ` (${d.kind})`}`).join("; "), ".") : null,
      lines.some((l) => l.x.length) ? null : h("p", { role: "status" }, "No data in this range."),
    );
    if (details.open) drawTable(shown, digits, name);
  }

  function drawTable(shown, digits, name) {
    const rows = shown.flatMap((one) => one.columns.start.map((start, i) => ({ one, start, i })));
    rows.sort((a, b) => b.start - a.start);
    const cells = ({ one, start, i }) => {
      const { value, stderr, impressions, clicks } = one.columns;
      return [dateTime(start * 1000, { seconds: true }), shorten(one.version), number(value[i], digits), number(stderr[i], digits), count(impressions[i]), count(clicks[i])];
    };
    const head = ["From", "Version", name, "Standard error", "Impressions", "Clicks"];
    replace(
      tablePlace,
      table(head, rows.slice(0, 500).map(cells), { numeric: (i) => i > 1 }),
      rows.length > 500 ? h("p", { class: "quiet" }, `The newest 500 of ${rows.length} rows; /api/v1/series has all of them.`) : null,
    );
  }

  details.addEventListener("toggle", () => overview && draw());

  return {
    update(now, address) {
      overview = now;
      given = address;
      draw();
      refresh();
    },
    close() {
      questions.stop();
      chart.close();
      small.close();
    },
  };
}

// The versions that are drawn when the address names none: of many those that matter, as many as can be told apart.
const AT_FIRST = 6;

function first(overview, all) {
  const { compare } = byImportance(overview);
  const some = [...all].sort(compare).slice(0, AT_FIRST).map((one) => one.version);
  return all.map((one) => one.version).filter((version) => some.includes(version));
}

// A range that begins before anything was stored begins with what is stored.
function fitted([from, to], lines, zoomed) {
  const first = Math.min(...lines.map(({ x }) => x[0] ?? Infinity));
  return zoomed || first === Infinity || first <= from ? [from, to] : [Math.max(from, first - (to - first) * 0.03), to];
}
