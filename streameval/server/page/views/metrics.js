// Every metric that is more than a column of the overview, versions side by side, each with its unit and which way is better.

import { go, href, listOf, namesOf } from "../address.js";
import { asker, useToken } from "../api.js";
import { chips, refusal, select } from "../controls.js";
import { h, replace } from "../dom.js";
import { cuts } from "../fold.js";
import { metricTerm } from "../explain.js";
import { count, number, percent, significant } from "../format.js";
import { METRICS, metric, reason } from "../metrics.js";
import { absence, absent, once } from "../metrics/absent.js";
import { shorten, shown as named } from "../names.js";
import { objective, objectiveControl } from "../objectives.js";
import { cell, direction, reading } from "../readings.js";
import { byImportance, look, modelsOf, seriesOf } from "../series.js";
import { taking } from "../share.js";
import { scroller, table } from "../tables.js";


export const needsLabels = true;

const AGAIN_MS = 4000;
const AT_FIRST = 3; // versions
const ON_PHONE = 4; // metrics of a family

const OPERATING = ["pauc", "precision_at", "recall_at", "f1_at", "expected_cost", "rmse", "mse", "mae", "nmse"];
const YIELDS = ["click_yield", "mainline_click_yield", "value_per_impression", "value_per_request", "value_per_user"];
const USERS = ["gauc", "gauc_clicks", "gauc_uniform", "gauc_value", "gauc_request"];
const BY_VERSION = [OPERATING, USERS, YIELDS]; // families with a line for every metric
const LIST = /^((?:shown_)?(?:ndcg|map|precision|recall|hit_rate|click_hit_rate|mrr))(?:_(\d+))?(_by_user)?$/;
const LISTS = Object.keys(METRICS).filter((name) => LIST.test(name));
const ESTIMATORS = [["IPS", "ips"], ["IPS, clipped", "ips_clipped"], ["SNIPS", "snips"], ["SNIPS, clipped", "snips_clipped"]];

const LOSSES = ["log_loss", "mse", "mae", "calibration"];
const EXPOSURE = LOSSES.flatMap((of) => ESTIMATORS.map(([, how]) => `${of}_${how}`)).filter((name) => METRICS[name]);
// What a family's tables are as CSV: the button, the route, and further parameters.
const RESULTS = [["CSV", "results", { slice: "none" }]];
const STRATA = [["CSV", "strata", {}], ["CSV, combined", "strata", { rows: "stratified" }]];
const POLICIES = [...ESTIMATORS.map(([, how]) => `policy_${how}`), "policy_value_snips", "policy_value_snips_clipped"];

