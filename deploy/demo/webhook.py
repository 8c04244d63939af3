"""Where Alertmanager delivers to in the demo: prints each alert as a line, and shows the last ones at GET /.

python webhook.py HOST PORT

Uses nothing but Python's standard library. Not for production: whoever reaches it can post.
"""

from __future__ import annotations

import json
import sys
from collections import deque
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

KEPT = 500  # alerts
LONGEST = 1 << 20  # bytes of a delivery; Alertmanager's are some kB


class Webhook(ThreadingHTTPServer):
    """A server that keeps the last `KEPT` deliveries: a receiver's name and one of its alerts each, the oldest first.

    Port 0 takes a free one (`server_address`). `say` is told a line for each.
    """

    daemon_threads = True

    def __init__(self, host: str, port: int, say: Callable[[str], None] = lambda line: None) -> None:
        super().__init__((host, port), _Take)
        self.delivered: deque[tuple[str, dict[str, Any]]] = deque(maxlen=KEPT)
        self.say = say

    def take(self, told: dict[str, Any]) -> None:
        """A delivery of Alertmanager: {"receiver": name, "alerts": [...]}."""
        for alert in told["alerts"]:
            self.delivered.append((told["receiver"], alert))
            labels, notes = alert["labels"], alert.get("annotations", {})
            what = notes.get("description") or notes.get("summary", "")
            self.say(f"{alert['status']} -> {told['receiver']}: {labels['alertname']}: {what}")


class _Take(BaseHTTPRequestHandler):
    server: Webhook

    def do_GET(self) -> None:
        """Everything kept, as JSON."""
        self._answer(200, [{"receiver": name, **alert} for name, alert in list(self.server.delivered)])

    def do_POST(self) -> None:
        """One delivery."""
        size = int(self.headers.get("Content-Length") or 0)
        if not 0 < size <= LONGEST:
            self._answer(413, {"error": f"must be 1 to {LONGEST} bytes"})
            return
        try:
            self.server.take(json.loads(self.rfile.read(size)))
        except (ValueError, KeyError, TypeError) as error:
            self._answer(400, {"error": f"not a delivery of Alertmanager: {error!r}"})
            return
        self._answer(200, {})

    def _answer(self, status: int, value: object) -> None:
        body = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Nothing: the health check asks every few seconds."""


if __name__ == "__main__":
    with Webhook(sys.argv[1], int(sys.argv[2]), lambda line: print(line, flush=True)) as server:
        print(f"alerts are shown at http://{sys.argv[1]}:{server.server_address[1]}/", flush=True)
        server.serve_forever()
