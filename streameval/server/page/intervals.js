// How many standard errors a 95% interval is wide to either side.

const LARGE = 1.959964; // with so many degrees of freedom that their number does not matter
export const GROUPS_DF = 15; // of errors that leave out one of 16 groups of users at a time
const CELLS = 250;
const FINE = 1000;
const known = new Map(); // by 1 / df in thousandths: bands ask thousands of times

// Student's t with `df` degrees of freedom (null: very many). With less than one there is no telling: null.
export function halfWidth(df) {
  if (df === null || df === undefined) return LARGE;
  if (df < 1) return null;
  const key = Math.round(FINE / df);
  if (!known.has(key)) known.set(key, key ? quantile(FINE / key) : LARGE);
  return known.get(key);
}

// The ends of the interval, null where they are unknown.
export function interval(value, stderr, df) {
  const width = stderr === null ? null : halfWidth(df);
  return value === null || width === null ? null : { low: value - width * stderr, high: value + width * stderr, half: width * stderr };
}

// With t = sqrt(df) tan(a) the density is as cos(a)^(df - 1), so 95% are below an angle: midpoints up to there.
function quantile(df) {
  const cell = Math.PI / 2 / CELLS;
  const parts = Array.from({ length: CELLS }, (_, i) => Math.cos((i + 0.5) * cell) ** (df - 1));
  let left = 0.95 * parts.reduce((sum, part) => sum + part, 0);
  let i = 0;
  while (left > parts[i]) left -= parts[i++];
  return Math.sqrt(df) * Math.tan((i + left / parts[i]) * cell);
}