export function mount(root) {
  const tools = h("div", { class: "tools" });
  const note = h("div");
  const wide = matchMedia("(min-width: 761px)").matches; // on a phone only the first is unfolded
  const families = FAMILIES.map(({ name, about, has }, i) => {
    const place = h("div");
    return { place, root: h("details", { class: "family", "data-family": name, open: wide || i === 0, hidden: true }, h("summary", {}, h("h2", {}, name)), h("p", { class: "quiet" }, about), place, explained(has)) };
  });
  const left = h("div");
  root.append(tools, note, h("div", { class: "families" }, families.map((one) => one.root), left));
  const questions = asker();
  let overview = null;
  let given = {};
  let asked = { question: "", at: -Infinity };
  let answer = null;
  const cut = cuts(() => draw());

  function choice() {
    const models = modelsOf(overview);
    const model = models.includes(given.model) ? given.model : models[0];
    const all = seriesOf(overview).filter((one) => one.model === model);
    const wanted = (given.versions ? namesOf(given.versions) : []).filter((version) => all.some((one) => one.version === version));
    const first = [...all].sort(byImportance(overview).compare).slice(0, AT_FIRST).map((one) => one.version);
    const windows = [...new Set(overview.results.map((r) => r.window))];
    return { models, model, all, chosen: wanted.length ? wanted : first, windows, window: windows.includes(given.window) ? given.window : "all", objective: objective(overview, given) };
  }

  const asking = () => {
    const now = choice();
    return { model: now.model, window: now.window, objective: now.objective };
  };

  const here = () => {
    const now = choice();
    return href("metrics", { ...given, model: now.model, window: now.window, versions: listOf(now.chosen) });
  };

  const change = (part) => go("metrics", { ...given, ...part }, { replace: true });

  function drawTools(now) {
    const versions = now.all.map((one) => ({ value: one.version, text: shorten(one.version), title: one.version, look: look(overview, one) }));
    replace(
      tools,
      now.models.length > 1 ? select("Model", "model", now.models, now.model, (model) => change({ model, versions: null })) : null,
      select("Window", "window", now.windows, now.window, (window) => change({ window })),
      objectiveControl(overview, given, change),
      chips("Versions", versions, now.chosen, (chosen) => change({ versions: chosen.length ? listOf(chosen) : null })),
    );
  }

  function refresh() {
    const now = choice();
    const question = JSON.stringify([now.model, now.window, now.objective]);
    if (question === asked.question && performance.now() - asked.at < AGAIN_MS) return;
    asked = { question, at: performance.now() };
    const which = asking();
    questions
      .ask([["results", { ...which, slice: "none" }], ["strata", which]], (error) => replace(note, refusal(error, refresh, useToken)))
      .then((answers) => {
        if (!answers) return;
        replace(note);
        answer = { results: answers[0].results, strata: answers[1].tables };
        draw();
      });
  }

  function draw() {
    const now = choice();
    drawTools(now);
    if (!answer) return;
    const chosen = (rows) => now.all.filter((one) => now.chosen.includes(one.version)).flatMap((one) => rows.filter((row) => row.version === one.version && row.source === one.source && row.model === one.model));
    const rows = chosen(answer.results).map((row) => ({ ...row, own: look(overview, row).class }));
    replace(note, rows.length ? null : h("p", { role: "status" }, "No results of these versions."));
    for (const { root: own } of families) own.hidden = !rows.length;
    replace(left, rows.length ? absent(rows, BY_VERSION) : null);
    if (!rows.length) return;
    families.forEach(({ place: own }, i) => {
      const { name, content, tables = RESULTS } = FAMILIES[i];
      const shown = content(rows, cut, chosen(answer.strata));
      const none = shown instanceof Node && shown.matches("[data-nothing]");
      replace(own, shown, none ? null : taking(name, { link: here, times: false, csv: tables.map(([text, path, more]) => [text, () => [path, { ...asking(), ...more }]]) }));
    });
  }

  return {
    update(now, address) {
      overview = now;
      given = address;
      draw();
      refresh();
    },
    close: questions.stop,
  };
}

const version = (row) => h("span", { class: row.own }, h("span", { class: "swatch", "aria-hidden": "true" }), named(row.version));
const heading = (name, text = metric(name).name, first = true) => h("th", { scope: "row", class: first ? null : "again" }, first ? metricTerm(name, text) : text, first ? h("span", { class: "quiet below" }, direction(name)) : null);

// What each metric is, in a sentence; of those cut after K the first.
function explained(names) {
  const seen = new Map();
  for (const name of names.filter((one) => METRICS[one])) seen.set(metric(name).name.replace(/@\d+/, ""), seen.get(metric(name).name.replace(/@\d+/, "")) ?? metric(name).about);
  return h("details", { class: "explained" }, h("summary", {}, "What these are"), h("dl", {}, [...seen].map(([name, about]) => h("div", {}, h("dt", {}, name), h("dd", {}, about)))));
}

// Why there is nothing to show, if that is the same everywhere; else null.
function nothing(rows, names) {
  const every = rows.flatMap((row) => names.map((name) => (row[name] ?? null) === null ? (row.reasons[name] ?? "not_configured") : null));
  return every.includes(null) ? null : h("p", { "data-nothing": "" }, `None: ${[...new Set(every)].map(reason).join("; ")}.`);
}

