// A metric over time, versions side by side, with error bands, deploys and what is not final yet.

import { go } from "../address.js";
import { asker, useToken } from "../api.js";
import { timeline } from "../charts/timeline.js";
import { button, chips, refusal, select } from "../controls.js";
import { h, replace } from "../dom.js";
import { count, dateTime, number, short } from "../format.js";
import { interval } from "../intervals.js";
import { METRICS, metric } from "../metrics.js";
import { key, labelsComplete, look, modelsOf, seriesOf } from "../series.js";
import { sliceOptions } from "../slices.js";
import { table } from "../tables.js";

export const title = "History";
export const needsLabels = true;

const RANGES = { "5m": 300, "15m": 900, "1h": 3600, "6h": 21600, "24h": 86400, "7d": 604800, "30d": 2592000 };
const STEPS = [["as stored", ""], "1m", "5m", "15m", "1h", "1d"];
const AGAIN_MS = 2500; // between two questions while time goes on
const MOST_POINTS = 11000;

export function mount(root) {
  const tools = h("div", { class: "tools" });
  const note = h("div");
  const place = h("div", { class: "chart" });
  const volume = h("div", { class: "chart low" });
  const caption = h("figcaption");
  const tablePlace = h("div", { class: "scroll" });
  const details = h("details", {}, h("summary", {}, "The numbers as a table"), tablePlace);
  root.append(tools, note, h("figure", {}, place, caption), h("h2", {}, "Impressions"), h("figure", {}, volume), details);
  const chart = timeline(place, { height: 360 });
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
    const versions = seriesOf(overview).filter((one) => one.model === model).map((one) => one.version);
    const chosen = given.versions ? given.versions.split(",").filter((v) => versions.includes(v)) : versions;
    const zoomed = given.from && given.to;
    return {
      models, model, versions, chosen, zoomed,
      metric: given.metric ?? "auc", slice: given.slice ?? "none", step: given.step ?? "", range: RANGES[given.range] ? given.range : "1h",
    };
  }

  const change = (part) => go("history", { ...given, ...part });

  function drawTools(now) {
    const seconds = now.zoomed ? null : RANGES[now.range];
    const versions = now.versions.map((version) => ({
      value: version,
      text: version,
      look: look(overview, seriesOf(overview).find((one) => one.model === now.model && one.version === version)),
    }));
    replace(
      tools,
      now.models.length > 1 ? select("Model", "model", now.models, now.model, (model) => change({ model, versions: null })) : null,
      select("Metric", "metric", Object.entries(METRICS).map(([id, { name }]) => [name, id]), now.metric, (of) => change({ metric: of })),
      select("Slice", "slice", sliceOptions(dimensions, now.slice), now.slice, (slice) => change({ slice: slice === "none" ? null : slice })),
      select("Step", "step", STEPS, now.step, (step) => change({ step })),
      select("Range", "range", [...Object.keys(RANGES), ...(now.zoomed ? [["zoomed", "zoomed"]] : [])], now.zoomed ? "zoomed" : now.range, (range) =>
        change({ range, from: null, to: null }),
      ),
      chips("Versions", versions, now.chosen, (chosen) => change({ versions: chosen.length && chosen.length < now.versions.length ? chosen.join(",") : null })),
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
    const fixed = [now.model, now.metric, now.slice, now.step, now.zoomed ? [from, to] : now.range];
    const question = JSON.stringify(fixed);
    if (question === asked.question && performance.now() - asked.at < AGAIN_MS) return;
    asked = { question, at: performance.now() };
    const parameters = {
      model: now.model, metric: now.metric, from, to: now.zoomed ? to : null, limit: MOST_POINTS, shape: "columns",
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
    const lines = shown.map((one) => line(overview, one));
    const range = fitted(ends(), lines, now.zoomed);
    const complete = labelsComplete(overview);
    const markers = answer.deploys.map((d) => ({ at: Date.parse(d.at) / 1000, text: d.kind === "deploy" ? d.version : `${d.version} (${d.kind})` }));
    const zoomed = (from, to) => change({ from: Math.round(from), to: Math.round(to) });
    const common = { markers, range, from: complete, zoomed };
    chart.draw({ ...common, lines, format: (v) => number(v, digits), tick: number, levels: ideal === undefined ? [] : [{ value: ideal, text: "" }] });
    small.draw({ ...common, markers: [], lines: shown.map((one) => ({ ...line(overview, one), y: one.columns.impressions, low: undefined, high: undefined })), format: short });
    replace(
      caption,
      h("p", {}, `${name}: ${about}. Bands are 95 % (Student's t, users drawn anew; not items, nor days). Hatched: labels are not final yet. Drag to zoom.`),
      answer.deploys.length ? h("p", {}, "Deploys: ", answer.deploys.map((d) => `${dateTime(d.at)} ${d.version} (${d.kind})`).join(", ")) : null,
      lines.some((l) => l.x.length) ? null : h("p", { role: "status" }, "Nothing is stored in this range."),
    );
    if (details.open) drawTable(shown, digits, name);
  }

  function drawTable(shown, digits, name) {
    const rows = shown.flatMap((one) => one.columns.start.map((start, i) => ({ one, start, i })));
    rows.sort((a, b) => b.start - a.start);
    const cells = ({ one, start, i }) => {
      const { value, stderr, impressions, clicks } = one.columns;
      return [dateTime(start * 1000), one.version, number(value[i], digits), number(stderr[i], digits), count(impressions[i]), count(clicks[i])];
    };
    const head = ["From", "Version", name, "Standard error", "Impressions", "Clicks"];
    replace(
      tablePlace,
      table(head, rows.slice(0, 500).map(cells), { numeric: (i) => i > 1 }),
      rows.length > 500 ? h("p", { class: "quiet" }, `The newest 500 of ${rows.length}; all are at /api/v1/series.`) : null,
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

function line(overview, one) {
  const { start, seconds, value, stderr, stderr_df: df } = one.columns;
  const ends = value.map((v, i) => interval(v, stderr[i], df[i]));
  return {
    name: one.version,
    look: look(overview, one),
    x: start.map((at, i) => at + seconds[i] / 2),
    y: value,
    low: ends.map((e) => e?.low ?? null),
    high: ends.map((e) => e?.high ?? null),
    id: key(one),
  };
}

// A range that begins before anything was stored begins with what is stored.
function fitted([from, to], lines, zoomed) {
  const first = Math.min(...lines.map(({ x }) => x[0] ?? Infinity));
  return zoomed || first === Infinity || first <= from ? [from, to] : [Math.max(from, first - (to - first) * 0.03), to];
}
