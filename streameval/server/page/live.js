// An overview arrives with every snapshot. EventSource gives up for good when the answer is an error (503: all streams
// taken), so this reconnects by itself, later each time.

const FIRST_MS = 1000;
const MOST_MS = 30000;

export function listen(came, connection) {
  let wait = FIRST_MS;
  let timer = null;
  let source = null;

  function connect() {
    source = new EventSource("/api/v1/stream");
    source.addEventListener("snapshot", (event) => {
      wait = FIRST_MS;
      connection("live");
      came(JSON.parse(event.data));
    });
    source.onerror = () => {
      source.close();
      connection("lost");
      timer = setTimeout(connect, wait * (0.75 + Math.random() / 2));
      wait = Math.min(wait * 2, MOST_MS);
    };
  }

  // who looks again wants to see it at once
  document.addEventListener("visibilitychange", () => {
    if (document.visibilityState === "visible" && source.readyState === EventSource.CLOSED) {
      clearTimeout(timer);
      wait = FIRST_MS;
      connect();
    }
  });
  connect();
}
