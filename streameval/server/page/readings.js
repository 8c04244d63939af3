// A value in a table with its 95% interval, or a dash and the reason; and which way is better, in words.

import { h } from "./dom.js";
import { count, DASH, number } from "./format.js";
import { interval } from "./intervals.js";
import { metric, reason } from "./metrics.js";

// Of a row of results, the cell of a metric.
export function reading(row, name, more = {}) {
  const { digits } = metric(name);
  const df = name === "gauc" ? row.gauc_stderr_df : (row[`${name}_stderr_df`] ?? row.stderr_df);
  return cell(row[name], row[`${name}_stderr`], df, row.reasons[name], { write: (v) => (digits ? number(v, digits) : count(v)), name, ...more });
}

// `words(why)`: the reason as text, or an element.
export function cell(value, stderr, df, why, { write = number, words = reason, name = null } = {}) {
  const made = h("td", { class: "number reading", "data-metric": name });
  if (value === null || value === undefined) {
    made.append(DASH, h("span", { class: "quiet" }, words(why)));
    return made;
  }
  const ends = interval(value, stderr ?? null, df);
  made.append(h("span", { "data-value": value, title: ends ? `95%: ${write(ends.low)} to ${write(ends.high)}` : null }, write(value)));
  if (ends?.half) made.append(h("span", { class: "quiet" }, `± ${write(ends.half)}`));
  return made;
}

// "nats; lower is better"
export function direction(name) {
  const { better, ideal, unit } = metric(name);
  const best = ideal !== undefined ? `best at ${ideal}` : { 1: "higher is better", "-1": "lower is better" }[better];
  return [unit, best].filter(Boolean).join("; ");
}
