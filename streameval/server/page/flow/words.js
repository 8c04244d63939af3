// Plain words for the names of counters, stages and tables that the API and /metrics have; the name stands beside, small.

import { h } from "../dom.js";

export const FATES = {
  matured: "Impressions with a final label",
  pending: "Impressions waiting for their label",
  matched_clicks: "Matched clicks",
  candidates: "Candidates that were not shown",
  unmatched_clicks: "Unmatched clicks",
  corrected: "Labels corrected by a late click",
  duplicate_impressions: "Duplicate impressions",
  conflicting_impressions: "Impressions with an id that another model or version has used",
  duplicate_clicks: "Duplicate clicks",
  late_impressions: "Impressions too late to count",
  late_clicks: "Clicks too late to correct a label",
  early_clicks: "Clicks dated before their impression",
  late_unscored: "Late impressions not scored online",
  expired_impressions: "Impressions too old to count",
  quarantined: "Quarantined events: dated far ahead of the others",
  runaway_impressions: "Impressions rejected: dated far ahead, and the others never caught up",
  runaway_clicks: "Clicks rejected: dated far ahead, and the others never caught up",
  matured_early: "Labels made final early (memory limit)",
  forgotten_early: "Impressions evicted early (memory limit)",
};
export const STAGES = {
  read: "Reading messages, and waiting for them",
  decode: "Decoding messages",
  join: "Joining clicks to impressions",
  requests: "Grouping impressions by request",
  score: "Scoring by online models",
  learn: "Training online models",
  settle: "Counting final labels",
  observe: "Updating metrics",
  correct: "Correcting labels after late clicks",
  gauc: "AUC within users (GAUC)",
  auctions: "Replaying auctions",
  publish: "Preparing results for page and API",
};
export const TABLES = {
  join: "Impressions and clicks in the join",
  panes: "Metrics by interval (panes)",
  ledger: "Sums for comparisons",
  users: "Metrics by user",
  models: "Online models",
};
export const LIMITS = {
  impressions: "Impressions in the join",
  held_clicks: "Clicks waiting for their impression",
  quarantine: "Quarantined events: dated far ahead",
  users: "Metrics by user",
  versions: "Model versions",
};
export const INVALID = {
  empty: "Empty message",
  too_large: "Message too large",
  malformed: "Message cannot be read",
  unknown_schema: "Schema is not in the registry",
  wrong_schema: "Schema does not fit",
  missing_field: "Required field is missing",
  wrong_type: "Field has the wrong type",
  out_of_range: "Value is out of range",
  future_timestamp: "Dated in the future",
  conflicting_id: "Id that another model or version has used",
};

// What has no words here is named as in the code.
export const plain = (words, name) => words[name] ?? (name.startsWith("slice:") ? `Values of the slice ${name.slice(6)}` : name.replaceAll("_", " "));

// In words, with the name that /metrics and the API have for it.
export const named = (words, name) => [plain(words, name), " ", h("code", { class: "quiet" }, name)];
