"""Messages under `[kafka.columns]` by the kernels and as objects: they may differ in speed only."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streameval.sources.formats import live_columns
from streameval.sources.formats.raw import Wants
from tests.fuzz.laws import Form, check_live_kernel
from tests.fuzz.strategies import bent
from tests.sources.formats.test_mapped_lines import FORMS, GOOD, MADE, NAMES, VALUES, WHOLE

NESTED: dict[str, Any] = {
    "impression_id": "id", "ts": "at", "user_id": "else.user", "pclick": "p", "model_version": "v", "slices": {"country": "else.geo"},
}  # fmt: skip
FLAT = {**NESTED, "user_id": "uid", "slices": {"country": "geo", "device": "not there"}}
MAPPINGS = (WHOLE, MADE, NESTED, FLAT)
ODD: list[bytes | None] = [
    None, b"", b" ", b"{}", b"[]", b"null", b'"x"', b"{", b"\xff", b'{"id": "\\ud800"}', b'{"id": {"a": 1}}', b'{"else.geo": "x", "else": {"geo": "y"}}',
    b'{"id": "i", "id": "j"}', b'{"p": "0.5", "at": "2024-05-01"}', b'{"u\\u0069d": "u"}', b'{"age": ["a", "b"]}', b'{"age": [1]}', b"x" * 30_000,
]  # fmt: skip


def message(**changes: Any) -> bytes:
    return json.dumps({**GOOD, **changes}).encode()


PLAIN: list[bytes | None] = [message(id=f"i{k}") for k in range(4)]


def every(values: list[bytes | None], kinds: list[int] | None = None) -> None:
    for form in FORMS:
        for mapping in MAPPINGS:
            check_live_kernel(form, values, kinds or [1] * len(values), mapping)


def test_plain_messages_come_to_the_same() -> None:
    every(PLAIN)
    every(PLAIN, [1, 2, 1, 2])
    every(PLAIN, [2, 2, 2, 2])


@pytest.mark.parametrize("odd", range(len(ODD)))
def test_an_odd_message_comes_to_the_same(odd: int) -> None:
    every([*PLAIN[:2], ODD[odd], *PLAIN[2:]])
    every([ODD[odd]])


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_whatever_a_value_is_it_comes_to_the_same(name: str) -> None:
    for k, value in enumerate(VALUES):
        values = [message(), message(**{name: value}), message(id="i2")]
        check_live_kernel(FORMS[k % 3], values, [1, 1, 1], MAPPINGS[k % 4])
        check_live_kernel(FORMS[k % 3], [message(**{name: value})] * 3, [1, 1, 1], MAPPINGS[(k + 1) % 4])


@given(bent(b"\n".join(PLAIN[:3]), message(p=1)), st.sampled_from(MAPPINGS), st.sampled_from(FORMS))  # type: ignore[arg-type]
def test_bent_messages_come_to_the_same(data: bytes, mapping: dict[str, Any], form: Form) -> None:
    values = data.split(b"\n")
    check_live_kernel(form, values, [1 + k % 2 for k in range(len(values))], mapping)


def test_messages_that_nothing_is_wrong_with_become_no_objects(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[bytes] = []
    object_of = live_columns.object_of
    monkeypatch.setattr(live_columns, "object_of", lambda text, must: read.append(text) or object_of(text, must))
    decoder = Form().decoder()
    live_columns_of = live_columns.LiveColumns(FLAT, "kafka.columns")
    decoder.own = live_columns.MappedJson({1: live_columns_of}, lambda: decoder.reads_cells).to_raw
    values = [*PLAIN, b"[]", b""]
    batch, letters = decoder.messages(
        values, [1] * 6, topic=("i", "c"), partition=0, offsets=range(6), format="own", shared=False
    )
    assert len(batch.impressions) == 4
    assert [letter.offset for letter in letters] == [4, 5]
    assert read == [b"[]"]


def test_fields_within_others_are_not_looked_for_in_vain_in_every_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[int] = []
    mapped_lines = live_columns.MappedLines
    monkeypatch.setattr(live_columns, "MappedLines", lambda *given: tried.append(1) or mapped_lines(*given))
    mapped = live_columns.MappedJson({1: live_columns.LiveColumns(NESTED, "kafka.columns")}, lambda: True)
    for _ in range(live_columns.TRY_AGAIN + 2):
        mapped.to_raw([message(**{"else": {"user": "u"}})], [1], ("country",), Wants(True, False, False), 100_000)
    assert len(tried) == 2
