// Parts of a view that open and close. On a phone they are closed at first: what somebody on call needs first fits on few screens.

import { button } from "./controls.js";
import { h } from "./dom.js";

export const onPhone = () => matchMedia("(max-width: 760px)").matches;

// `fold(name, heading, content)`: a part under its heading, which on a phone opens and closes it. What somebody has opened stays open
// while the view is drawn again; `all(true)` opens everything, for paper.
// What is never folded, as a part of a view of which others are.
export const plainly = (_, heading, ...content) => [h("h2", {}, heading), content];

export function folds() {
  const chosen = new Map();
  let every = false;
  const fold = (name, heading, ...content) => {
    if (!onPhone()) return plainly(name, heading, ...content);
    const open = every || chosen.get(name);
    const root = h("details", { class: "fold", "data-fold": name, open }, h("summary", { "data-focus": `fold-${name}` }, h("h2", {}, heading)), content);
    root.firstChild.addEventListener("click", () => chosen.set(name, !root.open)); // before it changes
    return root;
  };
  fold.all = (open) => (every = open);
  return fold;
}

// Of long tables a phone has the first lines, and a button for the others: `cut(name, lines, most, what)` gives [lines, button]. `again()` draws.
export function cuts(again) {
  const whole = new Set();
  return (name, lines, most, what = "more") => {
    if (!onPhone() || lines.length <= most) return [lines, null];
    const open = whole.has(name);
    const toggle = () => {
      if (!whole.delete(name)) whole.add(name);
      again();
    };
    return [open ? lines : lines.slice(0, most), button(open ? "Show fewer" : `Show ${what}`, toggle, { "aria-expanded": String(open), "data-focus": `cut-${name}` })];
  };
}
