// Which series there are, and the colour and dash that each keeps in every view.

import { percent } from "./format.js";

export const key = ({ model, version, source }) => `${model}\u0000${version}\u0000${source}`;

export const label = ({ model, version }, several = true) => (several ? `${model} ${version}` : version);

// What a series is there for, in two words; "" when it is not known.
export const roleOf = ({ role, traffic_share: share }) => (role === "live" && share !== null ? `live ${percent(share, 0)}` : (role ?? ""));

// Whether it only scores what others serve: worth knowing, and no reason for alarm.
export const servesNobody = ({ role }) => role === "shadow" || role === "learning";

// The series of an overview, each once, in the order in which they were first seen.
export function seriesOf(overview) {
  const found = new Map();
  for (const { model, version, source } of overview.results) found.set(key({ model, version, source }), { model, version, source });
  return [...found.values()];
}

export const modelsOf = (overview) => [...new Set(seriesOf(overview).map((one) => one.model))];

// Told apart without colour too (dashes). The palette is Okabe and Ito's (2008), for colour-blind readers; style.css
// has its two variants.
const DASHES = [[], [7, 4], [2, 3], [10, 3, 2, 3], [4, 2], [12, 4]];

export function look(overview, series) {
  const index = Math.max(0, seriesOf(overview).findIndex((one) => key(one) === key(series)));
  return { index, class: `series-${index % 6}`, variable: `--series-${index % 6}`, dash: DASHES[index % DASHES.length] };
}

// The time up to which all labels are final, in unix seconds; null when it is not known.
export function labelsComplete(overview) {
  const times = overview.partitions.map((p) => (p.label_complete ? Date.parse(p.label_complete) / 1000 : null));
  return times.length === 0 || times.includes(null) ? null : Math.min(...times);
}
