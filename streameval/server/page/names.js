// Names of versions, which may be long, and the badges that say what a version is there for.

import { h, svg } from "./dom.js";
import { percent } from "./format.js";

const MOST = 24; // characters; what tells versions apart is at either end

export function shorten(name, most = MOST) {
  const letters = [...name]; // a name may hold characters of two units
  if (letters.length <= most) return name;
  const head = Math.ceil((most - 1) / 2);
  return `${letters.slice(0, head).join("")}…${letters.slice(head + 1 - most).join("")}`;
}

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
export function badge({ role, traffic_share: share, source }) {
  if (!role) return h("span", { class: "role" }, source);
  return h("span", { class: "role", "data-role": role }, role === "live" && share !== null ? `live ${percent(share, 0)}` : role);
}
