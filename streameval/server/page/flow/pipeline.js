// The way of an event, left to right: how many a second, what share goes elsewhere, and in colour what is wrong.

import { h } from "../dom.js";
import { term } from "../explain.js";
import { age, count, DASH, percent, share, short, significant } from "../format.js";

const KEPT_S = 30; // over which rates are
const MOST = 0.01; // a share of events beyond this is worth a look
const LAG_S = 10; // as much consumer lag, in seconds of traffic

// Rates a second of the counters of a status, over the last half minute: name -> number or null.
export function rates() {
  const seen = [];
  return (status) => {
    const now = { at: Date.parse(status.as_of) / 1000, events: { ...status.events, invalid: sum(status.events.invalid) } };
    if (seen.length && now.events.impressions < seen.at(-1).events.impressions) seen.length = 0; // restarted
    if (!seen.length || now.at > seen.at(-1).at) seen.push(now);
    while (seen.length > 2 && now.at - seen[1].at >= KEPT_S) seen.shift();
    const seconds = now.at - seen[0].at;
    // at first the mean since the start
    return (name) => {
      const [first, last] = [seen[0].events[name] ?? 0, now.events[name] ?? null]; // none before the first snapshot
      if (last === null) return null;
      return seconds > 0 ? (last - first) / seconds : status.uptime_seconds > 0 ? last / status.uptime_seconds : null;
    };
  };
}

const sum = (counts) => Object.values(counts ?? {}).reduce((all, n) => all + n, 0);

export function pipeline(status, rate) {
  const { events, join, partitions, checkpoints, online_updates: learned } = status;
  const invalid = sum(events.invalid);
  const scored = status.series.filter((one) => !one.objective).length;
  const lag = partitions.flatMap((p) => p.lag).reduce((all, l) => all + l.value, 0);
  const arriving = (rate("impressions") ?? 0) + (rate("clicks") ?? 0);
  const complete = partitions.map((p) => (p.label_complete ? Date.parse(p.label_complete) : null));
  const ended = partitions.length > 0 && partitions.every((p) => p.complete);
  const delay = complete.includes(null) || !complete.length || !events.matured ? DASH : ended ? "all final" : age(Math.min(...complete));
  const all = Math.max(1, events.impressions + events.clicks + invalid);
  // a share of `of` events: wrong when there are too many
  const part = (name, counted, of, { text = name, most = MOST } = {}) => fact(text, share(counted / of), counted > most * of && counted > 0);
  return h(
    "ol",
    { class: "pipeline", "aria-label": "From events to verdicts" },
    stage("Topics", each(arriving || null, "events/s"), [fact(term("consumer lag", "consumer lag"), short(lag), arriving > 0 && lag > LAG_S * arriving)]),
    stage("Read", each(rate("impressions"), "impressions/s"), [
      fact("impressions", short(events.impressions)),
      fact("clicks", short(events.clicks)),
      part("invalid", invalid, all, { text: term("invalid event", "invalid") }),
    ]),
    stage("Joined", events.pending === undefined ? DASH : [short(events.pending), h("small", {}, " waiting")], [
      fact(term("click match rate", "click match rate"), percent(join.join_rate), !join.reliable),
      part("unmatched_clicks", events.unmatched_clicks, Math.max(1, events.clicks), { text: term("unmatched click", "unmatched clicks") }),
      part("late", events.late_impressions + events.late_clicks, all, { text: term("late", "late") }),
      part("duplicate", events.duplicate_impressions + events.duplicate_clicks, all, { text: term("duplicate", "duplicates"), most: 0.05 }),
      ...(join.reliable ? [] : [fact((join.reason ?? "not reliable").replaceAll("_", " "), "", true)]),
    ]),
    stage("Final labels", each(rate("matured"), "labels/s"), [
      fact(term("label delay", "label delay"), delay),
      fact(term("corrected", "corrected"), share(events.corrected / Math.max(1, events.matured))),
      lost("matured early", events.matured_early),
      lost("evicted early", events.forgotten_early),
    ]),
    stage("Scored, learned", scored ? [count(scored), h("small", {}, scored === 1 ? " version" : " versions")] : DASH, [
      ...Object.entries(learned).slice(0, 3).map(([model, n]) => fact(`${model} learned from`, `${short(n)} labels`)),
      ...status.suspensions.map((one) => fact(`${one.model} suspended`, "", true)),
    ]),
    stage("Written", checkpoints ? (checkpoints.oldest ? [age(Date.parse(checkpoints.oldest)), h("small", {}, " ago")] : DASH) : "nothing", [
      checkpoints ? fact(term("checkpoint", "checkpoints"), short(checkpoints.written)) : fact("results are not kept (store.path)", ""),
      checkpoints ? lost("failed", checkpoints.failures) : null,
      status.history ? lost("panes lost", status.history.lost) : null,
    ]),
  );
}

const each = (rate, of) => (rate === null ? DASH : [rate < 10 ? significant(rate, 2) : short(rate), h("small", {}, ` ${of}`)]);

const fact = (name, value, wrong = false) => ({ name, value, wrong });

// What should never be: said only when it is.
const lost = (name, counted) => (counted ? fact(name, short(counted), true) : null);

function stage(name, value, facts) {
  const known = facts.filter(Boolean);
  const wrong = known.some((one) => one.wrong);
  return h(
    "li",
    { class: wrong ? "wrong" : null },
    h("h3", {}, name, wrong ? h("span", { class: "alert" }, "look here") : null),
    h("p", { class: "rate" }, value),
    h("dl", {}, known.map((one) => h("div", { class: one.wrong ? "wrong" : null }, h("dt", {}, one.wrong ? "! " : null, one.name), h("dd", {}, one.value)))),
  );
}
