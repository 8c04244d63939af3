// What each deploy did: verdict, evidence and interval over time, and for whom.

import { go } from "../address.js";
import { asker, useToken } from "../api.js";
import { timeline } from "../charts/timeline.js";
import { refusal, select } from "../controls.js";
import { h, replace } from "../dom.js";
import { count, dateTime, DASH, number, percent, short, signed, signedPercent, significant } from "../format.js";
import { metric, reason } from "../metrics.js";
import { roleOf, servesNobody } from "../series.js";
import { table } from "../tables.js";

export const title = "Comparisons";

const AGAIN_MS = 4000;
const RATIOS = new Set(["log_loss", "calibration"]); // told as ratio less 1
const SETUPS = { paired: "on the same impressions", split: "on disjoint users", before_after: "before and after: can only warn" };
const VERDICTS = { worse: "worse", not_worse: "not worse", undecided: "undecided" };
const NOT_ANY_MORE = "no longer shown by current data";
const VERSIONS_LOOK = { candidate: { index: 0, variable: "--series-0", class: "series-0", dash: [] } };

export function mount(root) {
  const list = h("ul", { class: "deploys", "aria-label": "Comparisons, newest deploy first" });
  const note = h("div");
  const detail = h("div", { class: "detail" });
  root.append(h("div", { class: "columns" }, h("section", {}, h("h2", {}, "Deploys"), list), h("section", { class: "main" }, note, detail)));
  const head = h("div");
  const tools = h("div", { class: "tools" });
  const bandPlace = h("div", { class: "chart" });
  const evidencePlace = h("div", { class: "chart low" });
  const bandCaption = h("figcaption");
  const evidenceCaption = h("figcaption");
  const rest = h("div");
  detail.append(head, tools, h("figure", {}, bandPlace, bandCaption), h("figure", {}, evidencePlace, evidenceCaption), rest);
  detail.hidden = true;
  const band = timeline(bandPlace, { height: 300 });
  const evidence = timeline(evidencePlace, { height: 170 });
  const questions = asker();
  const details = asker();
  let overview = null;
  let given = {};
  let asked = -Infinity;
  let all = [];
  let shown = null; // the one in full
  let shownAsked = { id: null, at: -Infinity };

  const change = (part, how) => go("comparisons", { ...given, ...part }, how);

  function chosen() {
    const wanted = given.id ?? shown?.id ?? overview.verdicts.find((v) => v.verdict === "worse")?.comparison ?? overview.verdicts[0]?.comparison;
    return all.find((one) => one.id === wanted) ?? all[0];
  }

  function refresh() {
    if (performance.now() - asked > AGAIN_MS) {
      asked = performance.now();
      questions
        .ask([["comparisons", { limit: 50 }]], (error) => replace(note, refusal(error, refresh, useToken)))
        .then((answers) => {
          if (!answers) return;
          all = answers[0].comparisons;
          replace(note, all.length ? null : h("p", { class: "quiet" }, "No deploy has been compared yet. A version is noticed by its traffic; CI/CD can announce it with `streameval deploy`."));
          drawList();
          refreshDetail();
        });
    } else refreshDetail();
  }

  function refreshDetail() {
    const one = chosen();
    if (!one || (shownAsked.id === one.id && performance.now() - shownAsked.at < AGAIN_MS)) return;
    shownAsked = { id: one.id, at: performance.now() };
    details
      .ask([[`comparisons/${encodeURIComponent(one.id)}`]], (error) => replace(note, refusal(error, refresh, useToken)))
      .then((answers) => {
        if (!answers) return;
        [shown] = answers;
        draw();
      });
  }

  function drawList() {
    const now = chosen();
    replace(
      list,
      all.map((one) =>
        h(
          "li",
          {},
          h(
            "button",
            { type: "button", class: "deploy", "data-verdict": one.verdict, "data-calm": servesNobody(one.candidate), "data-focus": one.id, "aria-pressed": String(one === now), onclick: () => change({ id: one.id }) },
            h("strong", {}, `${one.model} ${one.candidate.version}`, roleOf(one.candidate) ? h("span", { class: "quiet source" }, roleOf(one.candidate)) : null),
            h("span", { class: "quiet" }, `against ${one.baseline.version}, ${SETUPS[one.setup]}`),
            h("span", { class: "badge", "data-verdict": one.verdict }, one.withheld ? "withheld" : one.reason === "learning" ? "learning" : VERDICTS[one.verdict]),
            one.supported_now === false ? h("span", { class: "quiet" }, NOT_ANY_MORE) : null,
            h("span", { class: "quiet" }, `since ${dateTime(one.start)}`),
          ),
        ),
      ),
    );
  }

  function draw() {
    detail.hidden = !shown;
    if (!shown) return;
    const one = shown;
    detail.toggleAttribute("data-calm", servesNobody(one.candidate));
    const name = given.metric && one.metrics.some((m) => m.metric === given.metric) ? given.metric : best(one);
    const now = one.metrics.find((m) => m.metric === name);
    replace(
      head,
      h("div", { class: "verdict", "data-verdict": one.verdict, "data-calm": servesNobody(one.candidate) }, h("span", { class: "says" }, h("strong", {}, one.words), h("span", { class: "quiet" }, `${SETUPS[one.setup]}; ${count(one.impressions)} impressions, ${count(one.clicks)} clicks since ${dateTime(one.start)}; looked at ${dateTime(one.looked)}`))),
      decided(one),
      h("div", { class: "scroll" }, metricTable(one, name, (of) => change({ metric: of }, { replace: true }))),
      h("p", { class: "quiet" }, `Each metric is judged by itself: its interval and its verdict hold with ${level(one)} at all looks. The verdict above weighs all metrics, with ${level(one)} in all; the bounds that it was decided on hold with ${level(one)} each.`),
    );
    replace(tools, select("Metric", "metric", one.metrics.map((m) => [metric(m.metric).name, m.metric]), name, (of) => change({ metric: of }, { replace: true })));
    drawCharts(one, name, now);
    replace(rest, findings(one), calibrationByBucket(one), mixes(one), early(one), changes(one));
  }

  function drawCharts(one, name, now) {
    const times = one.looks.map((look) => Date.parse(look.at) / 1000);
    const of = one.looks.map((look) => look.metrics[name]);
    const form = (v) => difference(name, v);
    const worse = towardsWorse(name);
    const levels = [{ value: 0, text: "no difference" }];
    if (now.margin) levels.push({ value: worse * now.margin, text: "margin" });
    // the first look alone has no length
    const range = times.length > 1 ? undefined : [Date.parse(one.start) / 1000, Math.max(...times, Date.parse(one.start) / 1000 + 60)];
    band.draw({
      lines: [{ name: "difference", look: VERSIONS_LOOK.candidate, x: times, y: of.map((m) => m?.difference ?? null), low: of.map((m) => m?.lower ?? null), high: of.map((m) => m?.upper ?? null) }],
      levels, range, format: form,
    });
    replace(bandCaption, h("p", {}, `${metric(name).name}, ${one.candidate.version} less ${one.baseline.version}${RATIOS.has(name) ? " (ratio less 1)" : ""}: the band holds at all looks at once with probability ${1 - one.alpha}, for this metric by itself; beyond the margin (${form(worse * (now.margin ?? 0))}) it is worse. ${now.reason ? reason(now.reason) : ""}`));
    evidence.draw({
      lines: [{ name: "evidence", look: VERSIONS_LOOK.candidate, x: times, y: one.looks.map((look) => look.log_e / Math.LN10) }],
      levels: [{ value: -Math.log10(one.alpha), text: `worse is proven above this (1 / ${one.alpha})` }, { value: 0, text: "" }],
      range, format: (v) => significant(v, 3),
    });
    replace(evidenceCaption, h("p", {}, "Evidence that it is worse, all metrics together: log10 of the e-value. It may be looked at as often as one likes."));
  }

  return {
    update(now, address) {
      overview = now;
      const other = address.id !== given.id || address.metric !== given.metric;
      given = address;
      if (other) {
        drawList();
        if (shown?.id === chosen()?.id) draw();
      }
      refresh();
    },
    close() {
      questions.stop();
      details.stop();
      band.close();
      evidence.close();
    },
  };
}

