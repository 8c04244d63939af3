// How the per-user metrics are distributed, which users account for the most loss, and one user by id.

import { go, href } from "../address.js";
import { ask, asker, useToken } from "../api.js";
import { histogram } from "../charts/histogram.js";
import { button, refusal, select } from "../controls.js";
import { metricTerm, term } from "../explain.js";
import { folds, onPhone, plainly } from "../fold.js";
import { h, replace } from "../dom.js";
import { count, DASH, number, percent, significant } from "../format.js";
import { metric } from "../metrics.js";
import { shorten } from "../names.js";
import { objective, objectiveControl } from "../objectives.js";
import { byImportance, key, label, look, modelsOf, seriesOf } from "../series.js";
import { taking } from "../share.js";
import { scroller, table } from "../tables.js";

export const needsLabels = true;

const DISTRIBUTIONS = ["auc", "log_loss", "calibration", "impressions"];
const SORTS = [["total log loss", "log_loss_nats"], ["impressions", "impressions"], ["clicks", "clicks"], ["AUC", "auc"], ["log loss", "log_loss"], ["calibration", "calibration"]];
const AGAIN_MS = 8000;
const AT_FIRST = 5; // users on a phone

export function mount(root) {
  const tools = h("div", { class: "tools" });
  const note = h("div");
  const panels = h("div", { class: "panels four" });
  const usersPlace = h("section", { "aria-label": "Individual users" });
  const found = h("div", { role: "status" });
  const input = h("input", { name: "user", autocomplete: "off", spellcheck: "false", placeholder: "user id, or ~ and the hash" });
  const lookUp = h(
    "form",
    {
      class: "tools",
      onsubmit: (event) => {
        event.preventDefault();
        if (input.value.trim()) one(input.value.trim());
      },
    },
    h("label", { class: "control" }, h("span", {}, "One user"), input),
    h("button", { type: "submit", class: "button" }, "Look up"),
  );
  root.append(tools, panels, lookUp, found, note, usersPlace);
  const fold = folds();
  let whole = !onPhone(); // the list; on a phone its beginning
  const questions = asker();
  const list = asker();
  let overview = null;
  let given = {};
  let asked = { question: "", at: -Infinity };

  function choice() {
    const models = modelsOf(overview);
    const model = models.includes(given.model) ? given.model : models[0];
    const all = seriesOf(overview).filter((one) => one.model === model);
    const sorts = SORTS.map(([, value]) => value);
    return { models, model, all, one: all.find((of) => of.version === given.version) ?? [...all].sort(byImportance(overview).compare)[0], sort: sorts.includes(given.sort) ? given.sort : "log_loss_nats", order: given.order === "asc" ? "asc" : "desc", objective: objective(overview, given) };
  }

  const change = (part) => go("users", { ...given, ...part }, { replace: true });

  const of = () => {
    const now = choice();
    return { model: now.one.model, version: now.one.version, source: now.one.source, objective: now.objective };
  };

  const here = () => {
    const now = choice();
    return href("users", { ...given, model: now.model, version: now.one.version });
  };

  function drawTools(now) {
    replace(
      tools,
      now.models.length > 1 ? select("Model", "model", now.models, now.model, (model) => change({ model, version: null })) : null,
      select("Version", "version", now.all.map((of) => of.version), now.one.version, (version) => change({ version })),
      objectiveControl(overview, given, change),
    );
  }

  function refresh() {
    const now = choice();
    const question = JSON.stringify([now.one, now.sort, now.order, now.objective]);
    if (question === asked.question && performance.now() - asked.at < AGAIN_MS) return;
    asked = { question, at: performance.now() };
    const which = of();
    questions
      .ask(DISTRIBUTIONS.map((name) => ["user-distribution", { ...which, metric: name }]), (error) => replace(panels, refusal(error, refresh, useToken)))
      .then((answers) => answers && replace(panels, answers.map((answer, i) => distribution(DISTRIBUTIONS[i], answer, look(overview, now.one), i ? fold : plainly, { link: here, which: of }))));
    list
      .ask([["users", { ...which, sort: now.sort, order: now.order, limit: 25 }], ["results", { ...which, window: "all", slice: "none" }]], (error) => {
        replace(usersPlace);
        replace(note, h("h2", {}, "Individual users"), refusal(error, () => ((asked.at = -Infinity), refresh()), useToken));
      })
      .then((answers) => {
        if (!answers) return;
        replace(note);
        drawTable(now, answers[0], answers[1].results[0]);
      });
  }

  function drawTable(now, found, all) {
    const { users, total, users_sampled: sampled } = found;
    const loss = all?.log_loss === null || !all ? null : all.log_loss * all.impressions;
    const seen = whole ? users : users.slice(0, AT_FIRST);
    const toggle = () => {
      whole = !whole;
      drawTable(now, found, all);
    };
    const row = (user) => [
      h("th", { scope: "row" }, h("button", { type: "button", class: "link", "data-focus": user.user, onclick: () => one(`~${user.user}`) }, user.user)),
      ...metricsOf(user),
      loss ? [percent(user.log_loss_nats / loss, 2), meter(user.log_loss_nats / loss, users)] : DASH,
    ];
    const meter = (share, of) => {
      const most = Math.max(...of.map((u) => u.log_loss_nats)) / loss || 1;
      return h("meter", { min: 0, max: most, value: share, "aria-label": "share of the loss" });
    };
    replace(
      usersPlace,
      h("h2", {}, "Individual users"),
      h("div", { class: "tools" },
        select("Sort by", "sort", SORTS, now.sort, (sort) => change({ sort })),
        select("Order", "order", [["highest first", "desc"], ["lowest first", "asc"]], now.order, (order) => change({ order: order === "desc" ? null : order }))),
      scroller("Users", table(["User", ...metricNames(), "Share of the loss"], seen.map(row))),
      users.length > AT_FIRST && onPhone() ? button(whole ? "Show fewer" : `Show ${users.length - AT_FIRST} more`, toggle, { "aria-expanded": String(whole), "data-focus": "more-users" }) : null,
      taking("users", { link: here, times: false, csv: () => ["users", { ...of(), sort: now.sort, order: now.order, limit: 1000 }] }),
      h("p", { class: "quiet" }, `${seen.length} of ${count(total)} users${sampled < 1 ? `, a sample of ${percent(sampled)}` : ""}; users are identified by a hash of their id.`),
    );
  }

  async function one(id) {
    try {
      const { user, series } = await ask(`users/${encodeURIComponent(id)}`, { objective: objective(overview, given) });
      const row = (of) => [
        h("th", { scope: "row", class: look(overview, of).class }, h("span", { class: "swatch", "aria-hidden": "true" }), label(of)),
        ...metricsOf(of),
      ];
      replace(
        found,
        h("p", {}, `User ${user}, by version:`),
        scroller("One user", table(["Version", ...metricNames()], series.map(row))),
        taking("one user", { link: here, times: false, csv: () => [`users/${encodeURIComponent(id)}`, { objective: objective(overview, given) }] }),
      );
    } catch (error) {
      replace(found, refusal(error, () => one(id), useToken));
    }
  }

  return {
    update(now, address) {
      overview = now;
      given = address;
      drawTools(choice());
      refresh();
    },
    close() {
      questions.stop();
      list.stop();
    },
  };
}