// A line for every metric, a column for every version.
function byVersion(names, rows, cut) {
  const some = names.filter((name) => !absence(rows, name));
  const words = once();
  const head = ["Metric", ...rows.map((row) => shorten(row.version, 18))];
  const [shown, more] = cut(names[0], some, ON_PHONE, `${some.length - ON_PHONE} more metrics`);
  return nothing(rows, names) ?? [scroller(names[0], table(head, shown.map((name) => [heading(name), ...rows.map((row, i) => reading(row, name, { words: words(i) }))]))), more];
}

// A line for every metric and version, a column for every K.
function ranking(rows, cut) {
  const parts = LISTS.map((name) => ({ name, found: LIST.exec(name) }));
  const ks = [...new Set(parts.map(({ found }) => found[2]).filter(Boolean))].sort((a, b) => a - b);
  const lines = new Map(); // NDCG, NDCG as shown, NDCG by user, ...: K -> name
  for (const { name, found: [, of, k = "", byUser = ""] } of parts) lines.set(`${of}${byUser}`, (lines.get(`${of}${byUser}`) ?? new Map()).set(k, name));
  const body = [...lines].sort(([a], [b]) => RANKED.indexOf(plain(a)) - RANKED.indexOf(plain(b))).flatMap(([, of]) => {
    const any = [...of.values()][0];
    return rows.map((row, i) => [heading(any, metric(any).name.replace(/@\d+/, ""), !i), version(row), ...[...ks, ""].map((k) => (of.has(k) ? reading(row, of.get(k)) : h("td")))]);
  });
  const lists = rows.map((row) => `${shorten(row.version)} ${count(row.requests)}, ${count(row.requests_clicked)} of them with a click`).join("; ");
  const [shown, more] = cut("ranking", body, 2 * rows.length, `${lines.size - 2} more metrics`);
  return nothing(rows, LISTS) ?? [scroller("Ranking of lists", table(["Metric", "Version", ...ks.map((k) => `K = ${k}`), "Whole list"], shown, { numeric: (i) => i > 1 })), more, h("p", { class: "quiet" }, `Requests: ${lists}.`)];
}

const RANKED = ["ndcg", "map", "mrr", "precision", "recall", "hit_rate", "click_hit_rate"];
const plain = (name) => name.replace("shown_", "").replace("_by_user", "");

// Clipped and unclipped side by side, and how much they rest on.
function exposure(rows, cut) {
  const body = LOSSES.flatMap((of) => rows.map((row, i) => [heading(of, undefined, !i), version(row), reading(row, of), ...ESTIMATORS.map(([, how]) => (METRICS[`${of}_${how}`] ? reading(row, `${of}_${how}`) : h("td")))]));
  const rests = rows.map((row) => [h("th", { scope: "row" }, version(row)), count(row.with_propensity), count(row.exposure_ess), count(row.exposure_ess_clipped), percent(row.exposure_clipped), percent(row.exposure_largest_weight)]);
  const [shown, more] = cut("exposure", body, rows.length, `${LOSSES.length - 1} more metrics`);
  return nothing(rows, EXPOSURE) ?? [
    scroller("As if everything had been shown equally often", table(["Metric", "Version", "As shown", ...ESTIMATORS.map(([text]) => text)], shown, { numeric: (i) => i > 1, class: "many" })),
    more,
    scroller("What these are based on", table(["Version", "Impressions with a propensity", "Effective samples", "Effective samples, clipped", "Clipped", "Largest weight, of all"], rests)),
  ];
}

function policies(rows) {
  const head = ["Version", "CTR as served", ...ESTIMATORS.map(([text]) => `Clicks, ${text}`), "Value, SNIPS", "Value, SNIPS, clipped", "Mean weight", "Effective samples", "Clipped"];
  const body = rows.map((row) => [h("th", { scope: "row" }, version(row)), reading(row, "ctr"), ...POLICIES.map((name) => reading(row, name)), reading(row, "policy_mean_weight"), count(row.policy_ess), percent(row.policy_clipped)]);
  const wrong = rows.filter((row) => POLICIES.some((name) => row.reasons[name] === "propensities_inconsistent"));
  const alarm = wrong.map((row) => h("p", { class: "warning", role: "status" }, `${shorten(row.version)}: the logged propensities are inconsistent (propensities_inconsistent). The mean weight of its policy is ${number(row.policy_mean_weight, 3)}, not 1, by more than 4 standard errors: what rests on propensities, here and above, is not to be trusted.`));
  return wrong.length ? [alarm, scroller("Policies", table(head, body, { class: "many" }))] : (nothing(rows, POLICIES) ?? [scroller("Policies", table(head, body, { class: "many" })), h("p", { class: "quiet" }, `Per impression; higher is better.`)]);
}

