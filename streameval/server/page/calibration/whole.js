// What the charts by quantile add up to: both versions in numbers, side by side.

import { h } from "../dom.js";
import { metricTerm, term } from "../explain.js";
import { count, number, percent } from "../format.js";
import { table } from "../tables.js";

const sum = (buckets, of) => buckets.reduce((all, one) => all + of(one), 0);

// `shown`: versions with their buckets, and their AUC; `take`: what can be taken along.
export function whole(shown, take) {
  const added = shown.map(({ buckets, auc, pauc }) => {
    const impressions = sum(buckets, (b) => b.impressions);
    const clicks = sum(buckets, (b) => b.clicks);
    const predicted = sum(buckets, (b) => (b.impressions ? b.mean_pclick * b.impressions : 0));
    const lost = sum(buckets, (b) => (b.impressions ? b.log_loss * b.impressions : 0));
    const over = (of, all) => (all > 0 ? of / all : null);
    return { impressions, clicks, predicted: over(predicted, impressions), ctr: over(clicks, impressions), calibration: over(predicted, clicks), log_loss: over(lost, impressions), auc, pauc };
  });
  const line = (name, text, write) => [h("th", { scope: "row" }, name), ...added.map((one) => h("td", { class: "number", "data-metric": text }, write(one[text])))];
  const body = [
    line(metricTerm("calibration"), "calibration", (v) => number(v, 3)),
    line("Mean pClick", "predicted", (v) => percent(v, 2)),
    line("CTR", "ctr", (v) => percent(v, 2)),
    line(metricTerm("log_loss"), "log_loss", (v) => number(v, 4)),
    line(metricTerm("auc"), "auc", (v) => number(v, 4)),
    line(metricTerm("pauc"), "pauc", (v) => number(v, 4)),
    line(term("impression", "Impressions"), "impressions", count),
    line("Clicks", "clicks", count),
  ];
  const head = ["Metric", ...shown.map(({ name, look: { class: own } }) => h("span", { class: own }, h("span", { class: "swatch", "aria-hidden": "true" }), name))];
  return h(
    "section",
    { class: "panel whole" },
    h("h2", {}, "All quantiles together"),
    h("p", { class: "quiet" }, "Calibration is predicted clicks over clicks: best at 1; above it the version over-predicts, below it under-predicts."),
    h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "All quantiles together" }, table(head, body)),
    take,
  );
}
