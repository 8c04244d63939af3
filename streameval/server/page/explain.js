// What a word means, in its place: one sentence, which way is better, and a link. By mouse on hovering, by touch and by
// keyboard on pressing (Enter goes on to the link, Escape comes back).

import { h } from "./dom.js";
import { DOCS, METRICS } from "./registry.js";
import { TERMS } from "./terms.js";

const BETTER = { 1: "Higher is better.", "-1": "Lower is better." };
const CLOSE = 6; // pixels between a word and its explanation
const EDGE = 8;

// A term of the glossary (docs/make/terms.py finds it by this call), as the text that stands on the page.
export const term = (name, text = name) => word(name, text);

// A metric by its name in the API. What the table does not have is only written.
export const metricTerm = (name, text) => (METRICS[name] ? word(`metric:${name}`, text ?? METRICS[name].name) : (text ?? name));

const word = (key, text) => h("button", { type: "button", class: "term", "data-term": key, "data-focus": `term-${key}` }, text);

const place = h("div", { id: "explanation", popover: "manual", role: "note" });
document.body.append(place);
let shown = null; // the word that is explained
let by = null; // what shows it: "hover", "focus", or "press", which keeps it until it is closed

const sentence = (text) => `${text[0].toUpperCase()}${text.slice(1)}${/[.!?]$/.test(text) ? "" : "."}`;

function content(key) {
  const [kind, name] = key.startsWith("metric:") ? ["metric", key.slice(7)] : ["term", key];
  if (kind === "term") {
    const [meaning, section] = TERMS[name];
    return [h("p", {}, sentence(meaning)), link(section)];
  }
  const { about, better, ideal } = METRICS[name];
  const direction = BETTER[better] ?? (ideal === undefined ? "" : `Best at ${ideal}.`);
  return [h("p", {}, sentence(about), direction ? h("strong", {}, ` ${direction}`) : null), link("metrics")];
}

const link = (section) => h("a", { href: `${DOCS}/glossary.md#${section}`, target: "_blank", rel: "noopener" }, "More in the docs");

function show(button, how) {
  if (shown && shown !== button) shown.removeAttribute("aria-describedby");
  shown = button;
  by = how;
  place.replaceChildren(h("strong", {}, button.textContent), ...content(button.dataset.term));
  button.setAttribute("aria-describedby", "explanation");
  place.showPopover();
  beside(button);
}

function beside(button) {
  const at = button.getBoundingClientRect();
  const { width, height } = place.getBoundingClientRect();
  const below = at.bottom + CLOSE + height <= innerHeight;
  place.style.left = `${Math.max(EDGE, Math.min(at.left, innerWidth - width - EDGE))}px`;
  place.style.top = `${below ? at.bottom + CLOSE : Math.max(EDGE, at.top - CLOSE - height)}px`;
}

function hide() {
  if (!shown) return;
  shown.removeAttribute("aria-describedby");
  shown = null;
  by = null;
  place.hidePopover();
}

const wordAt = (target) => target.closest?.(".term") ?? null;

// Whether a word is the one explained. A snapshot may have drawn it anew: then the new one is it.
function explained(button) {
  if (shown && shown !== button && !shown.isConnected && shown.dataset.term === button.dataset.term) {
    shown = button;
    button.setAttribute("aria-describedby", "explanation");
  }
  return shown === button;
}

document.addEventListener("pointerover", ({ target, pointerType }) => {
  if (pointerType !== "mouse" || by === "press" || place.contains(target)) return;
  const button = wordAt(target);
  // a mouse that rests where a snapshot is drawn is told as one that moves: it closes only what it has opened
  if (!button && by === "hover") hide();
  else if (button && !explained(button)) show(button, "hover");
});
document.addEventListener("focusin", ({ target }) => {
  const button = wordAt(target);
  if (button?.matches(":focus-visible")) {
    if (!explained(button)) show(button, "focus");
    else if (by === "hover") by = "focus";
  } else if (!button && !place.contains(target)) hide();
});
document.addEventListener("click", ({ target, detail }) => {
  const button = wordAt(target);
  if (button && by === "press" && explained(button)) hide();
  else if (button) {
    show(button, "press");
    if (detail === 0) place.querySelector("a").focus(); // by keyboard
  } else if (!place.contains(target)) hide();
});
document.addEventListener("keydown", ({ key }) => {
  if (key !== "Escape" || !shown) return;
  const name = shown.dataset.term;
  const back = place.contains(document.activeElement);
  hide();
  // the word may have been drawn anew meanwhile
  if (back) [...document.querySelectorAll(".term")].find((one) => one.dataset.term === name)?.focus();
  hide();
});
// going on to a word by keyboard may scroll the page to it
addEventListener("scroll", () => (shown && shown === document.activeElement ? beside(shown) : hide()), { passive: true });
addEventListener("addresschange", hide);
addEventListener("hashchange", hide);
