// What lies behind a comparison: where the difference is, calibration by pClick, the mix of traffic, estimates, its history.

import { href } from "../address.js";
import { button } from "../controls.js";
import { MARKS, VERDICTS } from "../differences.js";
import { h } from "../dom.js";
import { apportioned, count, dateTime, duration, number, percent, short, signed, signedPercent } from "../format.js";
import { halfWidth } from "../intervals.js";
import { metric, reason } from "../metrics.js";
import { headed, shorten } from "../names.js";
import { taking } from "../share.js";
import { scroller, table } from "../tables.js";

const AT_FIRST = 3; // parts of a dimension that are shown
const MOST = 50; // that the API lists of all dimensions; users, who are no whole, come on top

// A list of a comparison, to take along.
const rows = (name, { id }, list) => taking(name, { link: () => href("comparisons", { id }), times: false, csv: () => [`comparisons/${encodeURIComponent(id)}`, { rows: list }] });

// A table per dimension, as each adds up to the whole by itself: the significant parts first, then those that carry most.
export function breakdown({ findings: all, id }, unfolded, toggle, fold) {
  if (!all.length) return null;
  const dimensions = [...new Set(all.map((f) => f.dimension))];
  const cut = all.filter((f) => f.dimension !== "user").length >= MOST;
  return h(
    "section",
    {},
    fold(
      "breakdown",
      "Breakdown",
      h("p", { class: "quiet" }, "Where the difference in log loss comes from, by one dimension at a time. “Significant” is corrected for the number of slices (false discovery rate, e-BH)."),
      dimensions.map((dimension) => parts(dimension, all.filter((f) => f.dimension === dimension), cut, unfolded.has(dimension), () => toggle(dimension))),
      rows("breakdown", { id }, "findings"),
    ),
  );
}

function parts(dimension, all, cut, open, toggle) {
  const sorted = [...all].sort((a, b) => b.significant - a.significant || (b.share ?? -Infinity) - (a.share ?? -Infinity));
  const shares = all.map((f) => f.share ?? 0);
  const most = Math.max(...shares.map(Math.abs), 0.01);
  const name = dimension === "pclick" ? "pClick" : dimension;
  const total = cut ? 1 : shares.reduce((sum, share) => sum + share, 0);
  // of a whole: what is shown adds up, whatever is folded
  const known = sorted.map((f) => f.share ?? 0);
  const rounded = dimension === "user" ? known : apportioned([...known, total - known.reduce((sum, share) => sum + share, 0)]);
  const row = (f, i) => [
    h("th", { scope: "row" }, shorten(f.value, 40)),
    f.significant ? "significant" : "not significant",
    [signedPercent(f.share === null ? null : rounded[i]), h("meter", { min: 0, max: most, value: Math.max(0, f.share ?? 0), "aria-label": "share of the difference" })],
    signed(f.difference),
    short(f.impressions),
    short(f.clicks),
  ];
  const names = [name, "Evidence", "Share of the difference", "Difference in log loss", "Impressions", "Clicks"];
  const lines = sorted.slice(0, open ? all.length : AT_FIRST).map(row);
  if (dimension !== "user") lines.push(...whole(rounded, lines.length, all.length, total));
  const more = all.length - AT_FIRST;
  return h(
    "div",
    { class: "dimension", "data-dimension": dimension },
    h("h3", {}, `By ${name}`),
    scroller(`By ${name}`, table(names, lines, { numeric: (i) => i > 1 })),
    more > 0 ? button(open ? "Show fewer" : `Show ${more} more`, toggle, { "aria-expanded": String(open), "data-focus": `parts-${dimension}` }) : null,
  );
}

// The rows that make up the whole: what is folded or not listed, and the sum.
function whole(rounded, listed, all, total) {
  const rest = rounded.slice(listed).reduce((sum, share) => sum + share, 0);
  const folded = all - listed;
  const line = (name, share) => [h("th", { scope: "row" }, name), "", signedPercent(share), "", "", ""];
  const others = folded || Math.abs(rest) >= 0.0005 ? [line(folded ? `${folded} others` : "Other values", rest)] : [];
  return [...others, line("Total", total)];
}

