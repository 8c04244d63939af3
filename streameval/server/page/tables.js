// Tables as they are everywhere: names above, rows of cells. A cell is a text, a list of children, or a `th`/`td` of its own.

import { h } from "./dom.js";

export function table(names, rows, { numeric = (i) => i > 0, ...attributes } = {}) {
  const at = (i) => (numeric(i) ? "number" : null);
  const head = (text, i) => (text ? h("th", { scope: "col", class: at(i) }, text) : h("td"));
  const cell = (content, i) => (content instanceof HTMLTableCellElement ? content : h("td", { class: at(i) }, content));
  return h("table", attributes, h("thead", {}, h("tr", {}, names.map(head))), h("tbody", {}, rows.map((cells) => h("tr", {}, cells.map(cell)))));
}