const metricNames = () => [term("impression", "Impressions"), "Clicks", ...["auc", "log_loss", "calibration"].map((name) => metricTerm(name))];
const metricsOf = (one) => [count(one.impressions), count(one.clicks), number(one.auc, 4), number(one.log_loss, 4), number(one.calibration, 3)];

const ABOUT = {
  auc: "Of users with clicks and non-clicks; 0.5 is chance.",
  log_loss: "Mean log loss of each user's impressions.",
  calibration: "Predicted clicks over clicks of each user; noisy where clicks are few.",
  impressions: "How active users are: a few usually make most of the traffic.",
};

function distribution(name, answer, style, fold, { link, which }) {
  const { name: heading } = metric(name);
  const { edges, users, quantiles, users_total: total, users_undefined: undefinedUsers } = answer;
  const text = name === "impressions" ? "Impressions" : heading;
  const figure = h("figure", { class: "panel" });
  figure.dataset.legend = JSON.stringify([[shorten(which().version), style.variable]]);
  const take = taking(`${text} by user`, { link, times: false, csv: () => ["user-distribution", { ...which(), metric: name }], png: edges.length ? () => figure : null, title: () => `${text} by user of ${which().model} ${which().version}` });
  figure.append(...[
    fold(name, `${text} by user`, h("p", { class: "quiet" }, ABOUT[name]), edges.length
      ? histogram({
          title: `${text} by user`, edges, log: name !== "auc", width: innerWidth < 500 ? 280 : innerWidth < 1900 ? 260 : 380, // as wide as its place
          yName: "share of users",
          layers: [{ class: style.class, name: "users", values: users }],
          xName: text, xFormat: (v) => significant(v, 2),
          describe: `distribution over ${count(total)} users`,
        })
      : h("p", { class: "quiet" }, "No users yet."),
    h("dl", { class: "quantiles" }, quantiles.map(({ quantile, value }) => h("div", {}, h("dt", {}, `${Math.round(quantile * 100)}%`), h("dd", {}, name === "impressions" ? count(value) : number(value, 3))))),
    h("p", { class: "quiet" }, `${count(total)} users${undefinedUsers ? `; undefined for ${count(undefinedUsers)}` : ""}`), take),
  ].flat(2));
  return figure;
}
