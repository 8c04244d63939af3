// What can be taken along: the address of what is shown (with times that stay), its numbers as CSV, a chart as a picture.

import { csv as rows } from "./api.js";
import { h } from "./dom.js";

const SAID_MS = 1500;

// The buttons under a chart or table. `link()`: an address within the page; `csv()`: [path, parameters] of the API, or several
// as [text, csv]; `png()`: the element that holds the chart; `title()`: of the
// picture, else `name`, which the files have. `times: false`: what is shown has no range of time.
export function taking(name, { link, csv, png, print, title, times = true }) {
  const one = (text, title, action) => {
    const act = (event) => said(event.currentTarget, text, action);
    return h("button", { type: "button", class: "take", title, "data-focus": `take-${name}-${text}`, onclick: act }, text);
  };
  return h(
    "div",
    { class: "taking", role: "group", "aria-label": `Take along: ${name}` },
    link ? one("Copy link", times ? "Copy an address that always shows these times" : "Copy the address of what is shown", () => copy(new URL(link(), location.href).href)) : null,
    (Array.isArray(csv) ? csv : csv ? [["CSV", csv]] : []).map(([text, question]) =>
      one(text, "Download the numbers, in full precision", () => rows(...question()).then((blob) => save(blob, `${file(`${name} ${text.replace(/^CSV[, ]*/, "")}`)}.csv`))),
    ),
    png ? one("PNG", "Download the chart as a picture", () => drawn(png(), title?.() ?? name).then((blob) => save(blob, `${file(name)}.png`))) : null,
    print ? one("Print", "Print all of this comparison, for a report", async () => window.print()) : null,
  );
}

// How to draw it is loaded when it is first asked for.
const drawn = async (place, title) => (await import("./picture.js")).picture(place, title);

// What happened is said in the button, also to who hears it.
async function said(button, text, action) {
  let words = text === "Copy link" ? "Copied" : text;
  try {
    await action();
  } catch (error) {
    words = `Failed: ${error.message}`;
  }
  if (words === text) return;
  button.textContent = words;
  button.setAttribute("role", "status");
  setTimeout(() => {
    button.textContent = text;
    button.removeAttribute("role");
  }, SAID_MS);
}

// Browsers have a clipboard over HTTPS and on localhost only; elsewhere an old way does.
export async function copy(text) {
  if (navigator.clipboard) return navigator.clipboard.writeText(text);
  const area = h("textarea", { readonly: true, "aria-hidden": "true" });
  document.body.append(area);
  area.value = text;
  area.select();
  const done = document.execCommand("copy");
  area.remove();
  if (!done) throw new Error("no clipboard");
}

export function save(blob, name) {
  const address = URL.createObjectURL(blob);
  h("a", { href: address, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(address), SAID_MS);
}

const file = (name) => name.toLowerCase().replaceAll(/[^a-z0-9]+/g, "-").replaceAll(/^-|-$/g, "").slice(0, 80);
