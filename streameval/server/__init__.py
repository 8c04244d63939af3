"""The readers' side: HTTP API, Prometheus metrics and the web page, all over the latest immutable snapshot."""

from streameval.process.opening import ServeError
from streameval.server.http.app import create_app
from streameval.server.http.serve import ServerHandle, serve

__all__ = ["ServeError", "ServerHandle", "create_app", "serve"]
