// The models, a body of rows each: the versions that matter, what they differ by from what they replaced, and their last panes.

import { href } from "../address.js";
import { sharedScale, sparkline } from "../charts/sparkline.js";
import { button } from "../controls.js";
import { bounds, confidence, difference, MARKS, NOT_ANY_MORE, shows, VERDICTS } from "../differences.js";
import { h } from "../dom.js";
import { metricTerm, term } from "../explain.js";
import { age, count, DASH, number, short, significant } from "../format.js";
import { interval } from "../intervals.js";
import { metric, OVERVIEW as SHOWN, rangeOf, reason, within } from "../metrics.js";
import { badge, copier, shorten, shown } from "../names.js";
import { byImportance, byName, key, look, servesNobody, verdictsOf } from "../series.js";

const MOST_NAME = 20; // characters of a version: every column fits on 1,280 pixels
const ALL_SHOWN = 6; // versions of a model; of more, those that matter are shown and the others folded
const COMPARED = ["log_loss", "auc", "gauc", "calibration"];

// `lines`: metric -> key -> columns; `deploys`: of the series; `fold`: { unfolded, again }.
export function modelTable(overview, rows, { lines, deploys }, { unfolded, again }) {
  const columns = SHOWN.length + 3;
  const head = h(
    "tr",
    {},
    h("th", { scope: "col" }, "Version"),
    h("th", { scope: "col" }, term("baseline", "Difference")),
    SHOWN.map((name) => h("th", { scope: "col", class: "number" }, metricTerm(name))),
    h("th", { scope: "col", class: "number" }, term("label", "Impressions")),
  );
  const order = byImportance(overview);
  const models = [...new Set([...rows].sort(byName).map((row) => row.model))];
  const bodies = models.map((model) => {
    const own = rows.filter((row) => row.model === model).sort(order.compare);
    const most = own.length <= ALL_SHOWN || unfolded.has(model) ? own.length : Math.max(1, own.filter((row) => order.rank(row) < 2).length);
    const toggle = () => {
      if (!unfolded.delete(model)) unfolded.add(model);
      again();
    };
    const more = own.length > ALL_SHOWN ? h("tr", { class: "more" }, h("td", { colspan: columns }, button(most < own.length ? `Show ${own.length - most} more versions` : "Show fewer versions", toggle, { "aria-expanded": String(most === own.length), "data-focus": `more-${model}` }))) : null;
    const seen = own.slice(0, most);
    const scales = Object.fromEntries(SHOWN.map((name) => [name, sharedScale(seen.map((row) => lines[name]?.get(key(row))).filter(Boolean))]));
    const marks = deploys.filter((one) => one.model === model && one.kind !== "shadow").map((one) => Date.parse(one.at) / 1000);
    return h(
      "tbody",
      {},
      h("tr", { class: "model" }, h("th", { scope: "rowgroup", colspan: columns }, shown(model, 60))),
      seen.map((row) => modelRow(overview, row, lines, { scales, marks })),
      doubts(seen, columns),
      apart(overview, seen, columns),
      more,
    );
  });
  return h("table", { class: "models" }, h("thead", {}, head), bodies);
}

function modelRow(overview, row, lines, drawn) {
  const id = key(row);
  const style = look(overview, row);
  const name = h(
    "th",
    { scope: "row", class: style.class },
    h("span", { class: "name" }, h("span", { class: "swatch", "aria-hidden": "true" }), h("a", { href: href("history", { model: row.model, metric: "auc" }), "data-focus": `row-${id}` }, shown(row.version, MOST_NAME)), copier(row.version, MOST_NAME)),
    h("span", { class: "badges" }, badge(row, overview), row.reliable ? null : h("span", { class: "pill", "data-state": "lost" }, "not reliable")),
  );
  const newest = row.newest_label ? `last label ${age(Date.parse(row.newest_label))} ago` : "no label yet";
  return h(
    "tr",
    { class: style.class, "data-series": id },
    name,
    differences(overview, row),
    nothing(row) ?? SHOWN.map((of) => metricCell(row, of, lines[of]?.get(id), drawn)),
    h("td", { class: "number", "data-label": "Impressions" }, h("span", { class: "value" }, count(row.impressions)), h("span", { class: "quiet" }, `${perSecond(lines.auc?.get(id))}${short(row.clicks)} clicks`), h("span", { class: "quiet" }, newest)),
  );
}

// Why results are not reliable: a line for each reason below the versions, as a broken join doubts all of them alike.
function doubts(rows, columns) {
  const reasons = new Map();
  for (const row of rows) if (!row.reliable) reasons.set(row.reliable_reason, [...(reasons.get(row.reliable_reason) ?? []), shorten(row.version, MOST_NAME)]);
  return [...reasons].map(([why, versions]) => h("tr", { class: "doubt" }, h("td", { colspan: columns }, h("strong", {}, `${versions.join(", ")} not reliable`), `: ${why ?? "the reason is unknown"}.`)));
}

