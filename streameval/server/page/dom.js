// Elements without a framework: h("td", { class: "number", onclick: choose }, "text", otherElement).

import { held } from "./press.js";

const SVG = "http://www.w3.org/2000/svg";

export function h(name, attributes = {}, ...children) {
  return fill(document.createElement(name), attributes, children);
}

export function svg(name, attributes = {}, ...children) {
  return fill(document.createElementNS(SVG, name), attributes, children);
}

function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else node.setAttribute(name, value === true ? "" : String(value));
  }
  node.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
  return node;
}

// Replaces what an element holds, and gives the focus back to the control of the same name (of several, to the one in the same place). What is the same stays: an open
// list of options would close, and what somebody types would be lost, with every snapshot. Waits until nothing is pressed.
export function replace(parent, ...children) {
  if (held(parent, () => replace(parent, ...children))) return;
  const next = children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false);
  if (same(parent, next)) return;
  const active = parent.contains(document.activeElement) ? document.activeElement : null;
  const name = active?.dataset.focus;
  const nth = name ? named(parent, name).indexOf(active) : 0;
  parent.replaceChildren(...next);
  if (!name) return;
  const again = named(parent, name);
  (again[nth] ?? again[0])?.focus();
}

const named = (parent, name) => [...parent.querySelectorAll("[data-focus]")].filter((node) => node.dataset.focus === name);

function same(parent, next) {
  const now = [...parent.childNodes];
  return now.length > 0 && now.length === next.length && now.every((node, i) => (next[i] instanceof Node ? node.isEqualNode(next[i]) : node.nodeType === Node.TEXT_NODE && node.data === String(next[i])));
}
