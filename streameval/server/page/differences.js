// Differences between a candidate and its baseline as text: of some metrics ratios less 1, in percent.

import { DASH, signed, signedPercent } from "./format.js";
import { metric } from "./metrics.js";

export const RATIOS = new Set(["log_loss", "calibration", "ctr", "value", "click_yield", "log_loss_snips", "policy_value"]);
const LESS_IS_WORSE = /^(ctr|value|click_yield|policy_value|pauc|mrr|ndcg_\d+)$/; // of compare.more, which the table of the metrics need not have
const FAR = 10; // a ratio's bound beyond this says nothing

const places = (value) => (Math.abs(value ?? 0) < 0.01 ? 2 : 1);

export const difference = (name, value) => (RATIOS.has(name) ? signedPercent(value, places(value)) : signed(value, 4));

// On an axis: as many digits as tell two ticks apart.
export const ticked = (name, value, digits) => (RATIOS.has(name) ? signedPercent(value, Math.max(0, digits - 2)) : signed(value, digits));

// The sign of a difference for the worse.
export const towardsWorse = (name) => (metric(name).better > 0 || LESS_IS_WORSE.test(name) ? -1 : 1);

// "+31.0 to +74.1%", as far as the bounds say something, with as many places as the difference that they stand beside.
export function bounds(name, { difference: middle = null, lower, upper }) {
  const known = (bound) => (bound === null || bound < -1 || bound > FAR ? null : bound);
  const [low, high] = [known(lower), known(upper)];
  if (low === null && high === null) return DASH;
  if (high === null) return `at least ${difference(name, low)}`;
  if (low === null) return `at most ${difference(name, high)}`;
  if (!RATIOS.has(name)) return `${difference(name, low)} to ${difference(name, high)}`;
  const digits = places(middle ?? Math.max(Math.abs(low), Math.abs(high)));
  return `${signed(low * 100, digits)} to ${signed(high * 100, digits)}%`;
}

// Whether its interval of now shows by itself what has been found of a metric: more than its verdict takes, as both bounds hold together.
export function shows({ metric: name, verdict, lower, upper, margin, tolerance }) {
  const sign = towardsWorse(name);
  const [low, high] = sign > 0 ? [lower, upper] : [upper, lower];
  return verdict === "worse" ? low !== null && sign * low > margin : verdict === "not_worse" && high !== null && sign * high < tolerance;
}

// With what confidence a bound holds: "99%". Its alpha less from 1 is not always a round number in binary.
export const confidence = ({ alpha }) => `${Number((100 * (1 - alpha)).toPrecision(6))}%`;

// Beyond colour, each verdict has a mark and a word.
export const MARKS = { worse: "✕", not_worse: "✓", undecided: "…" };
export const VERDICTS = { worse: "worse", not_worse: "not worse", undecided: "undecided" };
export const NOT_ANY_MORE = "no longer supported by current data";

// What a comparison is of. Before/after counts the clicks of hours that have a counterpart before the deploy: none is nothing known. Of split
// arms they are those of the one that has fewer.
export const amount = ({ setup, impressions, clicks }, write) =>
  `${write(impressions)} impressions${setup === "before_after" && !clicks ? "" : `, ${write(clicks)} clicks${setup === "split" ? " in the arm with fewer" : ""}`}`;
