// To acknowledge or mute a verdict, with a name and a reason: a form that keeps what is typed while snapshots come.

import { post, useToken } from "./api.js";
import { button, refusal } from "./controls.js";
import { h, replace } from "./dom.js";

const NAME = "streameval-name"; // whoever says it, in this tab

// `shown()`: the comparison that it is about; `done()`: it has been said. `draw()`: it is another one, or has been handled.
export function handling(shown, done) {
  const field = (label, attributes) => {
    const input = h("input", { required: true, autocomplete: "off", ...attributes });
    return [h("label", { class: "control" }, h("span", {}, label), input), input];
  };
  const [nameLabel, by] = field("Your name", { name: "by", maxlength: 100, value: sessionStorage.getItem(NAME) ?? "" });
  const [reasonLabel, reason] = field("Reason", { name: "reason", maxlength: 1000 });
  const said = h("div", { role: "status" });
  const choices = h("span", { class: "choices" });
  const form = h("form", { class: "handling", onsubmit: (event) => event.preventDefault() }, nameLabel, reasonLabel, choices);
  const root = h("details", { class: "handle" }, h("summary", { "data-focus": "handle" }, "Acknowledge or mute"), form, said);
  let about = null;

  async function say(state) {
    if (!form.reportValidity()) return;
    sessionStorage.setItem(NAME, by.value);
    try {
      await post(`comparisons/${encodeURIComponent(shown().id)}/handling`, { state, by: by.value.trim(), reason: reason.value.trim() });
    } catch (error) {
      replace(said, refusal(error, () => say(state), useToken));
      return;
    }
    reason.value = "";
    replace(said);
    root.open = false;
    done();
  }

  return {
    root,
    draw() {
      const { id, handling: now } = shown();
      if (id !== about) {
        about = id;
        root.open = false;
        reason.value = "";
        replace(said);
      }
      replace(choices, button("Acknowledge", () => say("acknowledged")), button("Mute", () => say("muted"), { title: "No more notifications about this comparison" }), now ? button("Take back", () => say("open")) : null);
    },
  };
}
