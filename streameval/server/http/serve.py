"""Runs the app in its own thread, so that the ingest loop keeps the main one."""

from __future__ import annotations

import gc
import ssl
import threading
import time

import uvicorn
from fastapi import FastAPI

from streameval.process.opening import Opening, ServeError
from streameval.process.start import take_short_turns
from streameval.server.api.stream import Streams
from streameval.server.http.connections import MAX_HEAD, STATE_SECONDS, Listener, connection_class


class ServerHandle:
    """A running server: `url` to reach it, `stop()` to end it."""

    def __init__(self, server: uvicorn.Server, thread: threading.Thread, streams: Streams, url: str, port: int) -> None:
        self._server = server
        self._thread = thread
        self._streams = streams
        self.url = url
        self.port = port

    @property
    def alive(self) -> bool:
        """False once the server has stopped, for whatever reason."""
        return self._thread.is_alive()

    def stop(self, timeout: float = 10.0) -> None:
        """Ends the streams, lets running requests finish, frees the port. May be called twice."""
        self._streams.close()
        self._server.should_exit = True
        self._thread.join(timeout)


def serve(
    app: FastAPI,
    host: str,
    port: int,
    *,
    opening: Opening | None = None,
    grace: float = 2.0,
    start_timeout: float = 30.0,
    renewal: int = 60,
) -> ServerHandle:
    """Serves `app` (made by `create_app`) until `stop()`; returns once it answers. Port 0 takes a free port.

    `opening`: of this address, whose socket the server takes over; None: it opens the address itself. With a certificate in
    the app's settings it speaks https only. `grace` is how many seconds running requests get at
    the end, `renewal` the seconds between looks for a renewed certificate. Raises ServeError when the address cannot be used.
    """
    tls: ssl.SSLContext | None = app.state.tls
    opening = opening or Opening(host, port, answers=False)
    listener = Listener(fileno=opening.take().detach())
    listener.setblocking(False)
    take_short_turns()
    gc.collect()
    gc.freeze()  # some 200,000 objects of imported code, or every full collection stops all threads to look at them
    bound = listener.getsockname()[1]
    config = uvicorn.Config(
        app,
        http=connection_class(app.state.headers),
        callback_notify=app.state.renewal.look if tls is not None else None,
        timeout_notify=renewal,
        ssl_context_factory=(lambda *_: tls) if tls is not None else None,
        h11_max_incomplete_event_size=MAX_HEAD,
        proxy_headers=False,  # nothing here depends on the client's address or scheme, so no proxy headers have to be trusted
        access_log=False,  # it would hold addresses, and users' ids in paths
        log_config=None,
        log_level="warning",
        ws="none",
        lifespan="off",
        server_header=False,
        timeout_graceful_shutdown=max(1, round(grace)),
        timeout_keep_alive=round(STATE_SECONDS["idle"]),
    )
    server = uvicorn.Server(config)
    thread = threading.Thread(
        target=server.run, kwargs={"sockets": [listener]}, name=f"streameval-http-{bound}", daemon=True
    )
    thread.start()
    deadline = time.monotonic() + start_timeout
    while not server.started:
        if not thread.is_alive() or time.monotonic() > deadline:
            server.should_exit = True
            listener.close()
            raise ServeError(f"the HTTP server on {host}:{bound} did not start; the log says why")
        time.sleep(0.005)
    url = _url("http" if tls is None else "https", host, bound)
    return ServerHandle(server, thread, app.state.streams, url, bound)


def _url(scheme: str, host: str, port: int) -> str:
    reachable = {"0.0.0.0": "127.0.0.1", "": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104  (compared with, not bound to)
    return f"{scheme}://[{reachable}]:{port}" if ":" in reachable else f"{scheme}://{reachable}:{port}"
