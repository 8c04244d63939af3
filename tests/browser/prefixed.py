"""A reverse proxy that serves a monitor below a path, as nginx does with `location /mon/ { proxy_pass http://monitor/; }`."""

from __future__ import annotations

import threading
import urllib.error
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

PREFIX = "/mon"
_PASSED_ON = ("accept", "if-none-match", "content-type", "authorization")
_BETWEEN_TWO = ("transfer-encoding", "connection")  # of one connection, and no part of the answer


class Prefixed:
    """Serves `address` below `PREFIX` until `stop`; everything else there is 404, and in `outside`."""

    def __init__(self, address: str) -> None:
        outside: list[str] = []

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                if self.path == PREFIX:
                    self.send_response(301)
                    self.send_header("Location", f"{PREFIX}/")
                    self.end_headers()
                elif self.path.startswith(f"{PREFIX}/"):
                    self._pass_on()
                else:
                    outside.append(self.path)
                    self.send_error(404)

            def _pass_on(self) -> None:
                headers = {name: value for name, value in self.headers.items() if name.lower() in _PASSED_ON}
                request = urllib.request.Request(address + self.path.removeprefix(PREFIX), headers=headers)
                try:
                    answer = urllib.request.urlopen(request, timeout=60)
                except urllib.error.HTTPError as error:
                    answer = error
                with answer:
                    self.send_response(answer.status)
                    for name, value in answer.headers.items():
                        if name.lower() not in _BETWEEN_TWO:
                            self.send_header(name, value)
                    self.end_headers()
                    try:
                        while part := answer.read1(65536):  # the stream of snapshots has no end
                            self.wfile.write(part)
                            self.wfile.flush()
                    except OSError:  # either end has gone
                        self.close_connection = True

            def log_message(self, *given: object) -> None:
                """Is silent."""

        self.outside = outside
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._server.block_on_close = False
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()
        self.origin = f"http://127.0.0.1:{self._server.server_port}"
        self.url = self.origin + PREFIX

    def stop(self) -> None:
        """Ends it."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