export function calibrationByBucket({ calibration_buckets: all, baseline, candidate, metrics, id }, fold) {
  if (!all.length) return null;
  const known = all.filter((b) => b.difference !== null);
  const row = (b) => [
    h("th", { scope: "row" }, b.bucket),
    b.significant ? "significant" : "not significant",
    number(b.baseline, 3),
    number(b.candidate, 3),
    `${signedPercent(b.difference)}${b.stderr === null ? "" : ` ± ${percent(halfWidth(null) * b.stderr)}`}`,
    short(b.baseline_clicks),
    short(b.candidate_clicks),
  ];
  const [before, after] = [baseline, candidate].map((one) => headed(one.version));
  const names = ["pClick", "Evidence", `${before} calibration`, `${after} calibration`, "Calibration error increase", `Clicks, ${before}`, `Clicks, ${after}`];
  const clicks = all.reduce((sum, b) => sum + b.baseline_clicks, 0);
  const whole = metrics.find((m) => m.metric === "calibration");
  return h(
    "section",
    {},
    fold(
      "calibration",
      "Calibration by pClick",
      h("p", { class: "quiet" }, "Predicted clicks over clicks of each version on the impressions it served, by its own pClick. “Significant”: its calibration error is larger by more than the margin; this allows for the number of buckets (e-BH). ± is a 95% interval of one bucket by itself."),
      known.length ? [scroller("Calibration by pClick", table(names, known.map(row), { numeric: (i) => i > 1 })), rows("calibration by pClick", { id }, "calibration_buckets")] : null,
      known.length < all.length ? h("p", { class: "quiet" }, `Not shown: ${all.length - known.length} of ${all.length} buckets, in which one of the two served no clicks.`) : null,
      whole?.verdict === "worse" && !all.some((b) => b.significant)
        ? h("p", { class: "why" }, `Calibration is worse as a whole, and not significant in any bucket by itself: ${before} served only ${count(clicks)} clicks in this comparison, while the verdict above covers everything that both versions scored.`)
        : null,
    ),
  );
}

const isOfExposure = ({ setup }, mix) => setup === "paired" && mix.dimension === "propensity";

const simpson = (m) => (m.simpson ? h("td", { class: "text" }, h("span", { class: "badge", "data-verdict": "worse" }, "Simpson"), ` ${m.text ?? ""}`) : "");

// A table whose last column says how to read a row: it is there when there is something to say.
function withReading(names, rows, options) {
  const some = rows.some((cells) => cells.at(-1) !== "");
  return table(some ? [...names, "Reading"] : names, some ? rows : rows.map((cells) => cells.slice(0, -1)), options);
}

// Of a metric, as the table above writes it.
const by = ({ metric: name }, value) => signed(value, metric(name).digits || 4);
const withError = (m) => (m.within_stderr === null ? by(m, m.within) : `${by(m, m.within)} ± ${number(halfWidth(null) * m.within_stderr, metric(m.metric).digits || 4)}`);

// Of a paired comparison: what was shown, against what would be if every item were shown equally often.
export function uniformExposure(one, fold) {
  const all = one.mixes.filter((m) => isOfExposure(one, m));
  const unknown = one.mixes_unknown ?? [];
  if (!all.length && !unknown.length) return null;
  const row = (m) => [h("th", { scope: "row" }, metric(m.metric).name), by(m, m.total), withError(m), simpson(m)];
  const without = (m) => [h("th", { scope: "row" }, metric(m.metric).name), "–", "–", h("td", { class: "text quiet" }, reason(m.reason))];
  return h(
    "section",
    {},
    fold(
      "uniform",
      "Uniform exposure",
      h("p", { class: "quiet" }, "The difference over what the serving model chose to show, and as if every item had been shown equally often: each impression weighted by its inverse propensity. “Simpson”: they point in opposite directions. ± is a 95% interval."),
      scroller("Uniform exposure", withReading(["Metric", "Difference, as shown", "Under uniform exposure"], [...all.map(row), ...unknown.map(without)], { numeric: (i) => i > 0 && i < 3 })),
      rows("uniform exposure", one, "mixes"),
    ),
  );
}

