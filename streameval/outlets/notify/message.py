"""A message, independent of the kind of receiver."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import quote

from streameval.compare.reading.words import plain

TITLES = {
    "worse": "Worse",
    "not_worse": "Certified not worse",
    "withheld": "Verdict withheld",
    "recovered": "Recovered",
    "no_data": "No data",
    "test": "Test message",
}
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Notice:
    """One change for one receiver. `id` is the same at every attempt, so that a receiver can tell a repetition."""

    id: str
    kind: str
    model: str
    at: int  # ms
    text: str
    link: str  # of the page; "": server.external_url is not set
    more: Mapping[str, Any]
    titled: str = ""  # what the title begins with; "": as all of its kind

    @property
    def title(self) -> str:
        """For a subject: "Worse: ads v2", with names as the text has them: printable, and not too long."""
        version = self.more.get("candidate")
        about = plain(self.model) + (f" {plain(version)}" if version else "")
        return f"{self.titled or TITLES[self.kind]}: {about}"

    def as_json(self) -> dict[str, Any]:
        """The object that a webhook gets."""
        return {
            "id": self.id,
            "kind": self.kind,
            "title": self.title,
            "text": self.text,
            "model": self.model,
            "at": rfc3339_of(self.at),
            "link": self.link or None,
            **self.more,
        }


def message_of(key: str, body: Mapping[str, Any], external_url: str) -> Notice:
    """From what the outbox keeps."""
    more = {name: value for name, value in body.items() if name not in ("kind", "model", "at", "text", "titled")}
    link = page_link(external_url, more.get("comparison"))
    return Notice(key, body["kind"], body["model"], body["at"], body["text"], link, more, body.get("titled", ""))


def message_for_a_test(now: float, external_url: str) -> Notice:
    """What `streameval notify test` sends; `now` in seconds."""
    at = round(now * 1000)
    text = "streameval can reach you. Nothing has happened."
    return Notice(f"test-{at}", "test", "streameval", at, text, page_link(external_url, None), {})


def page_link(external_url: str, comparison: str | None) -> str:
    """The page's address, at a comparison if there is one; "" without `server.external_url`."""
    if not external_url:
        return ""
    start = external_url.rstrip("/") + "/"
    return start if comparison is None else f"{start}#/comparisons?id={quote(comparison, safe='')}"


def rfc3339_of(ms: int) -> str | None:
    """A time as the API writes it; None for one without a date."""
    try:
        when = _EPOCH + timedelta(milliseconds=ms)
    except OverflowError:
        return None
    return when.isoformat(timespec="milliseconds").replace("+00:00", "Z")
