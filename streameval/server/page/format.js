// Numbers and times as people read them. Undefined is a dash, never 0.

import { now } from "./clock.js";

export const DASH = "\u2013";
const MINUS = "\u2212";

// What rounds to zero has no sign.
const rounded = (value, digits) => value.toFixed(digits).replace(/^-(?=[0.]*$)/, "").replace("-", MINUS);

export const number = (value, digits = 4) => (value === null || value === undefined ? DASH : rounded(value, digits));

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

const plus = (value, text) => (value > 0 && /[1-9]/.test(text) ? `+${text}` : text);

export const signed = (value, digits = 4) => plus(value, number(value, digits));

export const percent = (value, digits = 1) => (value === null || value === undefined ? DASH : `${rounded(value * 100, digits)}%`);

export const signedPercent = (value, digits = 1) => plus(value, percent(value, digits));

// Parts of a whole, rounded so that they add up to the whole as it is rounded (by the largest remainders).
export function apportioned(parts, digits = 1) {
  const units = 10 ** (digits + 2);
  const exact = parts.map((part) => Number((part * units).toPrecision(12)));
  const made = exact.map(Math.floor);
  const left = Math.round(exact.reduce((sum, one) => sum + one, 0)) - made.reduce((sum, one) => sum + one, 0);
  const order = exact.map((one, i) => [one - made[i], i]).sort(([a], [b]) => b - a);
  for (const [, i] of order.slice(0, left)) made[i] += 1;
  return made.map((one) => one / units);
}

// A share of what was counted, to two digits, zeros too: 0.20% and 0.19%, 3.1%, 42%. Nothing is 0, and next to nothing not.
export function share(part) {
  if (!part) return "0";
  if (part < 0.0001) return "<0.01%";
  return percent(part, part < 0.00995 ? 2 : part < 0.0995 ? 1 : 0);
}

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
  if (seconds < 120) return `${seconds < 10 && !Number.isInteger(seconds) ? seconds.toFixed(1) : Math.round(seconds)} s`;
  if (seconds < 7200) return `${Math.floor(seconds / 60)} min`;
  if (seconds < 172800) return `${Math.floor(seconds / 3600)} h`;
  return `${Math.floor(seconds / 86400)} d`;
}

export const age = (time) => duration(Math.max(0, (now() - time) / 1000));

// All times of the page are in one zone, the browser's or UTC, and written the same way in every country.
const KEY = "streameval-zone";
const LOCALE = "en-GB";
export const local = Intl.DateTimeFormat().resolvedOptions().timeZone;
let utc = localStorage.getItem(KEY) === "utc";

export const inUtc = () => utc;
export const zone = () => (utc ? "UTC" : local);

export function changeZone() {
  utc = !utc;
  localStorage.setItem(KEY, utc ? "utc" : "local");
}

const write = (time, parts) => new Date(time).toLocaleString(LOCALE, { ...parts, timeZone: utc ? "UTC" : undefined });
const HOURS = { hour: "2-digit", minute: "2-digit", hourCycle: "h23" };
const SECONDS = { ...HOURS, second: "2-digit" };
const DAY = { month: "short", day: "numeric" };

export const clock = (time) => write(time, SECONDS);

export const hour = (time) => write(time, HOURS);

export const day = (time) => write(time, DAY);

export const dateTime = (time, { seconds = false } = {}) => write(time, { ...DAY, ...(seconds ? SECONDS : HOURS) });

// Words of the API, which gives times as "12:03 UTC" (with the date when it is another day than `at`, that of the snapshot), in the page's zone.
export function inZone(words, at) {
  if (utc) return words;
  return words.replace(/(?:(\d{4}-\d\d-\d\d) )?(\d\d:\d\d) UTC/g, (text, date, of) => {
    let time = Date.parse(`${date ?? new Date(at).toISOString().slice(0, 10)}T${of}:00Z`);
    if (!date && time > Date.parse(at) + 60_000) time -= 86_400_000; // of the day before
    if (Number.isNaN(time) || new Date(time).getTimezoneOffset() === 0) return text;
    return day(time) === day(at) ? hour(time) : dateTime(time);
  });
}

// On an axis: as many digits as tell a share from zero.
export const percentTick = (value) => percent(value, value > 0 ? Math.max(0, -Math.floor(Math.log10(value * 100) + 1e-9)) : 0);

const trim = (value) => (Math.abs(value) >= 100 ? Math.round(value) : value.toFixed(1));
