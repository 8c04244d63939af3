// One wide chart: what is live against what it is compared with, over the last panes, with the deploy.

import { go, href, listOf } from "../address.js";
import { timeline } from "../charts/timeline.js";
import { select } from "../controls.js";
import { h, replace } from "../dom.js";
import { metricTerm } from "../explain.js";
import { number } from "../format.js";
import { lineOf } from "../lines.js";
import { metric, OVERVIEW, rangeOf } from "../metrics.js";
import { shorten } from "../names.js";
import { byImportance, key, labelsComplete, seriesOf, servesNobody, verdictsOf } from "../series.js";
import { taking } from "../share.js";

// `change(part)`: of the address.
export function leading(root, change) {
  const tools = h("div", { class: "tools" });
  const place = h("div", { class: "chart" });
  const empty = h("p", { class: "quiet empty" }, "A point is added for every pane whose labels are final.");
  const take = h("div");
  root.append(tools, h("figure", {}, h("div", { class: "framed" }, empty, place), take));
  const chart = timeline(place, { height: 260, screen: 0.36 });
  let fixed = {}; // what is shown, as an address of the history

  function draw(overview, given, { lines, deploys }) {
    const verdict = pick(overview, given.model);
    const both = verdict ? pair(overview, verdict) : foremost(overview, given.model);
    root.hidden = !both.length;
    if (!both.length) return;
    const { model } = both[0];
    const decided = verdict?.decided_on?.metric;
    const name = OVERVIEW.includes(given.metric) ? given.metric : OVERVIEW.includes(decided) ? decided : "auc";
    const models = [...new Set(seriesOf(overview).filter((one) => !servesNobody(one)).map((one) => one.model))];
    const heading = both.length > 1 ? `${shorten(both[0].version, 16)} against ${shorten(both[1].version, 16)}` : shorten(both[0].version, 24);
    replace(
      tools,
      h("h2", {}, metricTerm(name), ` of ${shorten(model)}, `, heading),
      models.length > 1 ? select("Model", "model", models, model, (of) => change({ model: of })) : null,
      select("Metric", "metric", OVERVIEW.map((id) => [metric(id).name, id]), name, (of) => change({ metric: of })),
    );
    const { digits, ideal } = metric(name);
    const shown = both.map((one) => lines[name]?.get(key(one)) && lineOf(overview, { ...one, columns: lines[name].get(key(one)) }, rangeOf(name))).filter(Boolean);
    const times = shown.flatMap((line) => line.x);
    empty.hidden = times.length > 0;
    if (!times.length) return;
    const range = [Math.min(...times), Math.max(...times, Math.min(...times) + 60)];
    const markers = deploys.filter((one) => one.model === model && one.kind !== "shadow").map((one) => ({ at: Date.parse(one.at) / 1000, text: `${shorten(one.version, 12)}${one.kind === "deploy" ? "" : ` (${one.kind})`}` }));
    fixed = { model, metric: name, versions: listOf(both.map((one) => one.version)), from: Math.floor(range[0]), to: Math.ceil(range[1]) };
    chart.draw({
      lines: shown, markers, range, from: labelsComplete(overview), limits: rangeOf(name), format: (v) => number(v, digits), tick: number,
      levels: ideal === undefined ? [] : [{ value: ideal, text: "" }],
      zoomed: (from, to) => go("history", { ...fixed, from: Math.round(from), to: Math.round(to) }),
    });
    replace(take, taking(`${metric(name).name} of ${model}`, {
      link: () => href("history", fixed),
      csv: () => ["series", { model: fixed.model, metric: fixed.metric, from: fixed.from, to: fixed.to }],
      png: () => place,
    }));
  }

  return { draw, close: chart.close };
}

// The verdict whose versions are drawn: of the model that is asked for, else of what is worse.
function pick(overview, model) {
  const served = verdictsOf(overview).filter((one) => !servesNobody(one) && (!model || one.model === model));
  return served.find((one) => one.verdict === "worse") ?? served[0];
}

// Without a verdict: the first two versions of the model that is asked for, else of one that serves.
function foremost(overview, model) {
  const all = [...seriesOf(overview)].sort(byImportance(overview).compare);
  const first = all.find((one) => one.model === model) ?? all.find((one) => one.role === "live") ?? all[0];
  return all.filter((one) => one.model === first?.model).slice(0, 2);
}

const pair = (overview, { model, candidate, baseline }) => [candidate, baseline].map((version) => seriesOf(overview).find((one) => one.model === model && one.version === version)).filter(Boolean);
