// The controls above a view. Each changes the address, and the view is drawn from that.

import { h } from "./dom.js";
import { visible } from "./names.js";

const MANY = 30; // options; of more, a few are typed rather than found

// What is shown of an option, and the option; a name by itself may be of anyone's making.
const pair = (option) => (Array.isArray(option) ? option : [visible(option), option]);

export function select(label, name, options, value, changed) {
  if (options.length > MANY) return combobox(label, name, options, value, changed);
  const control = h("select", { "data-focus": name, onchange: (event) => changed(event.target.value) });
  for (const option of options) {
    const [text, of] = pair(option);
    control.append(h("option", { value: of, selected: of === value }, text));
  }
  return h("label", { class: "control" }, h("span", {}, label), control);
}

// A field with suggestions. What is no option leads to the only one that holds it, or back to what was chosen.
function combobox(label, name, options, value, changed) {
  const pairs = options.map(pair);
  const before = pairs.find(([, of]) => of === value)?.[0] ?? "";
  const find = (text) => {
    const wanted = text.trim().toLowerCase();
    const holding = pairs.filter(([one]) => one.toLowerCase().includes(wanted));
    return pairs.find(([one]) => one.toLowerCase() === wanted) ?? (holding.length === 1 ? holding[0] : null);
  };
  const choose = (event) => {
    const found = find(event.target.value);
    event.target.value = found?.[0] ?? before;
    if (found && found[1] !== value) changed(found[1]);
  };
  const list = h("datalist", { id: `options-${name}` }, pairs.map(([text]) => h("option", { value: text })));
  const input = h("input", { list: list.id, value: before, autocomplete: "off", spellcheck: "false", "data-focus": name, title: `${pairs.length} to choose from: type a part`, onchange: choose, onfocus: (event) => event.target.select() });
  return h("label", { class: "control" }, h("span", {}, label), input, list);
}

// Buttons of which any number is pressed.
export function chips(label, options, chosen, changed) {
  return h(
    "fieldset",
    { class: "chips" },
    h("legend", {}, label),
    options.map(({ value, text, title, look }) =>
      h(
        "button",
        {
          type: "button",
          title: title === text ? null : title,
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
      h("label", { class: "control" }, h("span", {}, "This requires the monitor's token"), input),
      h("button", { type: "submit", class: "button" }, "Use in this tab"),
    );
    return h("div", { class: "notice" }, h("p", {}, error.message), form);
  }
  return h("p", { class: "notice", role: "status" }, error.status ? error.message : "No response; retrying with the next snapshot.");
}
