// What each deploy did: verdict, evidence and interval over time, and which slices carry the difference.

import { go, href } from "../address.js";
import { asker, useToken } from "../api.js";
import { intervalHead, intervalLine } from "../charts/intervals.js";
import { timeline } from "../charts/timeline.js";
import { refusal, select } from "../controls.js";
import { amount, bounds, confidence, difference, MARKS, NOT_ANY_MORE, RATIOS, ticked, towardsWorse, VERDICTS } from "../differences.js";
import { h, replace } from "../dom.js";
import { metricTerm, term } from "../explain.js";
import { count, dateTime, DASH, inZone, number, significant } from "../format.js";
import { metric, reason, within } from "../metrics.js";
import { badge, shorten, shown as named } from "../names.js";
import { folds } from "../fold.js";
import { handling } from "../handling.js";
import { servesNobody, verdictsOf } from "../series.js";
import { taking } from "../share.js";
import { table } from "../tables.js";
import { awaited } from "../waiting.js";
import { breakdown, calibrationByBucket, changes, early, mixes, uniformExposure } from "./findings.js";


const AGAIN_MS = 4000;
const SETUPS = { paired: "on the same impressions", split: "on disjoint users", before_after: "before/after, which can only warn" };
const NOT_YET = [];
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
  const rest = h("div", { class: "rest" });
  const of = () => `comparisons/${encodeURIComponent(shown.id)}`;
  const here = () => href("comparisons", { id: shown.id, metric: given.metric });
  const titled = (what) => () => `${shown.model}: ${shorten(shown.candidate.version)} against ${shorten(shown.baseline.version)}, ${what === "difference" ? `${metric(given.metric ?? best(shown)).name} ` : ""}${what}`;
  const take = h("div", {}, taking("comparison", { link: here, csv: () => [of()], png: () => head, title: () => `${titled("difference by metric")()}, both bounds with ${confidence(shown)}`, print: true }));
  const takeBand = taking("difference over time", { link: here, csv: () => [of(), { rows: "looks" }], png: () => bandPlace, title: titled("difference") });
  const takeEvidence = taking("evidence over time", { link: here, csv: () => [of(), { rows: "looks" }], png: () => evidencePlace, title: titled("evidence that it is worse, e-value (log10)") });
  // what has been said is in the next snapshot
  const say = handling(() => shown, () => ((shownAsked = { id: null, at: -Infinity }), refreshDetail()));
  detail.append(head, say.root, take, tools, h("figure", {}, bandPlace, takeBand, bandCaption), h("figure", {}, evidencePlace, takeEvidence, evidenceCaption), rest);
  detail.hidden = true;
  const band = timeline(bandPlace, { height: 300 });
  const evidence = timeline(evidencePlace, { height: 170 });
  const questions = asker();
  const details = asker();
  let overview = null;
  let given = {};
  let asked = -Infinity;
  let all = NOT_YET;
  let deploys = [];
  let truncated = false; // more than are listed
  let shown = null; // the one in full
  const unfolded = new Set(); // dimensions of the breakdown that are shown in full
  const fold = folds();
  let shownAsked = { id: null, at: -Infinity };

  const change = (part, how) => go("comparisons", { ...given, ...part }, how);

  const wanted = () => given.id ?? shown?.id ?? first(overview)?.comparison ?? all[0]?.id;

  function refresh() {
    if (performance.now() - asked > AGAIN_MS) {
      asked = performance.now();
      questions
        .ask([["comparisons", { limit: 50 }], ["deploys", {}]], (error) => replace(note, refusal(error, refresh, useToken)))
        .then((answers) => {
          if (!answers) return;
          ({ comparisons: all, truncated } = answers[0]);
          // what is served first; within, the newest first, as they come
          all = [...all].sort((a, b) => servesNobody(a.candidate) - servesNobody(b.candidate));
          ({ deploys } = answers[1]);
          if (!all.length) replace(note, h("p", { class: "quiet" }, overview.results.length ? "No deploy has been compared yet. " : `${awaited(overview)} `, "A new version is detected from its traffic; CI/CD can announce it with ", h("code", {}, "streameval deploy"), "."));
          drawList();
          refreshDetail();
        });
    } else refreshDetail();
  }

  function refreshDetail() {
    const id = wanted();
    if (!id || (shownAsked.id === id && performance.now() - shownAsked.at < AGAIN_MS)) return;
    // older ones than are listed may still be there
    if (!truncated && !all.some((one) => one.id === id)) {
      if (asked > -Infinity && all !== NOT_YET) gone(id);
      return;
    }
    shownAsked = { id, at: performance.now() };
    details
      .ask([[`comparisons/${encodeURIComponent(id)}`]], (error) => (error.status === 404 ? gone(id) : replace(note, refusal(error, refresh, useToken))))
      .then((answers) => {
        if (!answers) return;
        [shown] = answers;
        replace(note);
        drawList();
        draw();
      });
  }

  // An address that is older than what it names must not show something else.
  function gone(id) {
    shown = null;
    detail.hidden = true;
    details.stop();
    if (given.id) replace(note, h("div", { class: "notice gone", role: "status" }, h("p", {}, `Comparison ${id} is not available: it never existed, or is no longer kept (compare.keep).`), h("p", {}, h("a", { href: href("comparisons") }, "All comparisons"))));
    drawList();
  }

  function drawList() {
    const now = wanted();
    replace(
      list,
      all.map((one) =>
        h(
          "li",
          {},
          h(
            "button",
            { type: "button", class: "deploy", "data-verdict": one.verdict, "data-calm": servesNobody(one.candidate), "data-supported": one.supported_now === false ? "false" : null, "data-focus": one.id, "aria-pressed": String(one.id === now), onclick: () => change({ id: one.id }) },
            h("strong", {}, named(one.model), " ", named(one.candidate.version), badge(one.candidate, overview)),
            h("span", { class: "badge", "data-verdict": one.verdict }, one.withheld ? "withheld" : one.reason === "learning" ? "learning" : VERDICTS[one.verdict]),
            h("span", { class: "quiet" }, `against ${shorten(one.baseline.version)}, ${SETUPS[one.setup]}`),
            one.supported_now === false ? h("span", { class: "quiet" }, NOT_ANY_MORE) : null,
            h("span", { class: "quiet" }, `since ${dateTime(one.start)}${one.handling ? `, ${one.handling.state}` : ""}`),
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
      h("div", { class: "verdict", "data-verdict": one.verdict, "data-calm": servesNobody(one.candidate), "data-supported": one.supported_now === false ? "false" : null }, h("span", { class: "says" }, h("strong", {}, headline(one, overview)), h("span", { class: "quiet" }, `${SETUPS[one.setup]}; ${amount(one, count)} since ${dateTime(one.start)}; last updated ${dateTime(one.looked)}`))),
      decided(one),
      handled(one),
      h("div", { class: "scroll stacked" }, metricTable(one, name, (of) => change({ metric: of }, { replace: true }))),
      h("p", { class: "quiet" }, `Each metric is evaluated on its own, and at every moment: in the table both bounds of its interval hold together with ${confidence(one)} confidence.${one.decided_on ? ` The bounds above it are those that the verdict rests on: each holds with ${confidence(one)} by itself, so they are closer.` : ""} The verdict weighs all metrics, with ${confidence(one)} in total.`),
    );
    say.draw();
    replace(tools, select("Metric", "metric", one.metrics.map((m) => [metric(m.metric).name, m.metric]), name, (of) => change({ metric: of }, { replace: true })));
    drawCharts(one, name, now);
    drawRest();
  }

  function drawRest() {
    const toggle = (dimension) => {
      if (!unfolded.delete(dimension)) unfolded.add(dimension);
      drawRest();
    };
    replace(rest, breakdown(shown, unfolded, toggle, fold), calibrationByBucket(shown, fold), mixes(shown, fold), uniformExposure(shown, fold), early(shown, fold), changes(shown, deploys.find((one) => one.id === shown.deploy)));
  }

  function drawCharts(one, name, now) {
    const times = one.looks.map((look) => Date.parse(look.at) / 1000);
    const of = one.looks.map((look) => look.metrics[name]);
    const form = (v) => difference(name, v);
    const limits = RATIOS.has(name) ? [-1, null] : [-1, 1]; // of a difference
    const worse = towardsWorse(name);
    const levels = [{ value: 0, text: "no difference" }];
    if (now.margin) levels.push({ value: worse * now.margin, text: "margin" });
    // the first look alone has no length
    const range = times.length > 1 ? undefined : [Date.parse(one.start) / 1000, Math.max(...times, Date.parse(one.start) / 1000 + 60)];
    band.draw({
      lines: [{ name: "difference", look: VERSIONS_LOOK.candidate, x: times, y: of.map((m) => m?.difference ?? null), low: of.map((m) => within(limits, m?.lower ?? null)), high: of.map((m) => within(limits, m?.upper ?? null)) }],
      levels, limits, range, format: form, tick: (v, digits) => ticked(name, v, digits),
    });
    replace(bandCaption, h("p", {}, metricTerm(name), `, ${shorten(one.candidate.version)} − ${shorten(one.baseline.version)}${RATIOS.has(name) ? " (ratio − 1)" : ""}. The band is an anytime-valid ${confidence(one)} confidence sequence: it holds at all moments at once, for this metric on its own. Beyond the margin (${form(worse * (now.margin ?? 0))}) the candidate is worse. ${now.reason ? reason(now.reason) : ""}`));
    evidence.draw({
      lines: [{ name: "evidence", look: VERSIONS_LOOK.candidate, x: times, y: one.looks.map((look) => look.log_e / Math.LN10) }],
      levels: [{ value: -Math.log10(one.alpha), text: `worse above ${significant(-Math.log10(one.alpha))}` }, { value: 0, text: "" }],
      range, format: (v) => significant(v, 3),
    });
    replace(evidenceCaption, h("p", {}, `Evidence that the candidate is worse, all metrics together: e-value (log10); above ${significant(-Math.log10(one.alpha))}, an e-value of ${significant(1 / one.alpha)}, it is worse. It stays valid however often it is checked.`));
  }

  // on paper nothing is folded
  const unfold = () => {
    if (!shown) return;
    for (const { dimension } of shown.findings) unfolded.add(dimension);
    fold.all(true);
    drawRest();
  };
  const again = () => fold.all(false);
  window.addEventListener("beforeprint", unfold);
  window.addEventListener("afterprint", again);

  return {
    update(now, address) {
      overview = now;
      const other = address.id !== given.id || address.metric !== given.metric;
      given = address;
      if (other) {
        drawList();
        if (shown?.id === wanted()) draw();
      }
      refresh();
    },
    close() {
      window.removeEventListener("beforeprint", unfold);
      window.removeEventListener("afterprint", again);
      questions.stop();
      details.stop();
      band.close();
      evidence.close();
    },
  };
}

// What is live and worse, or else what the overview begins with.
const first = (overview) => verdictsOf(overview).find((one) => one.verdict === "worse" && !servesNobody(one)) ?? overview.verdicts[0];

// The words of the verdict; what is claimed stands out from its evidence.
function headline({ id, words }, overview) {
  const claim = verdictsOf(overview).find((one) => one.comparison === id)?.claim;
  const all = inZone(words, overview.as_of);
  return claim && all.startsWith(claim) ? [claim, h("span", { class: "evidence" }, all.slice(claim.length))] : all;
}

// Who has acknowledged or muted it, and why.
function handled({ handling: said, verdict }) {
  if (!said) return null;
  const then = said.verdict === verdict ? "" : ` (it was ${VERDICTS[said.verdict] ?? said.verdict} then)`;
  return h("p", { class: "handled" }, `${said.state === "muted" ? "Muted" : "Acknowledged"} by ${said.by}, ${dateTime(said.at)}${then}: ${said.reason}`);
}

// What the verdict was decided on, then and now; null while undecided.
function decided(one) {
  const { decided_on: on, decided_now: now, supported_now: supported } = one;
  if (!on) return null;
  const told = (e, when) => [h("b", {}, difference(on.metric, e.difference)), ` (${bounds(on.metric, e)})`, h("span", { class: "quiet below" }, `${when}, each bound with ${confidence(one)}`)];
  const row = (name, ...value) => h("div", {}, h("dt", {}, name), h("dd", {}, ...value));
  return h(
    "dl",
    { class: "facts decided" },
    row(`Decided ${dateTime(one.decided_at)} on ${metric(on.metric).name}${on.alone ? "" : ", together with the other metrics"}`, told(on, "Interval at the decision")),
    row(on.since && on.since !== one.start ? `Now, on the traffic since ${dateTime(on.since)}` : "Now", now ? told(now, "Interval now") : DASH, supported ? null : h("span", { class: "badge" }, NOT_ANY_MORE)),
  );
}

// The metric that the verdict was decided on; while undecided the one with the most evidence either way.
function best({ metrics, decided_on: on }) {
  if (on) return on.metric;
  const evidence = (m) => Math.max(m.log_e_worse ?? 0, m.verdict === "worse" ? Infinity : 0);
  return [...metrics].sort((a, b) => evidence(b) - evidence(a))[0].metric;
}

// One line per metric: the picture, and the numbers of it.
function metricTable(one, chosen, choose) {
  const calm = servesNobody(one.candidate);
  const chooser = (m) => h("button", { type: "button", class: "link", "data-focus": `metric-${m.metric}`, "aria-pressed": String(m.metric === chosen), title: "Show it over time", onclick: () => choose(m.metric) }, metric(m.metric).name);
  const verdict = (m) => [
    h("span", { class: "badge", "data-verdict": m.verdict }, MARKS[m.verdict], " ", VERDICTS[m.verdict]),
    m.supported_now === false ? h("span", { class: "quiet" }, ` ${m.decided_at ? `since ${dateTime(m.decided_at)}; ` : ""}${NOT_ANY_MORE}`) : null,
    m.reason ? h("span", { class: "quiet" }, ` ${m.reason === "not_compared" && m.metric === "calibration" ? "not compared: only a serving version has its own calibration" : reason(m.reason)}`) : null,
  ];
  const picture = (m) => {
    const about = m.difference === null ? `${metric(m.metric).name}: not known` : `${metric(m.metric).name}: ${difference(m.metric, m.difference)}, ${bounds(m.metric, m)}; margin ${difference(m.metric, towardsWorse(m.metric) * m.margin)}${m.tolerance ? `, tolerance ${difference(m.metric, towardsWorse(m.metric) * m.tolerance)}` : ""}; ${VERDICTS[m.verdict]}`;
    const line = [metric(m.metric).name, `${MARKS[m.verdict]} ${VERDICTS[m.verdict]}${m.supported_now === false ? `, ${NOT_ANY_MORE}` : ""}`, m.difference === null ? "not known" : `${difference(m.metric, m.difference)} (${bounds(m.metric, m)})`];
    return h("td", { class: "interval" }, intervalLine(m, { worse: towardsWorse(m.metric), about, calm, line }));
  };
  const row = (m) => [
    h("th", { scope: "row" }, chooser(m)),
    h("td", { class: "text" }, verdict(m)),
    picture(m),
    [h("b", {}, difference(m.metric, m.difference)), m.candidate === null ? null : h("span", { class: "quiet from" }, `${number(m.baseline)} → ${number(m.candidate)}`)],
    bounds(m.metric, m),
    [difference(m.metric, m.margin === null ? null : towardsWorse(m.metric) * m.margin), m.tolerance ? h("span", { class: "quiet from" }, difference(m.metric, towardsWorse(m.metric) * m.tolerance)) : null],
  ];
  const names = ["Metric", "Verdict", intervalHead(), "Difference", term("anytime-valid interval", [h("span", { class: "unbroken" }, "Interval now, per metric:"), " ", h("span", { class: "unbroken" }, `both bounds ${confidence(one)}`)]), h("span", {}, term("margin", "Margin"), ", ", term("tolerance", "tolerance"))];
  return table(names, one.metrics.map(row), { numeric: (i) => i > 2, class: "intervals" });
}
