"""Tokens for SASL/OAUTHBEARER from the user's callable (`kafka.oauth = "module:callable"`)."""

from __future__ import annotations

import importlib
import threading
import time
from collections.abc import Callable

from streameval.sources.protocol import SourceError

TokenSource = Callable[[], tuple[str, float]]

_RENEW = 0.8  # of a token's life: like librdkafka
_LOCK = threading.Lock()
_SOURCES: dict[str, TokenSource] = {}


def token_source(path: str) -> TokenSource:
    """Returns a source of (token, when it expires in s since the epoch) from `module:callable`, one for all clients of
    the process.

    A token is kept for 80% of its life. Raises SourceError if there is no such callable, or it returns something else.
    """
    with _LOCK:
        if path not in _SOURCES:
            _SOURCES[path] = _Kept(path, _loaded(path))
        return _SOURCES[path]


def _loaded(path: str) -> Callable[[], object]:
    module, _, name = path.partition(":")
    try:
        found: object = importlib.import_module(module)
        for part in name.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError) as error:
        raise SourceError(
            f'kafka.oauth = "{path}": cannot be imported: {error}; is its folder on PYTHONPATH?'
        ) from None
    if not callable(found):
        raise SourceError(f'kafka.oauth = "{path}": is {type(found).__name__}, not callable')
    return found


class _Kept:
    """Caches tokens for the threads of several clients."""

    def __init__(self, path: str, ask: Callable[[], object]) -> None:
        self._path = path
        self._ask = ask
        self._lock = threading.Lock()
        self._token, self._expires, self._renew = "", 0.0, 0.0

    def __call__(self) -> tuple[str, float]:
        """Returns the token. Raises what the callable raises: clients try again."""
        with self._lock:
            now = time.time()
            if now >= self._renew:
                given = self._ask()
                if not (
                    isinstance(given, tuple)
                    and len(given) == 2
                    and isinstance(given[0], str)
                    and isinstance(given[1], (int, float))
                ):
                    raise SourceError(
                        f'kafka.oauth = "{self._path}": returned {type(given).__name__}: must return (token, seconds '
                        "since the epoch at which it expires)"
                    )
                self._token, self._expires = given[0], float(given[1])
                self._renew = now + _RENEW * (self._expires - now)
            return self._token, self._expires