export function mixes(one, fold) {
  const all = one.mixes.filter((m) => !isOfExposure(one, m));
  if (!all.length) return null;
  const row = (m) => [
    h("th", { scope: "row" }, m.dimension),
    m.metric === "ctr" ? "CTR" : metric(m.metric).name,
    by(m, m.total),
    by(m, m.mix),
    withError(m),
    simpson(m),
  ];
  return h(
    "section",
    {},
    fold(
      "mix",
      "Traffic mix vs. model",
      h("p", { class: "quiet" }, "How much of the difference comes from different traffic (mix), and how much from the same kind of traffic (within). “Simpson”: the total and its slices point in opposite directions. ± is a 95% interval."),
      scroller("Traffic mix vs. model", withReading(["Dimension", "Metric", "Difference", "Mix", "Within"], all.map(row), { numeric: (i) => i > 1 && i < 5 })),
      rows("traffic mix", one, "mixes"),
    ),
  );
}

const EARLY = {
  promised_auc: "AUC implied by the scores, if calibrated",
  promised_ctr: "CTR implied by the scores",
  corrected_calibration: "Calibration, corrected for clicks still to come",
  score_shift: "Score shift (log odds)",
};

export function early({ early: all, baseline, candidate, id }, fold) {
  if (!all.length) return null;
  const row = (e) => [h("th", { scope: "row" }, EARLY[e.name] ?? e.name, e.reason ? h("span", { class: "quiet below" }, reason(e.reason)) : null), number(e.baseline, 4), number(e.candidate, 4)];
  return h(
    "section",
    {},
    fold(
      "early",
      "Preliminary estimates",
      h("p", { class: "quiet" }, "Made before labels are final; never used for a verdict."),
      scroller("Preliminary estimates", table(["Estimate", headed(baseline.version), headed(candidate.version)], all.map(row), { numeric: (i) => i > 0 })),
      rows("preliminary estimates", { id }, "early"),
    ),
  );
}

const DAY_MS = 86_400_000;

// How long after a change somebody was told of it; when, if it was of another day, as when old events are read again.
function toldAt(at, change) {
  const later = Date.parse(at) - Date.parse(change);
  return h("time", { datetime: at, title: dateTime(at, { seconds: true }) }, later >= 0 && later < DAY_MS ? `${duration(later / 1000)} later` : dateTime(at, { seconds: true }));
}

// Why nobody was.
export const UNTOLD = {
  no_receivers: "nobody: no receiver is configured",
  not_subscribed: "nobody: no receiver subscribes to such changes",
  serves_nobody: "nobody: the version served nobody",
  before_notifications: "nobody: it was before notifications were configured",
  not_told_of: "nobody: such changes are not sent",
  waiting: "nobody yet: its message is waiting",
  dropped: "nobody: too many messages were waiting, so it was dropped",
  receiver_removed: "nobody: its receiver is no longer configured",
};

function whoWasTold({ told, untold, at }) {
  const receiver = (one) => (one.receiver === one.kind ? one.kind : `${one.kind} ${shorten(one.receiver)}`);
  const line = (one) => h("span", {}, receiver(one), ", ", one.state === "muted" ? "muted, not sent" : toldAt(one.at, at));
  return h("span", { class: "told quiet" }, h("span", { class: "label" }, "Told"), told.length ? told.map(line) : h("span", {}, UNTOLD[untold] ?? "nobody"));
}

// What happened, in order: the deploy, who announced it, and every change of the verdict with who was told of it.
export function changes({ changes: all, start, id }, deploy) {
  const told = deploy?.announced ? ` Announced by CI/CD${deploy.note ? `: ${deploy.note}` : ""}.` : " Detected from its traffic.";
  const link = deploy?.link ? [" ", h("a", { href: deploy.link, target: "_blank", rel: "noopener noreferrer" }, "Announcement")] : null;
  const first = deploy ? [{ at: deploy.at, text: [`Deployed${deploy.kind === "deploy" ? "" : ` (${deploy.kind})`}.`, told, link] }] : [];
  const events = [...first, { at: start, text: "Comparison begins." }, ...all].sort((a, b) => Date.parse(a.at) - Date.parse(b.at));
  const row = (one) => h("li", { "data-verdict": one.verdict }, h("time", { datetime: one.at, class: "quiet" }, dateTime(one.at, { seconds: true })), h("span", {}, one.verdict ? h("span", { class: "badge", "data-verdict": one.verdict }, MARKS[one.verdict], " ", VERDICTS[one.verdict]) : null," ", [one.text].flat().map((part) => (typeof part === "string" ? part.replace(" -> ", " → ") : part))), one.told ? whoWasTold(one) : null);
  return h("section", {}, h("h2", {}, "Verdict history"), h("ol", { class: "record" }, events.map(row)), all.length ? rows("verdict history", { id }, "changes") : null);
}
