// Numbers and times as people read them. Undefined is a dash, never 0.

export const DASH = "\u2013";
const MINUS = "\u2212";

export const number = (value, digits = 4) =>
  value === null || value === undefined ? DASH : value.toFixed(digits).replace("-", MINUS);

export const count = (value) => (value === null || value === undefined ? DASH : Math.round(value).toLocaleString("en"));

export function short(value) {
  if (value === null || value === undefined) return DASH;
  const size = Math.abs(value);
  if (size >= 1e9) return `${trim(value / 1e9)} G`;
  if (size >= 1e6) return `${trim(value / 1e6)} M`;
  if (size >= 1e4) return `${trim(value / 1e3)} k`;
  return count(value);
}

export const significant = (value, digits = 3) =>
  value === null || value === undefined ? DASH : String(Number(value.toPrecision(digits))).replace("-", MINUS);

export const signed = (value, digits = 4) =>
  value === null || value === undefined ? DASH : (value > 0 ? "+" : "") + number(value, digits);

export const percent = (value, digits = 1) =>
  value === null || value === undefined ? DASH : `${(value * 100).toFixed(digits).replace("-", MINUS)} %`;

export const signedPercent = (value, digits = 1) =>
  value === null || value === undefined ? DASH : (value > 0 ? "+" : "") + percent(value, digits);

export function bytes(value) {
  if (value === null || value === undefined) return DASH;
  const units = ["B", "kB", "MB", "GB", "TB"];
  let unit = 0;
  while (Math.abs(value) >= 1000 && unit < units.length - 1) {
    value /= 1000;
    unit += 1;
  }
  return `${value >= 100 || unit === 0 ? Math.round(value) : value.toFixed(1)} ${units[unit]}`;
}

export function duration(seconds) {
  if (seconds === null || seconds === undefined || Number.isNaN(seconds)) return DASH;
  if (seconds < 0.001) return `${Math.round(seconds * 1e6)} µs`;
  if (seconds < 1) return `${Math.round(seconds * 1000)} ms`;
  if (seconds < 120) return `${seconds < 10 ? seconds.toFixed(1) : Math.round(seconds)} s`;
  if (seconds < 7200) return `${Math.floor(seconds / 60)} min`;
  if (seconds < 172800) return `${Math.floor(seconds / 3600)} h`;
  return `${Math.floor(seconds / 86400)} d`;
}

export const age = (time, now = Date.now()) => duration(Math.max(0, (now - time) / 1000));

const HOURS = { hour: "2-digit", minute: "2-digit", hourCycle: "h23" };

export const clock = (time) => new Date(time).toLocaleTimeString([], { ...HOURS, second: "2-digit" });

export const hour = (time) => new Date(time).toLocaleTimeString([], HOURS);

export const day = (time) => new Date(time).toLocaleDateString([], { month: "short", day: "numeric" });

export const dateTime = (time) =>
  new Date(time).toLocaleString([], { month: "short", day: "numeric", ...HOURS });

const trim = (value) => (Math.abs(value) >= 100 ? Math.round(value) : value.toFixed(1));
