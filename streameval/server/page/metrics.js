// What the page says about each metric, and about what is undefined. The table itself is served from that of the metrics
// (streameval/metrics/): a metric that is not in it is shown under its own name.

import { METRICS, OVERVIEW } from "./registry.js";

export { METRICS, OVERVIEW };

export const metric = (name) => METRICS[name] ?? { name: name.replaceAll("_", " "), about: "", digits: 4, better: 0 };

const RANGE = [null, null];
export const rangeOf = (name) => metric(name).range ?? RANGE;

// The end of an interval, no further than values go.
export function within(range, value) {
  const [least, most] = range;
  return value === null ? null : Math.min(most ?? Infinity, Math.max(least ?? -Infinity, value));
}

export const REASONS = {
  no_impressions: "no impressions",
  no_clicks: "no clicks",
  no_non_clicks: "only clicks",
  no_selected_impressions: "no impression at or above the threshold",
  no_eligible_user: "no user with clicks and non-clicks",
  no_eligible_request: "no request with clicks and non-clicks",
  no_request: "no closed request that the version scored whole",
  no_clicked_request: "no request with a click",
  no_valued_click: "no request with a click of any value",
  no_positions: "no request with a click that the version served, with all positions",
  not_configured: "not configured (ranking.k)",
  not_served: "served nothing: it only scored what others served",
  scored_what_others_served: "it also scored what others served: its own users cannot be told apart",
  weights_not_supported: "it needs every impression, and the log is a sample",
  values_not_kept: "the value of clicks is not kept (metrics.value)",
  no_policy: "no impression carries this version's probability of showing it (policies)",
  never_shown_by_policy: "its policy would have shown none of them",
  propensities_inconsistent: "the logged propensities are inconsistent",
  no_weight: "the weights of all users or requests are 0",
  not_kept_for_slices: "not kept for slices",
  not_kept_for_ranges: "not kept in the history",
  not_estimated: "not estimated",
  learning: "the model is still learning; it is not evaluated yet",
  too_few_clicks: "too few clicks so far",
  no_hour_served_by_both: "the versions served in no hour in common",
  no_complete_window: "no complete window of users yet",
  too_few_users: "too few users so far",
  too_short: "too little time so far (compare.min_duration)",
  too_little_history: "too few days before the deploy",
  no_longer_kept: "the data behind it are no longer kept (compare.keep)",
  only_in_paired_comparisons: "only where both versions score the same impressions",
  only_in_split_comparisons: "only where both versions serve at the same time",
  no_propensities: "no impression has a propensity",
  too_few_propensities: "fewer than 90% have a propensity",
  too_few_effective_samples: "fewer than 200 effective samples, or one weight is above 5% of the sum",
  no_requests: "no request with a click that both versions scored",
  not_compared: "not compared in this setup",
};

// Metrics that depend on the click rate of the traffic, not on the model alone (Yi et al. 2013, sections 5.1 and 5.2).
export const BY_CLICK_RATE = new Set(["auc", "pauc", "rig", "nmse"]);

export const reason = (name) => (name ? (REASONS[name] ?? name.replace(/^\S+/, (code) => code.replaceAll("_", " "))) : "");
