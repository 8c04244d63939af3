// Questions to the API, at addresses relative to the page, as a proxy may have put a prefix before it. A token, where one is needed, is
// asked for by the view and kept for this tab only.

const KEY = "streameval-token";
const AT_ONCE = 3; // of the four past questions that the server answers at a time; others look, too
const TRIES = 4; // while it says that it is busy

export class Refused extends Error {
  constructor(status, detail) {
    super(detail);
    this.status = status;
  }
}

export async function ask(path, parameters, options) {
  return (await answered(path, parameters, options)).json();
}

// The rows of an answer as a file.
export async function csv(path, parameters) {
  return (await answered(path, { ...parameters, format: "csv" })).blob();
}

// Says something.
export async function post(path, body) {
  const more = { method: "POST", body: JSON.stringify(body) };
  return (await answered(path, {}, more, { "Content-Type": "application/json" })).json();
}

async function answered(path, parameters = {}, more = {}, headers = {}) {
  const filled = Object.entries(parameters).filter(([, value]) => value !== null && value !== undefined && value !== "");
  const query = new URLSearchParams(filled).toString();
  const token = sessionStorage.getItem(KEY);
  const all = token ? { Authorization: `Bearer ${token}`, ...headers } : headers;
  const answer = await turns(() => patient(`api/v1/${path}${query ? `?${query}` : ""}`, { headers: all, ...more }));
  if (answer.ok) return answer;
  const problem = await answer.json().catch(() => ({}));
  throw new Refused(answer.status, problem.detail ?? problem.title ?? `HTTP ${answer.status}`);
}

// An answer; 503 is "later": the server says when.
async function patient(address, options) {
  for (let tried = 1; ; tried += 1) {
    const answer = await fetch(address, options);
    if (answer.status !== 503 || tried === TRIES) return answer;
    await new Promise((later) => setTimeout(later, 1000 * Math.min(5, Number(answer.headers.get("Retry-After")) || 1)));
    options.signal?.throwIfAborted();
  }
}

let busy = 0;
const waiting = [];

// Runs `task` when fewer than AT_ONCE are running.
async function turns(task) {
  if (busy >= AT_ONCE) await new Promise((turn) => waiting.push(turn));
  else busy += 1;
  try {
    return await task();
  } finally {
    const next = waiting.shift(); // takes over the place
    if (next) next();
    else busy -= 1;
  }
}

export const useToken = (token) => sessionStorage.setItem(KEY, token);

// One request at a time for each asker: a newer one aborts the one before; a failure is reported, not thrown.
export function asker() {
  let last = null;
  return {
    async ask(questions, failed) {
      last?.abort();
      const own = (last = new AbortController());
      try {
        const answers = await Promise.all(questions.map(([path, given]) => ask(path, given, { signal: own.signal })));
        return own === last ? answers : null;
      } catch (error) {
        if (error.name !== "AbortError" && own === last) failed(error);
        return null;
      }
    },
    stop() {
      last?.abort();
    },
  };
}