// Why sentences seem to contradict each other: a verdict, beside a metric that does not show it by itself.
function apart(overview, rows, columns) {
  const odd = rows.map((row) => verdictOn(overview, row)).filter((of) => of && compared(of).some((one) => seemsOtherwise(of, one)));
  if (!odd.length) return null;
  const [of] = odd;
  return h("tr", { class: "apart" }, h("td", { colspan: columns }, h("strong", {}, odd.map((one) => shorten(one.candidate, MOST_NAME)).join(", ")), `: each metric is evaluated on its own, and both bounds of its interval hold together (${confidence(of)}): they are wider than those that verdicts are based on, of ${confidence(of)} each. The verdict weighs all metrics.`));
}

const wider = (one) => one.verdict !== "undecided" && one.supported_now !== false && !shows(one);
const seemsOtherwise = (of, one) => wider(one) || (of.supported_now === true && otherwise(of, one));
const otherwise = (of, one) => one.supported_now === false || (of.verdict === "not_worse" ? one.verdict !== "not_worse" : one.metric === of.decided_on?.metric && one.verdict !== of.verdict);

// Impressions a second in the newest pane whose labels are final.
function perSecond(line) {
  const last = line ? line.start.length - 1 : -1;
  return last < 0 ? "" : `${significant(line.impressions[last] / line.seconds[last])}/s, `;
}

// What a candidate differs by from what it replaced: a line a metric, with sign and word beside the colour.
function differences(overview, row) {
  const cell = (...content) => h("td", { class: "differences", "data-label": "Difference" }, content);
  const of = verdictOn(overview, row);
  if (!of) {
    const baselineOf = verdictsOf(overview).find((one) => one.model === row.model && one.baseline === row.version);
    return cell(h("span", { class: "quiet" }, baselineOf ? "champion" : DASH));
  }
  const line = (one) =>
    h(
      "li",
      { "data-verdict": one.verdict, "data-calm": servesNobody(of) || one.supported_now === false, title: `${metric(one.metric).name} ${difference(one.metric, one.difference)} (${bounds(one.metric, one)}, both bounds with ${confidence(of)}${wider(one) ? ", wider than what it stands on" : ""}): ${VERDICTS[one.verdict]}${one.supported_now === false ? `, ${NOT_ANY_MORE}` : ""}` },
      h("span", {}, metric(one.metric).name),
      h("b", {}, difference(one.metric, one.difference)),
      h("span", {}, one.supported_now === false ? `${MARKS.undecided} no longer shown` : `${MARKS[one.verdict]} ${VERDICTS[one.verdict]}`),
    );
  const known = compared(of);
  if (!known.length) return cell(h("span", { class: "quiet" }, `to ${shorten(of.baseline, 14)}: not known yet`));
  return cell(h("span", { class: "quiet" }, `to ${shorten(of.baseline, 14)}`), h("ul", {}, known.map(line)));
}

const verdictOn = (overview, row) => verdictsOf(overview).find((one) => one.model === row.model && one.candidate === row.version);
const compared = (of) => of.metrics.filter((one) => COMPARED.includes(one.metric) && one.difference !== null);

// Why none of the metrics is known, where that is one and the same: said once.
function nothing(row) {
  const [why, ...others] = new Set(SHOWN.map((name) => ((row[name] ?? null) === null ? (row.reasons[name] ?? "") : null)));
  if (!why || others.length) return null;
  return h("td", { class: "number nothing", colspan: SHOWN.length, "data-label": "Metrics" }, h("span", { class: "value" }, DASH), h("span", { class: "quiet" }, reason(why)));
}

function metricCell(row, name, line, { scales, marks }) {
  const { name: label, digits } = metric(name);
  const value = row[name] ?? null;
  const ends = interval(value, row[`${name}_stderr`] ?? null, name === "gauc" ? row.gauc_stderr_df : row.stderr_df);
  const cell = h("td", { class: "number metric", "data-label": label, "data-metric": name });
  if (value === null) {
    cell.append(h("span", { class: "value" }, DASH), h("span", { class: "quiet" }, reason(row.reasons[name])));
    return cell;
  }
  const certified = name === "auc" && row.auc_error ? `; certified error ${significant(row.auc_error, 2)}` : "";
  const about = ends === null ? "" : `95%: ${number(within(rangeOf(name), ends.low), digits)} to ${number(within(rangeOf(name), ends.high), digits)}${certified}`;
  cell.append(
    h("span", { class: "value", title: about, "data-value": value }, number(value, digits)),
    h("span", { class: "quiet error", title: about }, ends === null ? "" : `± ${number(ends.half, digits)}`),
  );
  if (line) cell.append(sparkline(line, { about: `${label}, last ${line.value.length} panes`, scale: scales[name], marks }));
  return cell;
}
