// Questions to the API. A token, where one is needed, is asked for by the view and kept for this tab only.

const KEY = "streameval-token";

export class Refused extends Error {
  constructor(status, detail) {
    super(detail);
    this.status = status;
  }
}

export async function ask(path, parameters = {}, { signal } = {}) {
  const filled = Object.entries(parameters).filter(([, value]) => value !== null && value !== undefined && value !== "");
  const query = new URLSearchParams(filled).toString();
  const token = sessionStorage.getItem(KEY);
  const headers = token ? { Authorization: `Bearer ${token}` } : {};
  const answer = await fetch(`/api/v1/${path}${query ? `?${query}` : ""}`, { headers, signal });
  if (answer.ok) return answer.json();
  const problem = await answer.json().catch(() => ({}));
  throw new Refused(answer.status, problem.detail ?? problem.title ?? `HTTP ${answer.status}`);
}

export const useToken = (token) => sessionStorage.setItem(KEY, token);

// One question at a time for each asker: a newer one ends the one before; a failure is told, not thrown.
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