const level = (one) => `${(1 - one.alpha) * 100} %`;

// What the verdict fell on, then and now; null while undecided.
function decided(one) {
  const { decided_on: on, decided_now: now, supported_now: supported } = one;
  if (!on) return null;
  const told = (e) => `${difference(on.metric, e.difference)} (${e.lower === null ? DASH : difference(on.metric, e.lower)} to ${e.upper === null ? DASH : difference(on.metric, e.upper)})`;
  const row = (name, ...value) => h("div", {}, h("dt", {}, name), h("dd", {}, ...value));
  return h(
    "dl",
    { class: "facts decided" },
    row(`Decided ${dateTime(one.decided_at)} on ${metric(on.metric).name}${on.alone ? "" : ", with the other metrics"}`, told(on)),
    row(on.since && on.since !== one.start ? `Now, of the traffic since ${dateTime(on.since)}` : "Now", now ? told(now) : DASH, supported ? null : h("span", { class: "badge" }, NOT_ANY_MORE)),
  );
}

// The metric that the verdict fell on; while undecided the one with the most evidence either way.
function best({ metrics, decided_on: on }) {
  if (on) return on.metric;
  const evidence = (m) => Math.max(m.log_e_worse ?? 0, m.verdict === "worse" ? Infinity : 0);
  return [...metrics].sort((a, b) => evidence(b) - evidence(a))[0].metric;
}

