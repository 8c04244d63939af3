// The answer first; then the models and versions, one wide chart, and whether events flow.

import { go, href } from "../address.js";
import { asker } from "../api.js";
import { select } from "../controls.js";
import { h, replace } from "../dom.js";
import { age } from "../format.js";
import { OVERVIEW as SHOWN } from "../metrics.js";
import { shorten } from "../names.js";
import { answers, quiet } from "../overview/answers.js";
import { leading } from "../overview/leading.js";
import { modelTable } from "../overview/models.js";
import { flowing, tiles } from "../overview/tiles.js";
import { servedNote } from "../rates.js";
import { key, labelsComplete, servesNobody } from "../series.js";
import { taking } from "../share.js";

export const title = "Overview";
export const answersFirst = true; // its heading is in the navigation

const PANES = 32; // of a line in a cell; five lines a version are the largest part of what the first view asks for
const AGAIN_MS = 4000; // between two questions for the lines

export function mount(root) {
  const verdicts = h("section", { class: "verdicts", "aria-label": "Verdicts on the latest deploys" });
  const tilesPlace = h("dl", { class: "tiles" });
  const tools = h("div", { class: "tools" });
  const table = h("div", { class: "scroll" });
  const take = h("div");
  const note = h("div");
  const summary = h("summary", { "data-focus": "shadows" });
  const scoringPlace = h("section", { class: "verdicts", "aria-label": "Comparisons of shadow models" });
  const shadowTable = h("div", { class: "scroll" });
  const shadows = h("details", { class: "shadows" }, summary, scoringPlace, shadowTable);
  const wide = h("section", { class: "leading", "aria-label": "Live against champion" });
  root.append(verdicts, tilesPlace, h("div", { class: "beside" }, h("section", { class: "all" }, tools, table, take, note), wide), shadows);
  const change = (part) => go("overview", { ...given, ...part }, { replace: true });
  const chart = leading(wide, change);
  let window = null; // that is shown
  const past = () => {
    const times = overview.results.filter((row) => row.window === window);
    return href("history", { from: seconds(times, "window_start", Math.min), to: seconds(times, "window_end", Math.max) });
  };
  const unfolded = new Set(); // models all of whose versions are shown
  const seen = { lines: {}, deploys: [] };
  const questions = asker();
  let asked = -Infinity;
  let overview = null;
  let given = {};
  const recent = flowing();

  function refresh() {
    if (performance.now() - asked < AGAIN_MS || !overview.results.length) return;
    asked = performance.now();
    const ask = SHOWN.map((name) => ["series", { metric: name, limit: PANES, shape: "columns" }]);
    questions.ask(ask, () => {}).then((found) => {
      if (!found) return;
      found.forEach((answer, i) => {
        seen.lines[SHOWN[i]] = new Map(answer.series.map((one) => [key(one), one.columns]));
      });
      seen.deploys = found[0].deploys;
      draw();
    });
  }

  function draw() {
    const windows = [...new Set(overview.results.map((r) => r.window))];
    window = windows.includes(given.window) ? given.window : defaultWindow(windows);
    const rows = overview.results.filter((r) => r.window === window);
    const [serving, shadowed] = apart(overview, rows);
    answers(verdicts, overview, [...new Set(serving.map((row) => row.model))]);
    tiles(tilesPlace, overview, recent(overview), labelsComplete(overview));
    replace(tools, h("h2", {}, "Models and versions"), windows.length ? select("Window", "window", windows, window, (value) => change({ window: value })) : null);
    const tableOf = (some) => modelTable(overview, some, seen, { unfolded, again: draw });
    tools.hidden = table.hidden = !serving.length; // what is awaited is said above
    replace(table, serving.length ? tableOf(serving) : null);
    replace(take, rows.length ? taking(`results of ${window}`, { link: past, csv: () => ["results", { window, slice: "none" }] }) : null);
    const scoring = overview.verdicts.filter(servesNobody);
    shadows.hidden = !scoring.length && !shadowed.length;
    replace(summary, ...shadowSummary(scoring, shadowed));
    quiet(scoringPlace, scoring, overview);
    shadowTable.hidden = !shadowed.length;
    replace(shadowTable, shadowed.length ? tableOf(shadowed) : null);
    replace(note, servedNote(rows));
    chart.draw(overview, given, seen);
  }

  return {
    update(now, address) {
      overview = now;
      given = address;
      draw();
      refresh();
    },
    close() {
      questions.stop();
      chart.close();
    },
  };
}

const seconds = (rows, name, which) => Math.round(which(...rows.map((row) => Date.parse(row[name]) / 1000)));

// The longest window that slides: it forgets what was before the last deploy, and has the smallest error.
function defaultWindow(windows) {
  return windows.filter((w) => w !== "all").at(-1) ?? windows[0];
}

// The rows of models that people are served, and of those that serve nobody. A version that is compared with one that serves
// stays beside it.
function apart(overview, rows) {
  const silent = new Set(rows.map((row) => row.model));
  for (const row of rows) if (!servesNobody(row)) silent.delete(row.model);
  return [rows.filter((row) => !silent.has(row.model)), rows.filter((row) => silent.has(row.model))];
}

// "Shadow models (1)", and of the first ones what they do and for how long: they serve nobody, so they stay folded.
function shadowSummary(verdicts, rows) {
  const names = new Set([...verdicts.map((one) => one.model), ...rows.map((row) => row.model)]);
  const about = verdicts.slice(0, 2).map((one) => `${shorten(one.model)} ${shorten(one.candidate)}: ${one.role === "learning" ? "learning" : "in shadow"} for ${age(Date.parse(one.deployed_at))}`);
  return [`Shadow models (${names.size})`, h("span", { class: "quiet" }, ` ${[...about, "serving nobody"].join("; ")}`)];
}
