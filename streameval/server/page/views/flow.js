// Where events are, and where time and memory go.

import { href } from "../address.js";
import { asker, useToken } from "../api.js";
import { refusal } from "../controls.js";
import { h, replace } from "../dom.js";
import { age, bytes, clock, count, DASH, duration, share } from "../format.js";
import { pipeline, rates } from "../flow/pipeline.js";
import { FATES, INVALID, LIMITS, named, plain, STAGES, TABLES } from "../flow/words.js";
import { folds } from "../fold.js";
import { taking } from "../share.js";
import { scroller, table } from "../tables.js";
import { awaited } from "../waiting.js";

const AGAIN_MS = 2000;
const here = () => href("flow");
// A part of the status: what is now, so a link names no times.
const take = (name, rows) => taking(name, { link: here, times: false, csv: () => ["status", { rows }] });
const HEALTHY = new Set(["matured", "pending", "matched_clicks", "candidates"]);

export function mount(root) {
  const note = h("div");
  const way = h("section", { class: "way" });
  const place = h("div", { class: "panels" });
  const rate = rates();
  const fold = folds();
  const letters = h("section", { class: "panel wide" });
  root.append(note, way, place, letters);
  const questions = asker();
  const samples = asker();
  let asked = -Infinity;

  function refresh() {
    if (performance.now() - asked < AGAIN_MS) return;
    asked = performance.now();
    questions.ask([["status"]], (error) => replace(note, refusal(error, refresh, useToken))).then((answers) => {
      if (!answers) return;
      if (answers[0].preparing) {
        // it counts nothing yet: zeros would look like a stream that stands still
        replace(note, h("p", { class: "quiet" }, awaited(answers[0])));
        replace(way);
        replace(place);
        letters.hidden = true;
        return;
      }
      letters.hidden = false;
      replace(note);
      replace(way, pipeline(answers[0], rate(answers[0])));
      draw(place, answers[0], fold);
    });
    samples.ask([["dead-letters"]], (error) => replace(letters, h("h2", {}, "Dead letters"), refusal(error, refresh, useToken))).then((answers) => answers && drawLetters(letters, answers[0], refresh));
  }

  return {
    update: refresh,
    close() {
      questions.stop();
      samples.stop();
    },
  };
}

function draw(place, status, fold) {
  replace(
    place,
    panel(h("h2", {}, "Event outcomes"), fates(status.events, place.querySelector("details.none")?.open), take("event outcomes", "events")),
    panel(fold("partitions", "Partitions", partitions(status), take("partitions", "partitions"))),
    panel(fold("stages", "Processing time by stage", stages(status.stage_seconds, status.uptime_seconds), take("processing time by stage", "stages"))),
    panel(fold("memory", "Memory", memory(status), take("memory", "memory"))),
    panel(fold("checkpoints", "Checkpoints", checkpoints(status.checkpoints), h("h3", {}, "History"), history(status.history))),
  );
}

const panel = (...content) => h("section", { class: "panel" }, content);

function bars(rows) {
  const most = Math.max(...rows.map((row) => row.value), 1e-12);
  return h(
    "dl",
    { class: "bars" },
    rows.map(({ name, value, text, bad, of }) =>
      h("div", { class: bad && value > 0 ? "bad" : "" }, h("dt", {}, name), h("dd", {}, text), h("dd", { class: "bar", "aria-hidden": "true" }, fillBar(value / (of ?? most)))),
    ),
  );
}

function fillBar(part) {
  const bar = h("span");
  bar.style.width = `${Math.min(100, Math.max(0, part * 100)).toFixed(2)}%`; // set by script: the policy has no inline styles
  return bar;
}

function fates(events, open) {
  const known = Object.keys(FATES).filter((name) => name in events);
  const more = Object.keys(events).filter((name) => typeof events[name] === "number" && !["impressions", "clicks"].includes(name) && !known.includes(name));
  const all = [...known, ...more];
  const some = all.filter((name) => events[name]).map((name) => ({ name: named(FATES, name), value: events[name], text: count(events[name]), bad: !HEALTHY.has(name), of: Math.max(events.impressions, 1) }));
  const none = all.filter((name) => !events[name]);
  return [
    h("p", {}, `${count(events.impressions)} impressions and ${count(events.clicks)} clicks received.`),
    bars(some),
    none.length ? h("details", { class: "none", open }, h("summary", {}, `${none.length} other outcomes, with no events`), h("ul", { class: "quiet" }, none.map((name) => h("li", {}, named(FATES, name))))) : null,
  ];
}