const difference = (name, value) => (RATIOS.has(name) ? signedPercent(value, Math.abs(value ?? 0) < 0.01 ? 2 : 1) : signed(value, 4));

const towardsWorse = (name) => (metric(name).better > 0 ? -1 : 1);

function metricTable(one, chosen, choose) {
  const chooser = (m) => h("button", { type: "button", class: "link", "data-focus": `metric-${m.metric}`, "aria-pressed": String(m.metric === chosen), onclick: () => choose(m.metric) }, metric(m.metric).name);
  const row = (m) => [
    h("th", { scope: "row" }, chooser(m)),
    number(m.baseline, 4),
    number(m.candidate, 4),
    difference(m.metric, m.difference),
    m.lower === null ? DASH : `${difference(m.metric, m.lower)} to ${difference(m.metric, m.upper)}`,
    difference(m.metric, m.margin === null ? null : towardsWorse(m.metric) * m.margin),
    h("td", { class: "text" }, h("span", { class: "badge", "data-verdict": m.verdict }, VERDICTS[m.verdict]), m.supported_now === false ? h("span", { class: "quiet" }, ` ${m.decided_at ? `since ${dateTime(m.decided_at)}; ` : ""}${NOT_ANY_MORE}`) : null, m.reason ? h("span", { class: "quiet" }, ` ${reason(m.reason)}`) : null),
  ];
  const names = ["Metric", one.baseline.version, one.candidate.version, "Difference", `${level(one)} interval, per metric`, "Margin", "Verdict"];
  return table(names, one.metrics.map(row), { numeric: (i) => i > 0 && i < 6 });
}

