// The page: an overview arrives with every snapshot, the address says which view shows it.

import { read, watch, href } from "./address.js";
import { now } from "./clock.js";
import { dark } from "./colours.js";
import { h, replace } from "./dom.js";
import { age, changeZone, clock, dateTime, duration, inUtc, local, zone } from "./format.js";
import { listen } from "./live.js";
import { shorten } from "./names.js";
import { missing } from "./series.js";
import { awaited } from "./waiting.js";
import * as overviewView from "./views/overview.js";

// The overview is there at once, the others when they are first looked at.
const VIEWS = {
  overview: { title: overviewView.title, load: async () => overviewView },
  history: { title: "History", load: () => import("./views/history.js") },
  calibration: { title: "Calibration", load: () => import("./views/calibration.js") },
  metrics: { title: "Metrics", load: () => import("./views/metrics.js") },
  users: { title: "Users", load: () => import("./views/users.js") },
  comparisons: { title: "Comparisons", load: () => import("./views/comparisons.js") },
  auctions: { title: "Auctions", load: () => import("./views/auctions.js") },
  flow: { title: "Flow", load: () => import("./views/flow.js") },
};
const loaded = { overview: overviewView };
const $ = (id) => document.getElementById(id);

let overview = null;
let shown = null; // { name, view } that is mounted

for (const [name, { title }] of Object.entries(VIEWS)) {
  $("views").append(h("li", {}, h("a", { href: href(name), "data-view": name }, title)));
}
watch(draw);
const { retry } = listen((came) => {
  overview = came;
  draw();
}, drawConnection);
$("retry").addEventListener("click", retry);
$("theme").addEventListener("click", changeTheme);
$("zone").addEventListener("click", () => {
  changeZone();
  shown?.view.close?.();
  shown = null;
  drawZone();
  draw();
});
drawZone();

// `unknown`: what the address asks for and the page does not have.
function asked() {
  const { path, given } = read();
  const name = Object.hasOwn(VIEWS, path) ? path : "overview";
  return { name, unknown: path === "" || path === name ? null : path, given };
}

function draw() {
  const { name, unknown, given } = asked();
  for (const link of $("views").querySelectorAll("a")) {
    if (link.dataset.view === name) {
      const came = !link.hasAttribute("aria-current");
      link.setAttribute("aria-current", "page"); // and is bold: wider
      if (came) reveal(link);
    } else link.removeAttribute("aria-current");
    // auctions are a matter of few
    if (link.dataset.view === "auctions") link.parentElement.hidden = name !== "auctions" && !overview?.auctions;
  }
  document.title = `${VIEWS[name].title} · streameval`;
  drawUnknown(unknown, given);
  if (!overview) return;
  if (!loaded[name]) {
    load(name);
    return;
  }
  const view = loaded[name];
  if (view.needsLabels && !overview.results.length) {
    shown?.view.close?.();
    shown = null;
    $("main").replaceChildren(h("h1", {}, VIEWS[name].title), h("p", { class: "quiet" }, awaited(overview)));
  } else if (shown?.name !== name) {
    shown?.view.close?.();
    const root = h("div", { class: `view ${name}` });
    $("main").replaceChildren(h("h1", { class: view.answersFirst ? "unseen" : null }, VIEWS[name].title), root);
    shown = { name, view: view.mount(root) };
  }
  shown?.view.update(overview, given);
  drawWarning(overview);
  drawSampling(overview);
  drawAge();
}

// On a phone the views are a line that scrolls. Only that line: the page stays where it is.
function reveal(link) {
  const [line, own] = [link.closest("nav"), link.parentElement];
  line.scrollLeft += own.getBoundingClientRect().left - line.getBoundingClientRect().left - (line.clientWidth - own.offsetWidth) / 2;
}

async function load(name) {
  try {
    loaded[name] ??= await VIEWS[name].load();
    draw();
  } catch {
    if (asked().name === name) $("main").replaceChildren(h("p", { class: "notice", role: "status" }, "This view did not load; retrying with the next snapshot."));
  }
}

// What the address asks for and is not there: what is shown instead must not pass for it.
function drawUnknown(view, given) {
  const quoted = (name) => `“${shorten(name, 80)}”`;
  const text = view === null ? missing(overview, given).map(([what, name]) => `There is no ${what} ${quoted(name)} here; another one is shown.`).join(" ") : `There is no view ${quoted(view)}; this is the overview.`;
  if ($("unknown").textContent !== text) $("unknown").textContent = text;
  $("unknown").hidden = !text;
}

