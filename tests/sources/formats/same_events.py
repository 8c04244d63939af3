"""Whether messages of another format are read as the same events in JSON are, codes written out."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Literal

from streameval.testing import carrying_all
from tests.fuzz.laws import FORMS, Form, events_of


def read_as(
    form: Form, own: Any, values: Sequence[bytes], kind: int, format: Literal["json", "arrow", "own"] = "own"
) -> tuple[list[tuple[Any, ...]], list[tuple[str, str, str]]]:
    """Returns (the events, the letters as reason, field and message)."""
    decoder = form.decoder()
    decoder.own = own
    with carrying_all():
        batch, letters = decoder.messages(
            values, [kind] * len(values), topic=("i", "c")[: 2 if kind else 1], partition=0, offsets=range(len(values)),
            format=format, shared=kind == 0,
        )  # fmt: skip
    return events_of(decoder, batch), [(letter.reason, letter.field, letter.message) for letter in letters]


def assert_same_events(own: Any, values: Sequence[bytes], events: Sequence[dict[str, Any]], kind: int = 1) -> None:
    """The messages are these events, whatever is wanted of them."""
    for form in FORMS:
        wanted, none = read_as(form, None, [json.dumps(event).encode() for event in events], kind, "json")
        assert (len(wanted), none) == (len(events), [])
        assert read_as(form, own, values, kind) == (wanted, [])
