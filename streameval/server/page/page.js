// The live page: an overview arrives with every snapshot (server-sent events), bucket tables are asked for.

const $ = (id) => document.getElementById(id);
const DASH = "\u2013";
const BACKOFF_MS = { first: 1000, most: 30000 };
const state = { overview: null, window: null, chosen: null, backoff: BACKOFF_MS.first };

connect();
setInterval(renderAges, 1000);
$("window").addEventListener("change", (event) => {
  state.window = event.target.value;
  render();
});

// EventSource gives up for good when the answer is an error (503: all streams taken), so the page reconnects itself.
function connect() {
  const source = new EventSource("/api/v1/stream");
  source.addEventListener("snapshot", (event) => {
    state.backoff = BACKOFF_MS.first;
    state.overview = JSON.parse(event.data);
    connection("live");
    render();
  });
  source.onerror = () => {
    source.close();
    connection("lost");
    setTimeout(connect, state.backoff * (0.75 + Math.random() / 2));
    state.backoff = Math.min(state.backoff * 2, BACKOFF_MS.most);
  };
}

function connection(name) {
  $("connection").textContent = name === "live" ? "live" : "connection lost, trying again";
  $("connection").dataset.state = name;
}

function render() {
  const { overview } = state;
  if (!overview) return;
  const windows = [...new Set(overview.results.map((r) => r.window))];
  if (!windows.includes(state.window)) state.window = windows.includes("all") ? "all" : windows[0] ?? null;
  renderWindows(windows);
  const rows = overview.results.filter((r) => r.window === state.window);
  if (!rows.some((r) => key(r) === state.chosen)) state.chosen = rows.length ? key(rows[0]) : null;
  const focused = document.activeElement?.dataset?.key;
  $("models").tBodies[0].replaceChildren(...rows.map(modelRow));
  if (focused) [...$("models").tBodies[0].rows].find((row) => row.dataset.key === focused)?.focus();
  $("empty").hidden = rows.length > 0;
  renderAges();
  renderFlow(overview);
  renderWarning(overview);
  renderVerdicts(overview);
  renderBuckets(rows.find((r) => key(r) === state.chosen));
}

function renderWindows(windows) {
  const select = $("window");
  if ([...select.options].map((o) => o.value).join("\n") !== windows.join("\n")) {
    select.replaceChildren(...windows.map((w) => new Option(w, w)));
  }
  select.value = state.window ?? "";
}

function modelRow(result) {
  const row = element("tr");
  row.dataset.key = key(result);
  row.tabIndex = 0;
  row.setAttribute("aria-selected", String(key(result) === state.chosen));
  const choose = () => {
    state.chosen = key(result);
    render();
  };
  row.addEventListener("click", choose);
  row.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" && event.key !== " ") return;
    event.preventDefault();
    choose();
  });
  const auc = metric(result, "auc", 4);
  if (result.auc_error) auc.title = `\u00b1 ${result.auc_error.toPrecision(2)} from binning`;
  const gauc = metric(result, "gauc", 4);
  if (result.gauc !== null) gauc.title = `over ${count(result.gauc_users)} users with both labels`;
  const age = element("td", "", "number");
  age.dataset.since = result.newest_label ?? "";
  row.append(
    element("td", result.model), element("td", result.version), element("td", result.source),
    auc, gauc, metric(result, "log_loss", 4), metric(result, "rig", 4), metric(result, "calibration", 3),
    metric(result, "ctr", 4), element("td", count(result.impressions), "number"),
    element("td", count(result.clicks), "number"), age,
    result.reliable ? element("td", "yes", "yes") : element("td", `no: ${result.reliable_reason ?? "voided"}`, "no"),
  );
  return row;
}

