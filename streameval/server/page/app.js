// The page: an overview arrives with every snapshot, the address says which view shows it.

import { read, watch, href } from "./address.js";
import { dark } from "./colours.js";
import { h } from "./dom.js";
import { age, clock, dateTime } from "./format.js";
import { listen } from "./live.js";
import * as calibration from "./views/calibration.js";
import * as comparisons from "./views/comparisons.js";
import * as flow from "./views/flow.js";
import * as history from "./views/history.js";
import * as overviewView from "./views/overview.js";
import * as users from "./views/users.js";

const VIEWS = { overview: overviewView, history, calibration, users, comparisons, flow };
const $ = (id) => document.getElementById(id);

let overview = null;
let shown = null; // { name, view } that is mounted

for (const [name, { title }] of Object.entries(VIEWS)) {
  $("views").append(h("li", {}, h("a", { href: href(name), "data-view": name }, title)));
}
watch(draw);
listen(
  (came) => {
    overview = came;
    draw();
  },
  (state) => {
    $("connection").textContent = state === "live" ? "live" : "connection lost, trying again";
    $("connection").dataset.state = state;
  },
);
setInterval(drawAge, 1000);
$("theme").addEventListener("click", changeTheme);

function draw() {
  const { view: name, given } = read();
  for (const link of $("views").querySelectorAll("a")) {
    if (link.dataset.view === name) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  document.title = `${VIEWS[name].title} · streameval`;
  if (!overview) return;
  if (VIEWS[name].needsLabels && !overview.results.length) {
    shown?.view.close?.();
    shown = null;
    $("main").replaceChildren(h("h1", {}, VIEWS[name].title), h("p", { class: "quiet" }, "No labelled impressions yet."));
  } else if (shown?.name !== name) {
    shown?.view.close?.();
    const root = h("div", { class: `view ${name}` });
    $("main").replaceChildren(h("h1", {}, VIEWS[name].title), root);
    shown = { name, view: VIEWS[name].mount(root) };
  }
  shown?.view.update(overview, given);
  drawWarning(overview);
  drawAge();
}

function drawWarning({ join, ready, degraded = [] }) {
  const failing = Object.entries(ready).filter(([, passed]) => !passed).map(([check]) => check.replaceAll("_", " "));
  const parts = [];
  if (!join.reliable) parts.push(`The join is not reliable: ${join.reason ?? "unknown reason"}.`);
  if (failing.length) parts.push(`Not ready: ${failing.join(", ")}.`);
  parts.push(...degraded.map((sentence) => `${sentence[0].toUpperCase()}${sentence.slice(1)}.`));
  const text = parts.join(" ");
  if ($("warning").textContent !== text) $("warning").textContent = text;
  $("warning").hidden = !text;
}

function drawAge() {
  if (!overview) return;
  const time = Date.parse(overview.as_of);
  $("as-of").textContent = Date.now() - time < 5000 ? `as of ${clock(time)}` : `as of ${clock(time)}, ${age(time)} ago`;
  $("as-of").dateTime = overview.as_of;
  const zone = Intl.DateTimeFormat().resolvedOptions().timeZone;
  $("build").textContent = `Monitor started ${dateTime(overview.started_at)}. Times are those of ${zone}.`;
}

function changeTheme() {
  const next = dark() ? "light" : "dark";
  document.documentElement.dataset.theme = next;
  localStorage.setItem("streameval-theme", next);
  window.dispatchEvent(new Event("themechange"));
}
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => window.dispatchEvent(new Event("themechange")));
