// The address is the state: `#/history?metric=auc&range=24h`. A view reads it, and changes it; nothing else is kept.

export function read() {
  const [path, query = ""] = location.hash.replace(/^#\/?/, "").split("?", 2);
  return { path, given: Object.fromEntries(new URLSearchParams(query)) };
}

export function href(view, given = {}) {
  const filled = Object.entries(given).filter(([, value]) => value !== null && value !== undefined && value !== "");
  // colons and commas are plain in a fragment, and read better in an incident channel
  const query = new URLSearchParams(filled).toString().replaceAll("%2C", ",").replaceAll("%3A", ":");
  return `#/${view}${query ? `?${query}` : ""}`;
}

// Several names in one parameter, and back; a name may hold commas itself.
export const listOf = (names) => names.map((name) => name.replace(/[%,]/g, encodeURIComponent)).join(",");

export const namesOf = (list) => list.split(",").map((name) => name.replace(/%2[5C]/g, decodeURIComponent));

// `replace`: a change that the back button should not undo one by one.
export function go(view, given, { replace = false } = {}) {
  const address = href(view, given);
  if (address === location.hash) return;
  if (replace) history.replaceState(null, "", address);
  else history.pushState(null, "", address);
  window.dispatchEvent(new Event("addresschange"));
}

export function watch(changed) {
  for (const name of ["hashchange", "popstate", "addresschange"]) window.addEventListener(name, changed);
}
