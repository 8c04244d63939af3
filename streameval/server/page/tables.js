// Tables as they are everywhere: names above, rows of cells. A cell is a text, a list of children, or a `th`/`td` of its own.

import { h } from "./dom.js";

export function table(names, rows, { numeric = (i) => i > 0, ...attributes } = {}) {
  const at = (i) => (numeric(i) ? "number" : null);
  const head = (text, i) => (text ? h("th", { scope: "col", class: at(i) }, text) : h("td"));
  const cell = (content, i) => {
    const made = content instanceof HTMLTableCellElement ? content : h("td", { class: at(i) }, content);
    if (names[i]) made.dataset.label = names[i].textContent ?? names[i]; // for screens on which rows become cards
    return made;
  };
  return h("table", attributes, h("thead", {}, h("tr", {}, names.map(head))), h("tbody", {}, rows.map((cells) => h("tr", {}, cells.map(cell)))));
}

// What is wider than its place scrolls by keyboard, too; on a phone its rows are cards.
export const scroller = (label, content) => h("div", { class: "scroll stacked", tabindex: 0, role: "region", "aria-label": label, "data-focus": `scroll-${label}` }, content);
