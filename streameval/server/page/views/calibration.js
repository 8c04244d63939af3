// Whether scores are calibrated: two versions side by side.

import { go, href } from "../address.js";
import { asker, useToken } from "../api.js";
import { whole } from "../calibration/whole.js";
import { byQuantile } from "../charts/quantiles.js";
import { reliability, wilson } from "../charts/reliability.js";
import { roc } from "../charts/roc.js";
import { scoreChart } from "../charts/scores.js";
import { button, refusal, select } from "../controls.js";
import { folds, plainly } from "../fold.js";
import { h, replace } from "../dom.js";
import { count, dateTime, number, signedPercent, significant } from "../format.js";
import { shorten } from "../names.js";
import { objective, objectiveControl } from "../objectives.js";
import { byImportance, look, modelsOf, seriesOf } from "../series.js";
import { sliceOptions } from "../slices.js";
import { taking } from "../share.js";
import { scroller, table } from "../tables.js";

export const needsLabels = true;

const AGAIN_MS = 4000;

export function mount(root) {
  const tools = h("div", { class: "tools" });
  const note = h("div");
  const panels = h("div", { class: "panels" });
  root.append(tools, note, panels);
  const fold = folds();
  const questions = asker();
  let overview = null;
  let given = {};
  let asked = { question: "", at: -Infinity };
  let dimensions = null;

  function choice() {
    const models = modelsOf(overview);
    const model = models.includes(given.model) ? given.model : models[0];
    const all = seriesOf(overview).filter((one) => one.model === model);
    const find = (version) => all.find((one) => one.version === version);
    const [first, second] = [...all].sort(byImportance(overview).compare); // what serves, and what it is compared with
    const a = find(given.a) ?? second ?? first;
    const b = given.b === "none" ? undefined : (find(given.b) ?? [first, second].find((one) => one !== a));
    const windows = [...new Set(overview.results.map((r) => r.window))];
    return { models, model, all, a, b, windows, window: windows.includes(given.window) ? given.window : "all", slice: given.slice ?? "none", objective: objective(overview, given), range: given.from && given.to ? [given.from, given.to] : null };
  }

  const change = (part) => go("calibration", { ...given, ...part }, { replace: true });

  function drawTools(now) {
    const versions = now.all.map((one) => one.version);
    replace(
      tools,
      now.models.length > 1 ? select("Model", "model", now.models, now.model, (model) => change({ model, a: null, b: null })) : null,
      select("Version", "a", versions, now.a.version, (a) => change({ a })),
      select("Compare with", "b", [["nothing", "none"], ...versions], now.b?.version ?? "none", (b) => change({ b })),
      now.range
        ? h("div", { class: "control" }, h("span", {}, `${dateTime(now.range[0] * 1000)} to ${dateTime(now.range[1] * 1000)}`), button("Now", () => change({ from: null, to: null })))
        : select("Window", "window", now.windows, now.window, (window) => change({ window })),
      objectiveControl(overview, given, change),
      select("Slice", "slice", sliceOptions(dimensions, now.slice), now.slice, (slice) => change({ slice: slice === "none" ? null : slice })),
    );
  }

  function refresh() {
    const now = choice();
    const both = [now.a, now.b].filter(Boolean);
    const question = JSON.stringify([both, when(now), now.slice, now.objective]);
    if (question === asked.question && performance.now() - asked.at < AGAIN_MS) return;
    asked = { question, at: performance.now() };
    const ask = both.flatMap((one) => {
      const which = { model: one.model, version: one.version, source: one.source, ...when(now), slice: now.slice, objective: now.objective };
      return [
        ["buckets", { ...which, kind: "quantiles" }],
        ["roc", { ...which, max_points: 400 }],
        ["scores", { ...which, bins: 60 }],
      ];
    });
    if (dimensions === null) ask.push(["status"]);
    questions
      .ask(ask, (error) => replace(note, refusal(error, refresh, useToken)))
      .then((answers) => {
        if (!answers) return;
        replace(note);
        if (answers.length > 3 * both.length) dimensions = answers.at(-1).slices;
        drawTools(choice());
        draw(
          both.map((one, i) => ({
            name: shorten(one.version),
            look: look(overview, one),
            buckets: answers[3 * i].tables[0]?.buckets ?? [],
            points: answers[3 * i + 1].points,
            auc: answers[3 * i + 1].auc,
            pauc: answers[3 * i + 1].pauc,
            range: answers[3 * i + 1].operating_range,
            scores: answers[3 * i + 2],
          })),
        );
      });
  }

  function draw(shown) {
    const error = (b) => (b.clicks > 0 ? b.prediction_error : null);
    const errorBounds = (b) => {
      const [low, high] = wilson(b.clicks, b.impressions);
      return low > 0 ? [b.mean_pclick / high - 1, b.mean_pclick / low - 1] : null;
    };
    const at = () => {
      const now = choice();
      return { model: now.model, ...when(now), slice: now.slice, objective: now.objective };
    };
    const fixed = () => {
      const now = choice();
      const of = overview.results.find((row) => row.window === now.window && row.model === now.model && row.version === now.a.version);
      const [from, to] = now.range ?? [of?.window_start, of?.window_end].map((time) => (time ? Math.round(Date.parse(time) / 1000) : null));
      return href("calibration", { ...given, model: now.model, a: now.a.version, b: now.b?.version ?? "none", from, to });
    };
    const shared = { link: fixed, model: () => choice().model, shown, fold: plainly };
    const buckets = { ...shared, csv: () => ["buckets", { ...at(), kind: "quantiles" }] };
    const each = (path, more) => ({
      ...shared,
      fold,
      csv: shown.map((one, i) => [`CSV ${one.name}`, () => [path, { ...at(), version: [choice().a, choice().b][i].version, ...more }]]),
    });
    const used = (b) => (b.impressions > 0 ? b.log_loss : null);
    replace(
      panels,
      whole(shown, taking("all quantiles together", { link: fixed, csv: () => ["results", at()] })),
      panel("Reliability", "CTR against mean pClick, by quantile of pClick (equally many impressions each). On the diagonal scores are calibrated; bars are 95% intervals (Wilson).", reliability(shown), buckets),
      panel("Prediction error by pClick quantile", "Predicted clicks over clicks, minus 1: above 0 the model over-predicts there.",
        byQuantile(shown, { title: "Prediction error", name: "prediction error", of: error, bounds: errorBounds, format: (v) => signedPercent(v, 0), zero: true }), buckets),
      panel("Log loss by pClick quantile", "Where the loss comes from. It rises with CTR anyway: compare versions, not quantiles.",
        byQuantile(shown, { title: "Log loss", name: "log loss, nats", of: used, format: (v) => significant(v) }), { ...buckets, fold }),
      panel("Scores by label", "How the scores of clicks (filled) and of non-clicks (broken line) are distributed: the further apart, the better the ranking; the further from the other version, the more the scores have shifted.",
        shown.some((one) => one.scores.edges.length) ? scoreChart(shown.filter((one) => one.scores.edges.length)) : h("p", { class: "quiet" }, "No scores in this window."), each("scores", { bins: 60 })),
      panel("ROC", `Thick: the quarter of the impressions with the highest scores; dots at the top 1, 5, 10 and 25%. Shaded: the operating range; partial AUC there: ${shown.map(({ name, pauc }) => `${name} ${number(pauc)}`).join(", ")}.`, roc(shown, shown[0].range), each("roc", { max_points: 5000 })),
      h("details", { class: "wide", open: panels.querySelector("details")?.open }, h("summary", {}, "Show the numbers as a table"), scroller("The numbers by bucket", bucketTable(shown))),
    );
  }

  return {
    update(now, address) {
      overview = now;
      given = address;
      drawTools(choice());
      refresh();
    },
    close: questions.stop,
  };
}

