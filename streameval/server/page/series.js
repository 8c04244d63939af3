// Which series there are, and the colour and dash that each keeps in every view.

import { namesOf } from "./address.js";

export const key = ({ model, version, source }) => `${model}\u0000${version}\u0000${source}`;

export const label = ({ model, version }, several = true) => (several ? `${model} ${version}` : version);

// Whether it only scores what others serve: worth knowing, and no reason for alarm.
export const servesNobody = ({ role }) => role === "shadow" || role === "learning";

// The verdict on every model's newest deploy, then those on other live versions that are worse.
export function verdictsOf({ verdicts, worse }) {
  const newest = new Set(verdicts.map((one) => one.comparison));
  return [...verdicts, ...worse.flatMap((one) => one.verdicts).filter((one) => !newest.has(one.comparison))];
}

// Models, versions, objectives and windows that an address names and that are not there (any more): [[what, name], ...].
export function missing(overview, given) {
  if (!overview?.results.length) return [];
  const all = seriesOf(overview);
  const own = all.filter((one) => !given.model || one.model === given.model);
  const asked = [given.version, given.a, given.b === "none" ? null : given.b, ...(given.versions ? namesOf(given.versions) : [])].filter(Boolean);
  const found = [];
  if (given.model && !own.length) found.push(["model", given.model]);
  else found.push(...asked.filter((version) => !own.some((one) => one.version === version)).map((version) => ["version", version]));
  if (given.objective && !overview.objectives.includes(given.objective)) found.push(["objective", given.objective]);
  if (given.window && !overview.results.some((row) => row.window === given.window)) found.push(["window", given.window]);
  return found;
}

// v2 before v10.
const { compare } = new Intl.Collator("en", { numeric: true });
export const byName = (a, b) => compare(a.model, b.model) || compare(a.version, b.version) || compare(a.source, b.source);

// The series of an overview, each once, in the natural order of their names.
export function seriesOf(overview) {
  const found = new Map();
  for (const { model, version, source, role, traffic_share } of overview.results) found.set(key({ model, version, source }), { model, version, source, role, traffic_share });
  return [...found.values()].sort(byName);
}

export const modelsOf = (overview) => [...new Set(seriesOf(overview).map((one) => one.model))];

// What is looked at first: what people are served, and what it is compared with; then by name.
export function byImportance(overview) {
  const compared = new Set(verdictsOf(overview).filter((one) => !servesNobody(one)).map((one) => `${one.model}\u0000${one.baseline}`));
  const rank = (one) => (one.role === "live" ? 0 : compared.has(`${one.model}\u0000${one.version}`) ? 1 : one.role === "retired" ? 3 : 2);
  return { rank, compare: (a, b) => rank(a) - rank(b) || (b.traffic_share ?? 0) - (a.traffic_share ?? 0) || byName(a, b) };
}

// Told apart without colour too (dashes). The palette begins with Okabe and Ito's (2008), for colour-blind readers; style.css
// has its two variants. Colours are those of a model's versions, by name: charts are of one model.
const COLOURS = 12;
const DASHES = [[], [7, 4], [2, 3], [10, 3, 2, 3], [4, 2], [12, 4]];

export function look(overview, series) {
  const index = Math.max(0, seriesOf(overview).filter((one) => one.model === series.model).findIndex((one) => key(one) === key(series)));
  const colour = index % COLOURS;
  return { index, class: `series-${colour}`, variable: `--series-${colour}`, dash: DASHES[(index + Math.floor(index / COLOURS)) % DASHES.length] };
}

// The time up to which all labels are final, in unix seconds; null when it is not known.
export function labelsComplete(overview) {
  const times = overview.partitions.map((p) => (p.label_complete ? Date.parse(p.label_complete) / 1000 : null));
  return times.length === 0 || times.includes(null) ? null : Math.min(...times);
}
