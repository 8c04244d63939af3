// Whether events come, are read, joined and valid: a line of numbers that lead to where it is told in full.

import { href } from "../address.js";
import { h, replace } from "../dom.js";
import { term } from "../explain.js";
import { age, DASH, duration, percent, share, short } from "../format.js";

const RECENT_S = 300;
const MOST_INVALID = 0.01; // of the recent events; more is worth a look

export function tiles(place, overview, recent, complete) {
  const { join, partitions } = overview;
  const lag = partitions.flatMap((p) => p.lag).reduce((sum, l) => sum + l.value, 0);
  const { perSecond, invalid, seconds } = recent;
  const all = Object.values(overview.events.invalid ?? {}).reduce((sum, n) => sum + n, 0);
  const tooMany = invalid > MOST_INVALID * (recent.events + invalid);
  const part = all / (overview.events.impressions + overview.events.clicks + all || 1);
  // who has only just opened the page has seen nothing to compare with
  const since = seconds < 10 ? "since the start" : `in all, ${short(invalid)} in the last ${seconds < RECENT_S ? duration(seconds) : "5 min"}`;
  const tile = (name, value, about, bad = false) =>
    h("div", { class: bad ? "bad" : null }, h("dt", {}, name), h("dd", {}, h("a", { href: href("flow"), "data-focus": `tile-${value === null ? about : name.textContent ?? name}` }, value)), h("dd", { class: "quiet" }, about));
  replace(
    place,
    tile(term("impression", "Impressions/s"), perSecond === null ? DASH : short(perSecond), `${short(overview.events.impressions ?? 0)} since the start`),
    tile(term("label delay", "Label delay"), complete === null || !overview.results.length ? DASH : age(complete * 1000), overview.results.length ? "age of the newest final label" : "no label is final yet"),
    tile(term("click match rate", "Click match rate"), join.join_rate === null || !overview.results.length ? DASH : percent(join.join_rate), join.reliable ? "clicks joined to their impression" : (join.reason ?? "").replaceAll("_", " "), !join.reliable),
    tile(term("consumer lag", "Consumer lag"), partitions.length ? short(lag) : DASH, "messages not read yet"),
    tile(term("invalid event", "Invalid events"), share(part), all ? `${short(all)} ${since}` : "none since the start", tooMany),
  );
}

// Of the snapshots seen here: impressions a second over the last ten seconds, and invalid events of the last five minutes.
export function flowing() {
  const seen = [];
  return ({ as_of, started_at: started, events }) => {
    const { impressions = 0, clicks = 0 } = events; // before the first event there are none
    const now = { at: Date.parse(as_of) / 1000, impressions, events: impressions + clicks, invalid: Object.values(events.invalid ?? {}).reduce((sum, n) => sum + n, 0) };
    if (seen.length && now.impressions < seen.at(-1).impressions) seen.length = 0; // restarted
    if (!seen.length || now.at > seen.at(-1).at) seen.push(now);
    while (seen.length > 2 && now.at - seen[1].at > RECENT_S) seen.shift();
    const before = seen.find((one) => now.at - one.at <= 10.5) ?? seen[0];
    const seconds = now.at - before.at;
    const running = now.at - Date.parse(started) / 1000;
    // at first the mean since the start
    return { perSecond: seconds > 0 ? (now.impressions - before.impressions) / seconds : running > 0 ? now.impressions / running : null, invalid: now.invalid - seen[0].invalid, events: now.events - seen[0].events, seconds: now.at - seen[0].at };
  };
}
