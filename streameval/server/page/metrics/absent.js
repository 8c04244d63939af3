// What is not there, and why: said once for a view, not in every cell.

import { h } from "../dom.js";
import { metric, reason } from "../metrics.js";

// The reason for which a metric is undefined for every version, if it is one and the same; else null.
export function absence(rows, name) {
  const every = new Set(rows.map((row) => ((row[name] ?? null) === null ? (row.reasons[name] ?? "not_configured") : null)));
  const [why] = every;
  return every.size === 1 ? why : null;
}

// Of families' metrics, those that no version has: a line for every reason. Families of which nothing is there say so themselves.
export function absent(rows, families) {
  const by = new Map(); // reason -> names
  for (const names of families) {
    const missing = names.map((name) => [name, absence(rows, name)]).filter(([, why]) => why);
    if (missing.length < names.length) for (const [name, why] of missing) if (why !== "not_configured") by.set(why, [...(by.get(why) ?? []), metric(name).name]);
  }
  if (!by.size) return null;
  return h("section", { class: "family absent" }, h("h2", {}, "Not measured"), h("dl", { class: "explained" }, [...by].map(([why, names]) => h("div", {}, h("dt", {}, `${names.join(", ")}:`), " ", h("dd", {}, `${reason(why)}.`)))));
}

// Cells of a table, column by column: what a column has said once is a dash from then on, with the words for who cannot see it.
export function once() {
  const said = new Set();
  return (column) => (why) => {
    const words = reason(why);
    const known = said.has(`${column}\0${why}`);
    said.add(`${column}\0${why}`);
    return known ? h("span", { class: "unseen" }, words) : words;
  };
}