async function renderBuckets(result) {
  const body = $("buckets").tBodies[0];
  $("selected").textContent = result ? `${result.model} ${result.version} (${result.source}), ${result.window}` : "";
  if (!result) return body.replaceChildren();
  const { model, version, source, window } = result;
  const query = new URLSearchParams({ model, version, source, window, slice: "none" });
  try {
    const answer = await fetch(`/api/v1/buckets?${query}`);
    if (!answer.ok || key(result) !== state.chosen || window !== state.window) return;
    const { tables } = await answer.json();
    body.replaceChildren(...(tables[0]?.buckets ?? []).map(bucketRow));
  } catch {
    // the connection is lost, and the header says so; the last table stays
  }
}

function bucketRow(bucket) {
  const row = element("tr");
  const empty = { reasons: {}, ...bucket };
  for (const name of ["mean_pclick", "ctr", "prediction_error", "log_loss"]) {
    empty.reasons[name] = bucket.impressions === 0 ? "no_impressions" : "no_clicks";
  }
  row.append(
    element("td", `${bucket.lower} ${DASH} ${bucket.upper}`),
    element("td", count(bucket.impressions), "number"), element("td", count(bucket.clicks), "number"),
    metric(empty, "mean_pclick", 5), metric(empty, "ctr", 5), metric(empty, "prediction_error", 3),
    metric(empty, "log_loss", 4),
  );
  return row;
}

function renderFlow({ events, join, partitions }) {
  const items = Object.entries(events).filter(([, n]) => typeof n === "number");
  const invalid = Object.values(events.invalid ?? {}).reduce((sum, n) => sum + n, 0);
  const lag = partitions.flatMap((p) => p.lag).reduce((sum, l) => sum + l.value, 0);
  items.push(["invalid", invalid], ["lag (records)", lag], ["overdue clicks", join.overdue_clicks]);
  $("flow").replaceChildren(
    ...items.map(([name, n]) => {
      const box = element("div");
      box.append(element("dt", name.replaceAll("_", " ")), element("dd", count(n)));
      return box;
    }),
  );
}

function renderWarning({ join, ready }) {
  const failing = Object.entries(ready).filter(([, passed]) => !passed).map(([name]) => name);
  const parts = [];
  if (!join.reliable) parts.push(`The join is not reliable: ${join.reason ?? "unknown reason"}.`);
  if (failing.length) parts.push(`Not ready: ${failing.join(", ")}.`);
  const text = parts.join(" ");
  if ($("warning").textContent !== text) $("warning").textContent = text;
  $("warning").hidden = !text;
}

function renderVerdicts({ verdicts }) {
  $("verdicts").replaceChildren(
    ...verdicts.map((headline) => {
      const line = element("li", headline.words);
      line.dataset.verdict = headline.verdict;
      return line;
    }),
  );
  $("verdicts").hidden = verdicts.length === 0;
}

function renderAges() {
  for (const cell of document.querySelectorAll("[data-since]")) {
    const since = Date.parse(cell.dataset.since);
    cell.textContent = Number.isNaN(since) ? DASH : age(Date.now() - since);
    cell.title = cell.dataset.since || "no label yet";
  }
  if (state.overview) $("as-of").textContent = `as of ${age(Date.now() - Date.parse(state.overview.as_of))} ago`;
}

function metric(result, name, digits) {
  const value = result[name];
  if (value !== null) return element("td", value.toFixed(digits), "number");
  const cell = element("td", DASH, "number undefined");
  cell.title = `undefined: ${(result.reasons[name] ?? "unknown").replaceAll("_", " ")}`;
  return cell;
}

function element(name, text = "", className = "") {
  const made = document.createElement(name);
  made.textContent = text;
  if (className) made.className = className;
  return made;
}

function age(ms) {
  const seconds = Math.max(0, Math.round(ms / 1000));
  for (const [unit, size] of [["d", 86400], ["h", 3600], ["m", 60]]) {
    if (seconds >= 2 * size) return `${Math.floor(seconds / size)} ${unit}`;
  }
  return `${seconds} s`;
}

const count = (n) => n.toLocaleString("en");
const key = (r) => JSON.stringify([r.model, r.version, r.source]);
