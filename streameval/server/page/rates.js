// What does not compare between traffic of different click rates, said where such numbers stand side by side.

import { h } from "./dom.js";
import { percent } from "./format.js";
import { interval } from "./intervals.js";
import { BY_CLICK_RATE, metric } from "./metrics.js";
import { shorten } from "./names.js";

const WHY = "depend on the traffic and its click rate, not on the model alone";

// Versions that both serve, each on its own traffic: a note when their click rates differ by more than chance, else null.
export function servedNote(rows) {
  const serving = rows.filter((row) => row.role === "live" && row.ctr !== null);
  for (const a of serving) {
    const b = serving.find((other) => other.model === a.model && apart(a, other));
    if (b) {
      return h("p", { class: "quiet", "data-note": "click-rates" },
        `${shorten(a.version)} and ${shorten(b.version)} serve different traffic, with click rates of ${percent(a.ctr, 2)} and ${percent(b.ctr, 2)}. RIG and AUC ${WHY}, so these do not compare between the two; Comparisons has the versions hour by hour.`);
    }
  }
  return null;
}

// A slice beside the whole or beside other slices; null for metrics that do compare.
export function sliceNote(name, slice) {
  if (slice === "none" || !BY_CLICK_RATE.has(name)) return null;
  return h("p", { class: "quiet", "data-note": "click-rates" }, `RIG and AUC ${WHY}: compare versions within this slice, not this slice's ${metric(name).name} with that of other slices.`);
}

function apart(a, b) {
  const [one, other] = [a, b].map((row) => interval(row.ctr, row.ctr_stderr, row.stderr_df));
  return one !== null && other !== null && (one.high < other.low || other.high < one.low);
}
