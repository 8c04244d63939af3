"""A client for schema registries with Confluent's HTTP interface (Confluent, Karapace, Redpanda, Apicurio's ccompat).

A schema never changes, so a fetched one is kept forever. That an id has no schema may change: it is requested again
after `FORGET` seconds. While the registry does not answer, nothing is decided: see `SchemaRegistry.resolve`.
"""

from __future__ import annotations

import base64
import json
import logging
import math
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any
from urllib.parse import quote

from streameval.settings.kafka import SchemaRegistry as RegistrySettings
from streameval.sources.formats.framed import Schema
from streameval.sources.protocol import SourceError

log = logging.getLogger(__name__)

TIMEOUT = 5.0  # seconds for an answer: a poll waits for it
FORGET = 30.0  # seconds for which an id counts as unknown: the delay for a schema registered after its messages
_LARGEST = 8 << 20  # bytes of an answer
MOST_REFERENCES = 100
_MOST_UNKNOWN = 100_000  # ids remembered as unknown
_LARGEST_ID = (1 << 31) - 1
_MOST_ASKED = 200  # ids requested per call, so that a poll ends


class RegistryDownError(Exception):
    """The registry does not answer, or not as it should; the message says how."""


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any) -> None:
        """Returns None: another host must not get our credentials."""


class RegistryClient:
    """Queries one registry, or the first of several addresses that answers."""

    def __init__(self, settings: RegistrySettings) -> None:
        """Raises SourceError for a file that cannot be read."""
        self._settings = settings
        self._urls = [one.strip().rstrip("/") for one in settings.url.split(",") if one.strip()]
        try:
            context = ssl.create_default_context(cafile=settings.ca or None)
            if settings.certificate:
                context.load_cert_chain(settings.certificate, settings.key or None)
            self._authorization()
        except (OSError, ValueError) as error:
            raise SourceError(f"kafka.schema_registry: a file cannot be used: {error}") from None
        self._open = urllib.request.build_opener(urllib.request.HTTPSHandler(context=context), _NoRedirect()).open

    def get(self, path: str) -> Any | None:
        """Returns the answer to GET `path`; None if there is no such thing. Raises RegistryDownError."""
        why = ""
        for url in self._urls:
            try:
                request = urllib.request.Request(f"{url}{path}", headers=self._headers())  # noqa: S310  (settings check it)
                with self._open(request, timeout=TIMEOUT) as answer:
                    text = answer.read(_LARGEST + 1)
                if len(text) > _LARGEST:
                    raise ValueError(f"an answer of more than {_LARGEST} bytes")
                return json.loads(text)
            except urllib.error.HTTPError as error:
                with error:
                    if error.code in (404, 422) and _is_ours(error):
                        return None
                    why = f"{url}: HTTP {error.code} {error.reason}"
                    if error.code in (401, 403):
                        why += "; check username, password_file and token_file"
            except (OSError, ValueError) as error:
                why = f"{url}: {getattr(error, 'reason', error)}"
        raise RegistryDownError(why)

    def schema(self, id: int) -> Schema | None:
        """Returns the schema of an id with everything that it references; None if there is none. Raises
        RegistryDownError.
        """
        found = self.get(f"/schemas/ids/{id}")
        if found is None:
            return None
        references: dict[str, str] = {}
        self._collect(found, references, set())
        return Schema(id, str(found["schema"]), references, str(found.get("schemaType") or "AVRO"))

    def _collect(self, found: Any, out: dict[str, str], seen: set[tuple[str, int]]) -> None:
        """Collects the schemas that one references, each after its own references."""
        for one in found.get("references") or ():
            name, subject, version = str(one["name"]), str(one["subject"]), int(one["version"])
            if (subject, version) in seen or len(seen) >= MOST_REFERENCES:
                continue
            seen.add((subject, version))
            inner = self.get(f"/subjects/{quote(subject, safe='')}/versions/{version}")
            if inner is None:
                raise RegistryDownError(
                    f'there is no version {version} of subject "{subject}", which a schema refers to'
                )
            self._collect(inner, out, seen)
            out[name] = str(inner["schema"])

    def _headers(self) -> dict[str, str]:
        accept = {"Accept": "application/vnd.schemaregistry.v1+json, application/json"}
        authorization = self._authorization()
        return {**accept, "Authorization": authorization} if authorization else accept

    def _authorization(self) -> str:
        """Returns the header, read from the files every time: tokens and passwords are renewed there."""
        given = self._settings
        if given.token_file:
            return f"Bearer {Path(given.token_file).read_text().strip()}"
        if given.username:
            password = Path(given.password_file).read_text().strip() if given.password_file else ""
            return "Basic " + base64.b64encode(f"{given.username}:{password}".encode()).decode()
        return ""


def _is_ours(error: urllib.error.HTTPError) -> bool:
    """Whether a registry says that there is none, rather than a wrong address."""
    try:
        return "error_code" in json.loads(error.read(_LARGEST))
    except (OSError, ValueError, TypeError):
        return False


class SchemaRegistry:
    """The schemas fetched so far. Used by a single thread."""

    def __init__(self, settings: RegistrySettings, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._client = RegistryClient(settings)
        self._clock = clock
        self._known: dict[int, Schema] = {}
        self._unknown: dict[int, float] = {}  # when they were requested
        self._since: float | None = None  # when requests for messages that are still waiting began

    def known(self, id: int) -> Schema | None:
        """See `framed.Schemas`."""
        return self._known.get(id)

    def resolve(self, ids: Iterable[int]) -> bool:
        """Requests the schemas not known yet; returns False if not all have been answered, so that nothing may be
        decided about them.

        Raises RegistryDownError if the registry does not answer.
        """
        now = self._clock()
        # what was answered since then is valid for these messages, however long the other requests take
        since, self._since = (now if self._since is None else self._since), None
        asked = {id: self._unknown.get(id, -math.inf) for id in ids if id not in self._known}
        open_ids = sorted(id for id, at in asked.items() if at <= now - FORGET and at < since)
        for id in open_ids[:_MOST_ASKED]:
            try:
                found = self._client.schema(id) if id <= _LARGEST_ID else None
            except (KeyError, TypeError, ValueError, AttributeError) as error:
                raise RegistryDownError(f"an unexpected answer: {error!r}") from None
            if found is not None:
                self._known[id] = found
                log.info("schema %d (%s): fetched", id, found.type)
                continue
            self._unknown.pop(id, None)
            self._unknown[id] = now
            if len(self._unknown) > _MOST_UNKNOWN:
                del self._unknown[next(iter(self._unknown))]
        if len(open_ids) <= _MOST_ASKED:
            return True
        self._since = since
        return False

    def connect(self) -> None:
        """Makes any request. Raises RegistryDownError."""
        self._client.get("/subjects")
