// Names of versions, which may be long, and the badges that say what a version is there for.

import { h, svg } from "./dom.js";
import { apportioned, percent } from "./format.js";
import { seriesOf } from "./series.js";

const MOST = 24; // characters; what tells versions apart is at either end
const CONTROLS = /[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]/gu; // of the direction of text
const FROM_THE_RIGHT = /[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufefc\u{10800}-\u{10fff}\u{1e800}-\u{1efff}]/u;

// A whole name, in which nothing turns the text around it.
export const visible = (name) => name.replace(CONTROLS, "\ufffd");

export function shorten(name, most = MOST) {
  const letters = [...visible(name)]; // a name may hold characters of two units
  if (letters.length <= most) return isolated(letters.join(""));
  const head = Math.ceil((most - 1) / 2);
  return isolated(`${letters.slice(0, head).join("")}…${letters.slice(head + 1 - most).join("")}`);
}

// Hebrew and Arabic would reverse the numbers that follow them in a sentence: such a name is set apart.
const isolated = (text) => (FROM_THE_RIGHT.test(text) ? `\u2068${text}\u2069` : text);

// As the head of a column.
export const headed = (name) => shorten(name, 14);

// A name in its place: whole on hovering (its title).
export function shown(name, most = MOST) {
  const short = shorten(name, most);
  return short === name ? name : h("span", { class: "long", title: name }, short);
}

// A button that copies what has been shortened; where the browser has no clipboard (plain HTTP) there is none.
export function copier(name, most = MOST) {
  if (shorten(name, most) === name || !navigator.clipboard) return null;
  const copy = (event) => {
    const button = event.currentTarget;
    navigator.clipboard.writeText(name).then(() => {
      button.replaceChildren("✓");
      setTimeout(() => button.replaceChildren(icon()), 1500);
    });
  };
  return h("button", { type: "button", class: "copy", title: "Copy the whole name", "aria-label": `Copy ${name}`, "data-focus": `copy-${name}`, onclick: copy }, icon());
}

// Two sheets of paper.
const icon = () => svg("svg", { viewBox: "0 0 16 16", width: 13, height: 13, "aria-hidden": "true" }, svg("rect", { x: 1.5, y: 1.5, width: 9, height: 9, rx: 1.5 }), svg("path", { d: "M5.5 14.5h7.5a1.5 1.5 0 0 0 1.5-1.5v-7.5" }));

// LIVE with the share of its model's traffic, SHADOW, LEARNING or RETIRED; the source where no role is known.
export function badge(one, overview) {
  const { role, source } = one;
  if (!role) return h("span", { class: "role" }, source);
  const share = role === "live" ? traffic(one, overview) : null;
  return h("span", { class: "role", "data-role": role }, share === null ? role : `live ${share}`);
}

// The share of its model's traffic that a version has: those of all that are live add up to 100%. Null where it is not known.
export function traffic({ model, version, candidate, traffic_share: share }, overview) {
  if ((share ?? null) === null) return null;
  const live = seriesOf(overview).filter((one) => one.model === model && one.role === "live" && one.traffic_share !== null);
  const i = live.findIndex((one) => one.version === (version ?? candidate) && one.traffic_share === share);
  return percent(i < 0 ? share : apportioned(live.map((one) => one.traffic_share), 0)[i], 0);
}
