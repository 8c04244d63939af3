// Replayed auctions: what every version would have yielded at every operating point.

import { go, href } from "../address.js";
import { asker, useToken } from "../api.js";
import { frontier } from "../charts/frontier.js";
import { refusal, select } from "../controls.js";
import { h, replace } from "../dom.js";
import { cuts } from "../fold.js";
import { count, number, percent, significant } from "../format.js";
import { GROUPS_DF } from "../intervals.js";
import { reason } from "../metrics.js";
import { shorten, shown as named } from "../names.js";
import { cell } from "../readings.js";
import { look } from "../series.js";
import { taking } from "../share.js";
import { scroller, table } from "../tables.js";


export const needsLabels = true;

const AGAIN_MS = 4000;
const YIELDS = { click_yield: "Click yield", mainline_click_yield: "Mainline click yield" };
const UNKNOWN = {
  no_requests: "no request has been replayed yet: it takes an hour with final labels",
  no_ads: "it would have shown nothing",
  not_spread: "too few users for a standard error",
  mainline_ads_out_of_reach: "its operating points do not reach as many mainline ads",
};
const SKIPPED = {
  no_history: "before the first hour with final labels",
  not_sampled: "the query is left out to save memory (auction.memory)",
  no_request: "impressions and candidates without a request_id",
  no_item: "a candidate without an item_id",
  no_bid: "a candidate without a bid",
  no_position: "shown without a position",
  no_label: "shown, but its label is unknown",
  no_room: "more candidates than can be kept",
  too_many_candidates: "more than 10,000 candidates",
  position_beyond_slots: "shown at a position beyond auction.slots",
  late_candidates: "candidates that came too late",
  runaway_candidates: "candidates rejected: dated far ahead of the others",
};
const words = (why) => UNKNOWN[why] ?? reason(why);

export function mount(root) {
  const tools = h("div", { class: "tools" });
  const note = h("div");
  const place = h("div");
  root.append(tools, note, place);
  const questions = asker();
  let overview = null;
  let given = {};
  let asked = -Infinity;
  let answer = null;
  let which = {}; // what is shown
  const cut = cuts(() => draw());

  const change = (part) => {
    go("auctions", { ...given, ...part }, { replace: true });
  };

  function refresh() {
    if (performance.now() - asked < AGAIN_MS) return;
    asked = performance.now();
    questions
      .ask([["auctions"]], (error) => replace(note, refusal(error, refresh, useToken)))
      .then((answers) => {
        if (!answers) return;
        [answer] = answers;
        replace(note);
        draw();
      });
  }

  function draw() {
    if (!answer) return;
    const { auctions, skipped } = answer;
    if (!auctions.length) {
      replace(tools);
      replace(place, h("p", { class: "quiet" }, "No auctions are replayed: this needs operating points ([[auction.points]] in the settings), and candidates with bids in the events."), leftOut(skipped));
      return;
    }
    const one = (name) => [...new Set(auctions.map((row) => row[name]))];
    const [models, windows] = [one("model"), one("window")];
    const model = models.includes(given.model) ? given.model : models[0];
    const window = windows.includes(given.window) ? given.window : "all";
    const measure = given.yield === "mainline" ? "mainline_click_yield" : "click_yield";
    const rows = auctions.filter((row) => row.model === model && row.window === window);
    const curves = [...new Set(rows.map((row) => row.version))].map((version) => {
      const own = rows.filter((row) => row.version === version);
      return { name: shorten(version), version, look: look(overview, own[0]), rows: own };
    });
    replace(
      tools,
      models.length > 1 ? select("Model", "model", models, model, (of) => change({ model: of })) : null,
      select("Yield", "yield", [["all clicks", ""], ["clicks in the mainline", "mainline"]], given.yield === "mainline" ? "mainline" : "", (of) => change({ yield: of })),
      select("Window", "window", windows, window, (of) => change({ window: of })),
      h("p", { class: "legend" }, curves.map(({ version, look: { class: own } }) => h("span", { class: own }, h("span", { class: "swatch", "aria-hidden": "true" }), named(version)))),
    );
    which = { model, window };
    const take = (name, more) => taking(name, { link: () => href("auctions", { ...given, ...which }), times: false, csv: () => ["auctions", which], ...more });
    const figure = h("figure", { class: "panel" });
    figure.dataset.legend = JSON.stringify(curves.map((one) => [one.name, one.look.variable]));
    const drawn = rows.some((row) => row[measure] !== null);
    figure.append(
      h("figcaption", {}, h("h2", {}, `${YIELDS[measure]} against mainline ads`), h("p", { class: "quiet" }, "A dot for every operating point; higher at equal mainline ads is better. Bars are 95% intervals (Student's t, by 16 groups of users).")),
      drawn ? frontier(curves, measure, YIELDS[measure]) : h("p", { role: "status" }, `${words(rows[0].reasons[measure])}.`),
      take(YIELDS[measure], { png: drawn ? () => figure : null, title: () => `${YIELDS[measure]} of ${which.model} against mainline ads` }),
    );
    replace(
      place,
      h("div", { class: "beside" }, figure,
      h("section", {}, h("h2", {}, "By operating point"),
      h("p", { class: "quiet" }, `Yields and ads are per request. A version that over-predicts sells more places, so yields at one reserve are not comparable: "matched" are those with as many mainline ads as ${rows[0].matched_to} has there. Placements without a history count as an average ad at that position.`),
      tableOf(rows, curves, cut), take("by operating point"))),
      leftOut(skipped),
    );
  }

  return {
    update(now, address) {
      overview = now;
      given = address;
      draw();
      refresh();
    },
    close: questions.stop,
  };
}

const HEAD = ["Version", "Operating point", "Matched click yield", "Matched mainline click yield", "Mainline ads", "Click yield", "Mainline click yield", "Ads", "With a history", "Extrapolated", "Requests"];
const NUMBERS = ["matched_click_yield", "matched_mainline_click_yield", "mainline_ads", "click_yield", "mainline_click_yield", "ads"];

function tableOf(rows, curves, cut) {
  const points = [...new Set(rows.map((row) => row.point))];
  const own = new Map(curves.map((one) => [one.version, one.look.class]));
  const order = [...rows].sort((a, b) => points.indexOf(a.point) - points.indexOf(b.point));
  const value = (row, name, write) => cell(row[name], row[`${name}_stderr`], GROUPS_DF, row.reasons[name], { write, words, name });
  const cells = (row) => [
    h("th", { scope: "row", class: own.get(row.version) }, h("span", { class: "swatch", "aria-hidden": "true" }), named(row.version)),
    [row.point, h("span", { class: "quiet below" }, `reserves ${significant(row.mainline_reserve)} / ${significant(row.sidebar_reserve)}`)],
    ...NUMBERS.map((name) => value(row, name, (v) => number(v, name.includes("yield") ? 4 : 2))),
    ...["replayed_share", "extrapolated_share"].map((name) => value(row, name, percent)),
    count(row.requests),
  ];
  const [shown, more] = cut("points", order, order.filter((row) => row.point === points[0]).length, `${points.length - 1} more operating points`);
  return [scroller("By operating point", table(HEAD, shown.map(cells), { numeric: (i) => i > 1, class: "many" })), more];
}

function leftOut(skipped) {
  const some = Object.entries(skipped).filter(([, n]) => n);
  if (!some.length) return null;
  return h("section", { class: "panel wide" }, h("h2", {}, "Not replayed"), h("dl", { class: "facts" }, some.map(([why, n]) => h("div", {}, h("dt", {}, SKIPPED[why] ?? reason(why)), h("dd", {}, count(n))))));
}