function drawWarning({ join, ready, preparing, degraded = [] }) {
  const failing = preparing ? [] : Object.entries(ready).filter(([, passed]) => !passed).map(([check]) => check.replaceAll("_", " "));
  const urgent = [];
  if (!join.reliable) urgent.push(`The join is not reliable: ${join.reason ?? "unknown reason"}.`);
  if (failing.length) urgent.push(`Not ready: ${failing.join(", ")}.`);
  const others = degraded.map((sentence) => `${sentence[0].toUpperCase()}${sentence.slice(1)}.`);
  const line = (text) => h("p", {}, text);
  // what stops nothing is a line, however much it is: the answer stays on the first screen
  const open = $("warning").querySelector("details")?.open;
  const more = others.length > 1 ? h("details", { open }, h("summary", { "data-focus": "degraded" }, `Degraded: ${others.length} problems. `, h("span", {}, others[0])), others.map(line)) : others.map(line);
  replace($("warning"), urgent.map(line), more);
  $("warning").hidden = !urgent.length && !others.length;
}

// Estimates from a sample, and corrected scores, must not pass for what was counted.
function drawSampling({ sampling = [] }) {
  const text = sampling.map((sentence) => `${sentence[0].toUpperCase()}${sentence.slice(1)}.`).join(" ");
  if ($("sampling").textContent !== text) $("sampling").textContent = text;
  $("sampling").hidden = !text;
}

const BLINK_MS = 2000; // a connection that is back by then is not worth a banner
const LONG_MS = 5000; // between two snapshots: worth saying what to expect
let expected = "";

// Called every second, too: ages grow.
function drawConnection({ state, since, interval, answers, doing, newest }) {
  const old = state === "stale" || (state === "lost" && Date.now() - since > BLINK_MS);
  const texts = { waiting: "connecting", live: "live", stale: "stale", lost: old ? "unreachable" : "reconnecting" };
  if (state === "lost" && answers) texts.lost = "no live updates";
  $("connection").textContent = texts[state];
  $("connection").dataset.state = state;
  document.body.toggleAttribute("data-old", old && overview !== null);
  expected = interval > LONG_MS ? `, one about every ${duration(interval / 1000)}` : "";
  const text = old ? outage({ state, since, interval, answers, doing, newest }) : "";
  if ($("outage-text").textContent !== text) $("outage-text").textContent = text;
  $("outage").hidden = !old;
  $("outage").dataset.state = state;
  drawAge();
}

// One sentence that does not change every second: it is read out.
function outage({ state, since, interval, answers, doing, newest }) {
  const values = newest === null ? "" : ` The values below are as of ${clock(newest)}.`;
  const every = interval === null ? "" : ` (one is expected about every ${Math.max(1, Math.round(interval / 1000))} s)`;
  const busy = doing ? ` The monitor is ${doing}.` : " The monitor responds, but publishes nothing new.";
  const why = answers === null ? "" : answers ? busy : " The monitor does not respond.";
  if (state === "stale") return `Stale: no new snapshot since ${clock(since)}${every}.${why}${values}`;
  if (answers) return `No live updates since ${clock(since)}: the monitor responds, but not with a stream; retrying.${values}`;
  return `Monitor unreachable since ${clock(since)}; retrying.${values}`;
}

function drawAge() {
  if (!overview) return;
  const time = Date.parse(overview.as_of);
  $("as-of").textContent = `as of ${clock(time)}${now() - time < 5000 ? "" : `, ${age(time)} ago`}${expected}`;
  $("as-of").dateTime = overview.as_of;
  $("as-of").title = $("as-of").textContent;
  $("build").textContent = `Monitor started ${dateTime(overview.started_at)}. Times are in ${zone()}.`;
}

function drawZone() {
  $("zone").textContent = inUtc() ? "UTC" : "Local time";
  $("zone").setAttribute("aria-label", inUtc() ? `Times are in UTC; change to ${local}` : `Times are in ${local}; change to UTC`);
  $("zone").title = $("zone").getAttribute("aria-label");
}

function changeTheme() {
  const next = dark() ? "light" : "dark";
  document.documentElement.dataset.theme = next;
  localStorage.setItem("streameval-theme", next);
  window.dispatchEvent(new Event("themechange"));
}
// Paper is white.
let before;
addEventListener("beforeprint", () => {
  before = document.documentElement.dataset.theme;
  document.documentElement.dataset.theme = "light";
  window.dispatchEvent(new Event("themechange"));
});
addEventListener("afterprint", () => {
  if (before) document.documentElement.dataset.theme = before;
  else delete document.documentElement.dataset.theme;
  window.dispatchEvent(new Event("themechange"));
});
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => window.dispatchEvent(new Event("themechange")));