function findings({ findings: all }) {
  if (!all.length) return null;
  const most = Math.max(...all.map((f) => Math.abs(f.share ?? 0)), 0.01);
  const row = (f) => [
    h("th", { scope: "row" }, `${f.dimension} = ${f.value}`),
    significant(f.difference),
    [signedPercent(f.share), h("meter", { min: 0, max: most, value: Math.max(0, f.share ?? 0), "aria-label": "share of the difference" })],
    short(f.impressions),
    short(f.clicks),
    f.significant ? "proven" : "not proven",
  ];
  const names = ["Part of the traffic", "Difference in log loss", "Share of the whole", "Impressions", "Clicks", "Evidence"];
  return h(
    "section",
    {},
    h("h2", {}, "For whom"),
    h("p", { class: "quiet" }, "The parts that carry the difference. “Proven” holds for all of them together (false discoveries are controlled, e-BH)."),
    h("div", { class: "scroll" }, table(names, all.slice(0, 20).map(row), { numeric: (i) => i > 0 && i < 5 })),
  );
}

function calibrationByBucket({ calibration_buckets: all, baseline, candidate }) {
  if (!all.length) return null;
  const row = (b) => [
    h("th", { scope: "row" }, b.bucket),
    number(b.baseline, 3),
    number(b.candidate, 3),
    signedPercent(b.difference),
    b.stderr === null ? DASH : percent(b.stderr),
    short(b.baseline_clicks),
    short(b.candidate_clicks),
    b.significant ? "proven" : "not proven",
  ];
  const names = ["pClick", `E/O of ${baseline.version}`, `E/O of ${candidate.version}`, "Further from 1 by", "Standard error", `Clicks, ${baseline.version}`, `Clicks, ${candidate.version}`, "Evidence"];
  return h(
    "section",
    {},
    h("h2", {}, "Calibration by pClick"),
    h("p", { class: "quiet" }, "Predicted clicks over clicks of each version on what it served itself, by its own pClick. “Proven” says that the candidate is further from 1 by more than the margin, and holds for all buckets together (e-BH)."),
    h("div", { class: "scroll" }, table(names, all.map(row), { numeric: (i) => i > 0 && i < 7 })),
  );
}

function mixes({ mixes: all }) {
  if (!all.length) return null;
  const row = (m) => [
    h("th", { scope: "row" }, m.dimension),
    m.metric === "ctr" ? "CTR" : metric(m.metric).name,
    significant(m.total),
    significant(m.mix),
    m.within_stderr === null ? significant(m.within) : `${significant(m.within)} ± ${significant(m.within_stderr, 2)}`,
    m.simpson ? h("td", { class: "text" }, h("span", { class: "badge", "data-verdict": "worse" }, "Simpson"), ` ${m.text ?? ""}`) : "",
  ];
  return h(
    "section",
    {},
    h("h2", {}, "Mix or model"),
    h("p", { class: "quiet" }, "What of the difference comes from other traffic (mix), and what from within equal traffic. “Simpson”: the whole and its parts say opposite things."),
    h("div", { class: "scroll" }, table(["Dimension", "Metric", "Difference", "Mix", "Within", "Reading"], all.map(row), { numeric: (i) => i > 1 && i < 5 })),
  );
}

const EARLY = {
  promised_auc: "AUC that the scores promise, if calibrated",
  promised_ctr: "CTR that the scores promise",
  corrected_calibration: "Calibration, corrected for clicks still to come",
  score_shift: "Shift of the scores (log odds)",
};

function early({ early: all, baseline, candidate }) {
  if (!all.length) return null;
  const row = (e) => [h("th", { scope: "row" }, EARLY[e.name] ?? e.name), number(e.baseline, 4), number(e.candidate, 4), reason(e.reason)];
  return h(
    "section",
    {},
    h("h2", {}, "Early readings"),
    h("p", { class: "quiet" }, "Estimates from before labels are final; never a verdict."),
    h("div", { class: "scroll" }, table(["Estimate", baseline.version, candidate.version, ""], all.map(row), { numeric: (i) => i > 0 && i < 3 })),
  );
}

function changes({ changes: all }) {
  if (!all.length) return null;
  return h("section", {}, h("h2", {}, "On record"), h("ol", { class: "record" }, all.map((c) => h("li", {}, h("time", { datetime: c.at, class: "quiet" }, dateTime(c.at)), ` ${c.text}`))));
}
