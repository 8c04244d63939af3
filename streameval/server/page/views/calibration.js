// Whether scores mean what they say: two versions side by side.

import { go } from "../address.js";
import { asker, useToken } from "../api.js";
import { histogram } from "../charts/histogram.js";
import { byQuantile } from "../charts/quantiles.js";
import { reliability, wilson } from "../charts/reliability.js";
import { roc } from "../charts/roc.js";
import { refusal, select } from "../controls.js";
import { h, replace } from "../dom.js";
import { count, number, percent, signedPercent, significant } from "../format.js";
import { look, modelsOf, seriesOf } from "../series.js";
import { sliceOptions } from "../slices.js";
import { table } from "../tables.js";

export const title = "Calibration";
export const needsLabels = true;

const AGAIN_MS = 4000;

export function mount(root) {
  const tools = h("div", { class: "tools" });
  const note = h("div");
  const panels = h("div", { class: "panels" });
  root.append(tools, note, panels);
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
    const a = find(given.a) ?? all[0];
    const b = given.b === "none" ? undefined : (find(given.b) ?? all.find((one) => one !== a));
    const windows = [...new Set(overview.results.map((r) => r.window))];
    return { models, model, all, a, b, windows, window: windows.includes(given.window) ? given.window : "all", slice: given.slice ?? "none" };
  }

  const change = (part) => go("calibration", { ...given, ...part }, { replace: true });

  function drawTools(now) {
    const versions = now.all.map((one) => one.version);
    replace(
      tools,
      now.models.length > 1 ? select("Model", "model", now.models, now.model, (model) => change({ model, a: null, b: null })) : null,
      select("Version", "a", versions, now.a.version, (a) => change({ a })),
      select("against", "b", [["nothing", "none"], ...versions], now.b?.version ?? "none", (b) => change({ b })),
      select("Window", "window", now.windows, now.window, (window) => change({ window })),
      select("Slice", "slice", sliceOptions(dimensions, now.slice), now.slice, (slice) => change({ slice: slice === "none" ? null : slice })),
      h("p", { class: "legend" }, [now.a, now.b].filter(Boolean).map((one) => h("span", { class: look(overview, one).class }, h("span", { class: "swatch", "aria-hidden": "true" }), one.version))),
    );
  }

  function refresh() {
    const now = choice();
    const shown = [now.a, now.b].filter(Boolean);
    const question = JSON.stringify([shown, now.window, now.slice]);
    if (question === asked.question && performance.now() - asked.at < AGAIN_MS) return;
    asked = { question, at: performance.now() };
    const ask = shown.flatMap((one) => {
      const which = { model: one.model, version: one.version, source: one.source, window: now.window, slice: now.slice };
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
        if (answers.length > 3 * shown.length) dimensions = answers.at(-1).slices;
        drawTools(choice());
        draw(
          shown.map((one, i) => ({
            name: one.version,
            look: look(overview, one),
            buckets: answers[3 * i].tables[0]?.buckets ?? [],
            points: answers[3 * i + 1].points,
            auc: answers[3 * i + 1].auc,
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
    const used = (b) => (b.impressions > 0 ? b.log_loss : null);
    replace(
      panels,
      panel("Reliability", "CTR against mean pClick, by quantile of pClick (equally many impressions each). On the line a score means what it says; bars are 95 % (Wilson).", reliability(shown)),
      panel("Prediction error by pClick quantile", "Predicted clicks over clicks, less 1: above 0 the model promises too much there.",
        byQuantile(shown, { title: "Prediction error", name: "prediction error", of: error, bounds: errorBounds, format: (v) => signedPercent(v, 0), zero: true })),
      panel("Log loss by pClick quantile", "Where the loss comes from. It grows with the CTR by itself: compare versions, not quantiles.",
        byQuantile(shown, { title: "Log loss", name: "log loss, nats", of: used, format: (v) => number(v, 3) })),
      shown.map((one) => panel(`Scores of ${one.name} by label`, "Shares of the non-clicks (grey) and of the clicks (colour) by pClick: the further apart, the better they are told apart.", scores(one))),
      panel("ROC", "Thick: thresholds that let the top quarter of the impressions pass; dots at 1, 5, 10 and 25 %.", roc(shown)),
      h("details", { class: "wide", open: panels.querySelector("details")?.open }, h("summary", {}, "The numbers as a table"), h("div", { class: "scroll" }, bucketTable(shown))),
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

const panel = (heading, about, chart) => h("figure", { class: "panel" }, h("figcaption", {}, h("h2", {}, heading), h("p", { class: "quiet" }, about)), chart);

function scores({ name, look: style, scores: { edges, impressions, clicks } }) {
  if (!edges.length) return h("p", { class: "quiet" }, "No scores in this window.");
  return histogram({
    title: `Scores of ${name}`,
    edges,
    layers: [
      { class: "plain", name: "non-clicks", values: impressions.map((n, i) => n - clicks[i]) },
      { class: style.class, name: "clicks", values: clicks },
    ],
    xName: "pClick",
    xFormat: (v) => percent(v, v < 0.0095 ? 2 : v < 0.095 ? 1 : 0),
    log: true,
    describe: `distribution of pClick of non-clicks and of clicks, version ${name}`,
  });
}

function bucketTable(shown) {
  const head = ["Version", "pClick from", "to", "Impressions", "Clicks", "Mean pClick", "CTR", "Prediction error", "Log loss"];
  const rows = shown.flatMap(({ name, buckets }) =>
    buckets.map((b) => [name, significant(b.lower), significant(b.upper), count(b.impressions), count(b.clicks), significant(b.mean_pclick, 4), significant(b.ctr, 4), signedPercent(b.prediction_error), number(b.log_loss)]),
  );
  return table(head, rows);
}
