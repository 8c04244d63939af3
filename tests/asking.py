"""Questions over HTTP: each `httpx.get` without more reads anew whom this system trusts, which is 20 ms of processor time."""

from __future__ import annotations

from functools import partial

import httpx

TRUST = httpx.create_ssl_context()
get = partial(httpx.get, verify=TRUST)
post = partial(httpx.post, verify=TRUST)
stream = partial(httpx.stream, verify=TRUST)
