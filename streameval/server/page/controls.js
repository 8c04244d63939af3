// The controls above a view. Each changes the address, and the view is drawn from that.

import { h } from "./dom.js";

export function select(label, name, options, value, changed) {
  const control = h("select", { "data-focus": name, onchange: (event) => changed(event.target.value) });
  for (const option of options) {
    const [text, of] = Array.isArray(option) ? option : [option, option];
    control.append(h("option", { value: of, selected: of === value }, text));
  }
  return h("label", { class: "control" }, h("span", {}, label), control);
}

// Buttons of which any number is pressed.
export function chips(label, options, chosen, changed) {
  return h(
    "fieldset",
    { class: "chips" },
    h("legend", {}, label),
    options.map(({ value, text, look }) =>
      h(
        "button",
        {
          type: "button",
          class: `chip ${look?.class ?? ""}`,
          "aria-pressed": String(chosen.includes(value)),
          "data-focus": `chip-${value}`,
          onclick: () => changed(chosen.includes(value) ? chosen.filter((one) => one !== value) : [...chosen, value]),
        },
        look ? h("span", { class: "swatch", "aria-hidden": "true" }) : null,
        text,
      ),
    ),
  );
}

export const button = (text, clicked, attributes = {}) =>
  h("button", { type: "button", class: "button", "data-focus": text, onclick: clicked, ...attributes }, text);

// What went wrong with a question, in the place of its answer; 401 asks for the token.
export function refusal(error, retry, useToken) {
  if (error.status === 401 || error.status === 403) {
    const input = h("input", { type: "password", name: "token", autocomplete: "off", required: true, "data-focus": "token" });
    const form = h(
      "form",
      {
        class: "token",
        onsubmit: (event) => {
          event.preventDefault();
          useToken(input.value.trim());
          retry();
        },
      },
      h("label", { class: "control" }, h("span", {}, "This needs the monitor's token"), input),
      h("button", { type: "submit", class: "button" }, "Use it in this tab"),
    );
    return h("div", { class: "notice" }, h("p", {}, error.message), form);
  }
  return h("p", { class: "notice", role: "status" }, error.status ? error.message : "No answer; trying again with the next snapshot.");
}