function strata(rows, cut, tables) {
  const why = tables.length && tables.every((one) => one.reason) ? tables[0].reason : null;
  if (why || !tables.length) return h("p", { "data-nothing": "" }, `None: ${why === "not_configured" || !why ? "not configured ([strata])" : reason(why)}.`);
  const own = (one) => rows.find((row) => row.version === one.version && row.source === one.source);
  const body = tables.flatMap((one) => one.strata.map((s) => [
    h("th", { scope: "row" }, s.lower === null ? "without a propensity" : `${significant(s.lower)} to ${significant(s.upper)}`),
    version(own(one)), count(s.impressions), count(s.clicks), ...[[s.log_loss, 4], [s.calibration, 3], [s.auc_of_clicks, 4]].map(([value, digits]) => number(value, digits)),
  ]));
  const weightings = { share: "By share", plain: "Plain", uniform_exposure: "Uniform exposure" };
  const together = Object.keys(tables[0].stratified).flatMap((of) => tables.filter((one) => one.stratified[of]).map((one, i) => [heading(of, undefined, !i), version(own(one)), ...Object.keys(weightings).map((name) => cell(one.stratified[of][name], null, null, "no_propensities", { write: (v) => number(v, 4), name }))]));
  const [some, more] = cut("strata", body, tables[0].strata.length, `those of ${tables.length - 1} more versions`);
  const [first, others] = cut("together", together, 2 * tables.length, `${Object.keys(tables[0].stratified).length - 2} more metrics`);
  return [
    scroller("Strata of propensity", table(["Propensity", "Version", "Impressions", "Clicks", "Log loss", "Calibration", "AUC of clicks"], some, { numeric: (i) => i > 1 })),
    more,
    scroller("Put together", table(["Metric", "Version", ...Object.values(weightings)], first, { numeric: (i) => i > 1 })),
    others,
  ];
}

const FAMILIES = [
  { name: "At the operating point", has: OPERATING, about: "Where decisions are made: over metrics.operating_range, and at metrics.threshold.", content: (rows, cut) => byVersion(OPERATING, rows, cut) },
  { name: "Ranking of lists", has: LISTS, about: "Requests ranked by each version's scores, ties at their expectation, cut after K; \"as shown\" by the position shown. A request without a click counts only for precision and hit rate.", content: ranking },
  { name: "Within users and requests", has: USERS, about: "AUC of each group, averaged; the weights of the groups side by side.", content: (rows, cut) => byVersion(USERS, rows, cut) },
  { name: "Yields and value", has: YIELDS, about: "Only what a version served itself: to compare versions with different users, use Comparisons.", content: (rows, cut) => byVersion(YIELDS, rows, cut) },
  { name: "As if everything had been shown equally often", has: [...EXPOSURE, "exposure_ess", "exposure_clipped"], about: "Impressions are weighted by 1 / propensity. Clipped: no weight above exposure.max_weight; where the two differ, few impressions dominate.", content: exposure },
  { name: "Policies", has: [...POLICIES, "policy_mean_weight", "policy_ess"], about: "What each version would have earned with its own policy. The mean weight is 1 if the logged propensities are right.", content: policies },
  { name: "Strata of propensity", has: ["log_loss", "calibration", "auc"], about: "AUC of clicks: how often a click of the stratum outscores a non-click of any. Combined: by share (the overall mean), plain (equal weights), and as under uniform exposure.", content: strata, tables: STRATA },
];