function panel(heading, about, chart, take) {
  const figure = h("figure", { class: "panel" });
  figure.dataset.legend = JSON.stringify(take.shown.map((one) => [one.name, one.look.variable]));
  const caption = h("figcaption", {}, h("p", { class: "quiet" }, about), legend(take.shown));
  const own = taking(heading, { ...take, title: () => `${heading}, ${take.model()}`, png: () => figure });
  figure.append(...[take.fold(heading, heading, caption, chart, own)].flat(2));
  return figure;
}

// Beside each chart: on a phone one is seen at a time.
const legend = (shown) => h("p", { class: "legend" }, shown.map(({ name, look: { class: own } }) => h("span", { class: own }, h("span", { class: "swatch", "aria-hidden": "true" }), name)));

// Which time is shown: a range of the past, or a window that ends now.
const when = ({ range, window }) => (range ? { from: range[0], to: range[1] } : { window });

function bucketTable(shown) {
  const head = ["Version", "pClick from", "to", "Impressions", "Clicks", "Mean pClick", "CTR", "Prediction error", "Log loss"];
  const rows = shown.flatMap(({ name, buckets }) =>
    buckets.map((b) => [name, significant(b.lower), significant(b.upper), count(b.impressions), count(b.clicks), significant(b.mean_pclick, 4), significant(b.ctr, 4), signedPercent(b.prediction_error), number(b.log_loss)]),
  );
  return table(head, rows);
}
