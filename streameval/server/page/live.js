// An overview arrives with every snapshot, and a watchdog sees whether they still do. It watches the age of the newest
// snapshot, not the connection: that of a frozen monitor stays open, and a reconnect may bring an old snapshot again.
// EventSource gives up when the response is an error (503: all streams in use), so this reconnects by itself.

import { now, setBy } from "./clock.js";

const FIRST_MS = 1000; // the pause before a reconnect; it doubles
const MOST_MS = 30000;
const STALE_MS = 10000; // a snapshot older than this, and than so many intervals, is stale
const INTERVALS = 5;
const STARTING_MS = 180000; // snapshot 0 is empty, and stays until everything has been compiled
const PROBE_MS = 5000; // how long an answer may take, and the time between two questions
const PROMPT_MS = 2500; // an answer that took longer tells no time
const KEPT = 9; // intervals, of which the median counts: an outage is not what to expect

// `came(overview)`; `changed({ state, since, interval, answers, doing })` every second and whenever something changes. `state` is
// waiting, live, stale (no newer snapshot `since`) or lost (no connection `since`); `interval`: ms between snapshots;
// `answers`: whether the monitor answers at all, and then `doing`: what counting waits for, if it says so. Times are in ms.
// Returns { retry }.
export function listen(came, changed) {
  let wait = FIRST_MS;
  let timer = null;
  let source = null;
  let newest = null; // { number, time } of the newest snapshot
  let lost = null; // since when
  let answers = null;
  let doing = "";
  let timed = false; // whether the monitor's clock has been asked for
  let probed = -Infinity;
  let reconnected = 0;
  const begun = Date.now();
  const apart = [];
  let usual = null; // ms between snapshots since the start: what to expect before two have come

  function connect() {
    clearTimeout(timer);
    source?.close();
    source = new EventSource("api/v1/stream");
    source.addEventListener("snapshot", (event) => {
      const overview = JSON.parse(event.data);
      wait = FIRST_MS;
      lost = null;
      note(overview);
      came(overview);
      look();
    });
    source.onerror = () => {
      source.close();
      lost ??= Date.now();
      timer = setTimeout(connect, wait * (0.75 + Math.random() / 2));
      wait = Math.min(wait * 2, MOST_MS);
      look();
    };
  }

  function note({ snapshot: number, as_of, started_at }) {
    const time = Date.parse(as_of);
    if (number > 0) usual = Math.min(MOST_MS, (time - Date.parse(started_at)) / number);
    const old = now() - time; // by both clocks; no snapshot is of the future
    if (newest === null || ((old > STALE_MS || old < -PROMPT_MS) && Date.now() - probed > PROBE_MS)) probe();
    if (newest?.number > 0 && time > newest.time) apart.unshift(time - newest.time);
    apart.splice(KEPT);
    newest = { number, time };
  }

  const interval = () => (apart.length ? [...apart].sort((a, b) => a - b)[apart.length >> 1] : usual);

  function state() {
    if (lost !== null) return { state: "lost", since: lost };
    if (newest === null) return Date.now() - begun > STALE_MS ? { state: "lost", since: begun } : { state: "waiting" };
    const most = newest.number <= 0 ? STARTING_MS : Math.max(STALE_MS, INTERVALS * (interval() ?? 0));
    return timed && now() - newest.time > most ? { state: "stale", since: newest.time } : { state: "live" };
  }

  function look() {
    const found = state();
    if (["stale", "lost"].includes(found.state)) {
      if (Date.now() - probed > PROBE_MS) probe();
      // a connection of which the other end is gone says nothing; a new one does
      if (found.state === "stale" && Date.now() - reconnected > MOST_MS) {
        reconnected = Date.now();
        connect();
      }
    } else answers = null;
    changed({ ...found, interval: interval(), answers, doing, newest: newest?.time ?? null });
  }

  // Whether the monitor answers, what time it has, and what it waits for.
  function probe() {
    const asked = (probed = Date.now());
    fetch("livez", { cache: "no-store", signal: AbortSignal.timeout(PROBE_MS) }).then(
      async (answer) => {
        if (Date.now() - asked < PROMPT_MS) setBy(answer.headers.get("Date")); // else it was frozen, and its date is old
        doing = (await answer.json().catch(() => null))?.awaited ?? ""; // a proxy may answer in its place
        answers = true;
      },
      () => (answers = false),
    ).finally(() => (timed = true));
  }

  function retry() {
    wait = FIRST_MS;
    probe();
    connect();
  }

  // who looks again wants to see it at once
  document.addEventListener("visibilitychange", () => {
    if (document.visibilityState === "visible" && source.readyState === EventSource.CLOSED) retry();
  });
  setInterval(look, 1000);
  connect();
  return { retry };
}