function partitions({ partitions: all }) {
  const late = (time) => (time ? `${age(Date.parse(time))} ago` : DASH);
  const row = (p) => [
    h("th", { scope: "row" }, p.partition),
    count(p.lag.reduce((sum, l) => sum + l.value, 0)),
    h("td", { class: "number", title: p.watermark }, p.complete ? "ended" : late(p.watermark)),
    h("td", { class: "number", title: p.label_complete }, p.complete ? "all" : late(p.label_complete)),
  ];
  const names = ["Partition", "Consumer lag", "Watermark", "Labels final up to"];
  return h(
    "div",
    { class: "scroll tall", tabindex: 0, role: "region", "aria-label": "Partitions" },
    table(names, all.map(row)),
  );
}

function stages(seconds, uptime) {
  const rows = Object.entries(seconds).sort(([, a], [, b]) => b - a);
  return [
    h("p", { class: "quiet" }, "Share of the time since start."),
    bars(rows.map(([name, value]) => ({ name: named(STAGES, name), value, text: `${share(value / Math.max(uptime, 1e-9))} (${duration(value)})`, of: Math.max(uptime, 1e-9) }))),
  ];
}

function memory({ table_bytes: tables, budget_used: budgets }) {
  return [
    bars(Object.entries(tables).sort(([, a], [, b]) => b - a).map(([name, value]) => ({ name: named(TABLES, name), value, text: bytes(value) }))),
    h("h3", {}, "Limits, share in use"),
    h("dl", { class: "bars" }, Object.entries(budgets).map(([name, used]) =>
      h("div", { class: used > 0.9 ? "bad" : "" }, h("dt", {}, named(LIMITS, name)), h("dd", {}, share(used)), h("dd", { class: "bar" }, h("meter", { min: 0, max: 1, high: 0.9, value: used, "aria-label": `${plain(LIMITS, name)}: share of the limit in use` }))))),
  ];
}

function facts(rows) {
  return h("dl", { class: "facts" }, rows.map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value))));
}

function checkpoints(state) {
  if (!state) return h("p", { class: "quiet" }, "None: store.path is not set, so nothing survives a restart.");
  return facts([
    ["Oldest of any partition", state.oldest ? `${age(Date.parse(state.oldest))} ago` : DASH],
    ["Partitions never written", count(state.never_written)],
    ["Written", count(state.written)],
    ["Failed", count(state.failures)],
    ["Last size", bytes(state.bytes)],
    ["Write time", duration(state.write_seconds)],
    ["Ingest pause", duration(state.pause_seconds)],
    ["Restored", state.restores ? `${count(state.restores)}, the last in ${duration(state.restore_seconds)}` : "not restored"],
    ["Restarts", count(state.restarts)],
    ["Impressions on disk", `${count(state.rows)}, ${bytes(state.rows_bytes)}${state.rows_lost ? `; ${count(state.rows_lost)} lost` : ""}`],
  ]);
}

function history(state) {
  if (!state) return h("p", { class: "quiet" }, "None: store.path is not set.");
  return facts([
    ["On disk", bytes(state.bytes)],
    ["Panes written", count(state.written)],
    ["Panes waiting", count(state.unwritten)],
    ["Folded into hours and days", count(state.folded)],
    ["Failures", count(state.failures)],
    ["Panes lost", count(state.lost)],
  ]);
}

function drawLetters(place, { total, counts, samples, samples_withheld: withheld }, again) {
  const open = place.querySelector("details")?.open;
  replace(
    place,
    h("h2", {}, "Dead letters"),
    total === 0 ? h("p", { class: "quiet" }, "None: all events were valid.") : bars(Object.entries(counts).filter(([, n]) => n > 0).sort(([, a], [, b]) => b - a).map(([name, n]) => ({ name: named(INVALID, name), value: n, text: count(n) }))),
    samples === null ? refusal({ status: 401, message: withheld }, again, useToken) : null,
    samples?.length
      ? h(
          "details",
          { open },
          h("summary", {}, `Latest ${samples.length}`),
          scroller("Latest dead letters", table(LETTER, samples.map(letter), { class: "letters", numeric: () => false })),
          taking("dead letters", { link: here, times: false, csv: () => ["dead-letters"] }),
        )
      : null,
  );
}

const LETTER = ["When", "Reason", "Field", "Where", "Error", "Value"];
const letter = (one) => [
  one.at ? clock(one.at) : DASH,
  plain(INVALID, one.reason),
  one.field || DASH,
  `${one.topic} [${one.partition}] ${one.offset}`,
  h("td", { class: "text" }, one.message),
  h("td", { class: "text" }, h("code", {}, one.value)),
];
