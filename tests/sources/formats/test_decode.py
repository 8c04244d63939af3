"""The decoder: every field, every reason, and garbage by the hundred thousand."""

from __future__ import annotations

import io
import json
import random
import tracemalloc

import numpy as np
import pyarrow as pa
import pyarrow.ipc
import pytest

from streameval.events.batch import Catalog
from streameval.events.hashing import hash_one
from streameval.sources.formats import json as json_format
from streameval.sources.formats import read_json
from streameval.sources.formats.decode import Decoder
from streameval.sources.formats.scan_events import scan
from streameval.sources.protocol import REASONS

NOW = 1_800_000_000_000
GOOD = {"impression_id": "i", "ts": 1_700_000_000_000, "user_id": "u", "pclick": 0.25}


def make_decoder(**options: object) -> Decoder:
    return Decoder(Catalog(("country",)), clock=lambda: NOW, max_future=3_600_000, **options)


def decode(values: list[bytes | None], kind: int = 0, format: str = "json", **options: object):
    decoder = make_decoder(**options)
    n = len(values)
    return decoder.messages(
        values, [kind] * n, topic=("t",), partition=3, offsets=range(100, 100 + n), format=format, shared=True
    )


def one(event: object, **options: object):
    batch, letters = decode([json.dumps(event).encode()], **options)
    return batch, letters[0] if letters else None


@pytest.mark.usefixtures("all_carried")
def test_every_field_of_the_contract_is_read() -> None:
    event = {
        **GOOD, "model": "m", "model_version": "v7", "predictions": {"v8": 0.5, "v7": 0.1}, "request_id": "r",
        "item_id": "x", "position": 2, "propensity": 0.5, "slices": {"country": "de", "other": "z"}, "clicked": True,
        "features": {"age": 3, "city": "rom", "new": True, "tags": ["a", "b"], "none": None},
        "query_id": "q", "bid": 0.75, "policies": {"v8": 0.125, "v7": 1.0}, "shown": True, "weight": 12.5,
    }  # fmt: skip
    decoder = make_decoder(hashed=True, dicts=True, names=True)
    batch, letters = decoder.messages(
        [json.dumps(event).encode()], [0], topic=("t",), partition=0, offsets=[0], format="json", shared=True
    )
    assert not letters
    i = batch.impressions
    assert (i.id[0], i.user[0], i.request[0], i.item[0]) == tuple(hash_one(t) for t in ("i", "u", "r", "x"))
    assert (i.ts[0], i.pclick[0], i.label[0]) == (GOOD["ts"], 0.25, 1)
    numbers = {name: column.tolist() for name, column in i.fields.items()}
    assert numbers == {"position": [2], "propensity": [0.5], "bid": [0.75], "weight": [12.5]}
    assert i.query.tolist() == [hash_one("q")]
    assert [(decoder._catalog.series[s].version, p) for s, p in zip(i.policies.series, i.policies.pclick, strict=True)] == [
        ("v8", 0.125), ("v7", 1.0),
    ]  # fmt: skip
    catalog = decoder._catalog
    assert catalog.series[i.series[0]].version == "v7"
    assert [catalog.series[s].version for s in i.shadow.series] == ["v8"], "the serving version is counted once"
    assert catalog.values[0][catalog.split(i.slices, 0)[0]] == "de"
    expected = {"age": 3.0, "city=rom": 1.0, "new": 1.0, "tags=a": 1.0, "tags=b": 1.0}
    assert i.features.dicts[0] == expected
    hashed = dict(zip(i.features.index.tolist(), i.features.value.tolist(), strict=True))
    assert hashed == {hash_one(name): value for name, value in expected.items()}
    assert (i.names.impression_id[0], i.names.user_id[0], i.names.request_id[0]) == ("i", "u", "r")


@pytest.mark.parametrize(
    ("change", "reason", "field"),
    [
        ({"impression_id": None}, "missing_field", "impression_id"),
        ({"impression_id": ""}, "missing_field", "impression_id"),
        ({"impression_id": 5}, "wrong_type", "impression_id"),
        ({"user_id": None}, "missing_field", "user_id"),
        ({"ts": None}, "missing_field", "ts"),
        ({"ts": -1}, "out_of_range", "ts"),
        ({"ts": 1.5}, "wrong_type", "ts"),
        ({"ts": "noon"}, "wrong_type", "ts"),
        ({"ts": 10**30}, "out_of_range", "ts"),
        ({"ts": NOW + 3_600_001}, "future_timestamp", "ts"),
        ({"ts": 946_684_799_999}, "out_of_range", "ts"),
        ({"ts": 1_700_000_000}, "out_of_range", "ts"),
        ({"ts": "1999-12-31T23:59:59Z"}, "out_of_range", "ts"),
        ({"ts": 1_700_000_000_000_000}, "out_of_range", "ts"),
        ({"ts": 1_700_000_000_000_000_000}, "out_of_range", "ts"),
        ({"pclick": None, "clicked": 0}, "missing_field", "pclick"),
        ({"predictions": {"": 0.5}}, "missing_field", "predictions"),
        ({"pclick": 1.01}, "out_of_range", "pclick"),
        ({"pclick": -0.1}, "out_of_range", "pclick"),
        ({"pclick": "0.5"}, "wrong_type", "pclick"),
        ({"pclick": True}, "wrong_type", "pclick"),
        ({"predictions": {"v2": 2}}, "out_of_range", "predictions"),
        ({"predictions": [1]}, "wrong_type", "predictions"),
        ({"position": -1}, "out_of_range", "position"),
        ({"propensity": 0}, "out_of_range", "propensity"),
        ({"bid": -0.01}, "out_of_range", "bid"),
        ({"bid": float("inf")}, "malformed", ""),
        ({"bid": "1"}, "wrong_type", "bid"),
        ({"policies": {"v2": 1.5}}, "out_of_range", "policies"),
        ({"policies": {"": 0.5}}, "missing_field", "policies"),
        ({"policies": 0.5}, "wrong_type", "policies"),
        ({"query_id": 7}, "wrong_type", "query_id"),
        ({"shown": "no"}, "wrong_type", "shown"),
        ({"shown": 2}, "out_of_range", "shown"),
        ({"shown": False, "clicked": 1}, "out_of_range", "clicked"),
        ({"shown": False, "pclick": None}, "missing_field", "pclick"),
        ({"clicked": 2}, "out_of_range", "clicked"),
        ({"slices": {"country": ["de"]}}, "wrong_type", "slices"),
        ({"features": {"a": {"b": 1}}}, "wrong_type", "features"),
        ({"type": "view"}, "wrong_type", "type"),
    ],
)
def test_a_bad_field_is_named_with_its_reason(change: dict, reason: str, field: str) -> None:
    event = {**GOOD, **change}
    batch, letter = one(event, hashed=True)
    assert len(batch) == 0
    assert letter is not None
    assert (letter.reason, letter.field) == (reason, field)
    assert letter.value == json.dumps(event).encode()
    assert (letter.partition, letter.offset) == (3, 100)
    assert batch.invalid == {reason: 1}
    assert reason in REASONS


@pytest.mark.parametrize(
    ("message", "words"),
    [
        (b'{"pclick": 2}', "pclick = 2: must be in [0, 1]"),
        (b'{"pclick": "0.5"}', 'pclick = "0.5": must be a number'),
        (b'{"pclick": 1e999}', "pclick: must be in [0, 1]"),  # no float can hold it
        (b'{"pclick": "\xff"}', "pclick: must be a number"),  # no text to show
        (b'{"position": 1.5}', "position = 1.5: must be an integer"),
        (b'{"ts": 1.5}', "ts = 1.5: must be ms since the epoch or an ISO 8601 time"),
        (b'{"shown": "no"}', 'shown = "no": must be true, false, 0 or 1'),
        (b'{"predictions": {"v1": 0.5, "v2": 2}}', 'predictions["v2"] = 2: must be in [0, 1]'),
        (b'{"predictions": {"v2": true}}', 'predictions["v2"] = true: must be a number'),
        (b'{"predictions": {"%s": 2}}' % (b"v" * 999), f'predictions["{"v" * 49}...] = 2: must be in [0, 1]'),
        (b'{"predictions": [1]}', "predictions = [1]: must be a JSON object of numbers"),
        (b'{"slices": "%s"}' % (b"x" * 99), f'slices = "{"x" * 49}...: must be a JSON object'),
        (b'[{"weight": 0}]', "element 0 of the array: weight = 0: must be in (0, 1000]"),
        (b"3", "3: an event must be a JSON object"),
    ],
)
def test_a_bad_field_is_reported_with_its_value_and_what_is_allowed(message: bytes, words: str) -> None:
    assert json_format.decode([message], False, 10_000).problems[0][2] == words


@pytest.mark.parametrize(
    ("event", "impressions", "clicks"),
    [
        (GOOD, 1, 0),
        ({"impression_id": "i", "ts": 1_700_000_000_005}, 0, 1),
        ({"type": "click", "impression_id": "i", "ts": 1_700_000_000_005, "value": 2.5}, 0, 1),
        ({**GOOD, "pclick": None, "predictions": {"v2": 0.1}}, 1, 0),
        ({**GOOD, "ts": "2024-05-01T12:00:00.250+02:00"}, 1, 0),
        ({**GOOD, "unknown": {"deep": [1]}}, 1, 0),
    ],
)
def test_kinds_and_spellings(event: dict, impressions: int, clicks: int) -> None:
    batch, letter = one(event)
    assert letter is None
    assert (len(batch.impressions), len(batch.clicks)) == (impressions, clicks)


def test_iso_times_are_ms_in_utc() -> None:
    batch, _ = one({**GOOD, "ts": "2024-05-01T12:00:00.250+02:00"})
    assert batch.impressions.ts[0] == 1_714_557_600_250


@pytest.mark.parametrize(
    ("end", "next_day"),
    [
        ("2024-05-01T24:00:00Z", "2024-05-02T00:00:00Z"),
        ("2024-12-31T24:00Z", "2025-01-01T00:00:00Z"),
        ("20240501T240000Z", "2024-05-02T00:00:00Z"),
        ("2024-02-28T24:00:00.000+02:00", "2024-02-29T00:00:00+02:00"),
    ],
)
def test_the_end_of_a_day_is_the_beginning_of_the_next(end: str, next_day: str) -> None:
    times = [one({**GOOD, "ts": text})[0].impressions.ts.tolist() for text in (end, next_day)]
    assert times[0] == times[1] != []


@pytest.mark.parametrize("text", ["2024-05-01T24:00:01Z", "2024-05-01T24:01Z", "9999-12-31T24:00:00Z", "24:00:00Z"])
def test_no_other_time_has_an_hour_24(text: str) -> None:
    assert one({**GOOD, "ts": text})[1].reason == "wrong_type"


@pytest.mark.parametrize(
    ("ts", "unit"), [(1_700_000_000, "seconds"), (1_700_000_000_000_000, "microseconds"), (17 * 10**17, "nanoseconds")]
)
@pytest.mark.parametrize("kind", ["json", "arrow", "table", "text"])
def test_times_in_another_unit_are_refused_alike_in_every_format(kind: str, ts: int, unit: str) -> None:
    table = pa.table({"impression_id": ["i", "j"], "ts": [ts, 1_700_000_000_000]})  # of clicks
    decoder = make_decoder()
    where = {"topic": ("t",), "partition": 0}
    if kind == "json":
        values = [json.dumps(row).encode() for row in table.to_pylist()]
        batch, letters = decoder.messages(values, [2, 2], offsets=[0, 1], format="json", shared=False, **where)
    elif kind == "arrow":
        batch, letters = decoder.messages([arrow_bytes(table)], [2], offsets=[0], format="arrow", shared=False, **where)
    else:
        table = (
            table if kind == "table" else table.cast(pa.schema([("impression_id", pa.string()), ("ts", pa.string())]))
        )
        batch, letters = decoder.table(table, topic="t", partition=0, first_offset=0, text=kind == "text")
    assert len(batch.clicks) == 1
    assert [(letter.reason, letter.field) for letter in letters] == [("out_of_range", "ts")]
    assert letters[0].message == (
        f"ts = {ts}: must be ms since the epoch, from 2000-01-01 on; {unit} instead of milliseconds?"
    )


@pytest.mark.parametrize("kernel", [True, False])
@pytest.mark.parametrize("ts", [-(1 << 63), (1 << 63) - 1, 1 << 63, "yesterday", "0", "1700000000000"])
def test_which_of_two_faults_is_told_does_not_depend_on_the_neighbours(ts: object, kernel: bool) -> None:
    bad = json.dumps({**GOOD, "ts": ts, "features": {"a": {}}}).encode()
    assert one({**GOOD, "ts": ts}, json_kernel=kernel)[1] is not None, "no time, whoever stands beside it"
    told = set()
    for values in ([bad], [b"{", bad], [b'{"ts": "2026-03-01T00:00:00Z"}', bad]):
        _, letters = decode(values, hashed=True, json_kernel=kernel)
        told.add((letters[-1].reason, letters[-1].field, letters[-1].message))
    assert len(told) == 1


def test_a_bad_element_of_an_array_goes_alone() -> None:
    good = json.dumps(GOOD).encode()
    batch, letters = decode([b"[" + good + b', {"impression_id": 3, "ts": 5}, ' + good + b"]"])
    assert len(batch.impressions) == 2
    assert [letter.value for letter in letters] == [b'{"impression_id": 3, "ts": 5}']


def arrow_bytes(table: pa.Table) -> bytes:
    sink = io.BytesIO()
    with pyarrow.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue()


@pytest.mark.usefixtures("all_carried")
def test_arrow_messages_give_the_same_columns_as_json() -> None:
    rng = np.random.default_rng(0)
    events = [
        {
            "impression_id": f"i{i}", "ts": 1_700_000_000_000 + i, "user_id": f"u{i % 7}", "pclick": float(rng.random()),
            "model_version": f"v{i % 2}", "position": i % 5, "slices": {"country": "de" if i % 2 else "fr"},
            "features": {"age": float(i), "city": f"c{i % 3}"}, "predictions": {"s": 0.5},
        }
        for i in range(100)
    ]  # fmt: skip
    from_json, bad = decode([json.dumps(e).encode() for e in events], hashed=True)
    table = pa.Table.from_pylist(events)
    from_arrow, worse = decode(
        [arrow_bytes(table.slice(0, 60)), arrow_bytes(table.slice(60))], format="arrow", hashed=True
    )
    assert not bad
    assert not worse
    for name in ("order", "id", "ts", "user", "series", "pclick", "slices", "label"):
        assert np.array_equal(getattr(from_json.impressions, name), getattr(from_arrow.impressions, name)), name
    for name in ("position", "propensity"):
        columns = (batch.impressions.fields[name] for batch in (from_json, from_arrow))
        assert np.array_equal(*columns, equal_nan=True), name
    for part in ("features", "shadow"):
        one_part, other = getattr(from_json.impressions, part), getattr(from_arrow.impressions, part)
        assert np.array_equal(one_part.indptr, other.indptr)
    assert set(from_json.impressions.features.index) == set(from_arrow.impressions.features.index)


def of_views(table: pa.Table) -> pa.Table:
    """As Polars would send it."""
    kinds = [pa.string_view() if pa.types.is_string(kind) else kind for kind in table.schema.types]
    return table.cast(pa.schema(list(zip(table.column_names, kinds, strict=True))))


def test_views_of_text_are_text() -> None:
    names = [f"a name that does not fit into its view, number {i}" for i in range(50)]
    table = pa.table(
        {"impression_id": names, "ts": [GOOD["ts"]] * 50, "user_id": ["u", None] * 25, "pclick": [0.5] * 50}
    )
    batch, letters = decode([arrow_bytes(of_views(table)), arrow_bytes(table)], format="arrow")
    assert [letter.reason for letter in letters] == ["missing_field"] * 50
    half = len(batch.impressions) // 2
    assert (
        batch.impressions.id[:half].tolist() == batch.impressions.id[half:].tolist() == list(map(hash_one, names[::2]))
    )


def test_views_that_show_one_text_over_and_over_are_not_written_out() -> None:
    """A hundred thousand times ten kilobytes are a gigabyte; the message has two megabytes."""
    n = 100_000
    _, view, text = pa.array(["x" * 10_000], pa.string_view()).buffers()
    users = pa.Array.from_buffers(pa.string_view(), n, [None, pa.py_buffer(view.to_pybytes()[:16] * n), text])
    table = pa.table({"impression_id": pa.array(range(n)).cast(pa.string()), "user_id": users, "ts": [GOOD["ts"]] * n})
    message = arrow_bytes(table)
    _, letters = decode([message], format="arrow", max_message=len(message))
    assert [letter.reason for letter in letters] == ["too_large"]
    assert letters[0].message.startswith("1000000000 bytes")


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "empty"),
        (b"not arrow", "malformed"),
        (arrow_bytes(pa.table({"x": [1]})), "wrong_schema"),
        (
            arrow_bytes(pa.table({"impression_id": ["a"], "ts": [1], "user_id": ["u"], "pclick": ["0.5"]})),
            "wrong_schema",
        ),
        (arrow_bytes(pa.table({"impression_id": ["a"], "ts": [1], "user_id": ["u"], "pclick": [2.0]})), "out_of_range"),
        (
            arrow_bytes(pa.table({"impression_id": ["a"], "ts": [1], "user_id": ["u"], "pclick": [0.5]}))[:-40],
            "malformed",
        ),
    ],
)
def test_bad_arrow_messages_are_dead_letters(data: bytes, reason: str) -> None:
    batch, letters = decode([data, arrow_bytes(pa.Table.from_pylist([GOOD]))], format="arrow")
    assert [letter.reason for letter in letters] == [reason]
    assert len(batch.impressions) == 1


@pytest.mark.slow
def test_two_hundred_thousand_mangled_messages_lose_no_good_one_and_no_bad_one() -> None:
    rng = random.Random(7)
    text = json.dumps({**GOOD, "features": {"a": "b"}, "slices": {"country": "de"}})
    manglers = [
        lambda: text[: rng.randrange(1, len(text))].encode(),
        lambda: text.replace("0.25", rng.choice(["NaN", '"x"', "2", "[]", "true"])).encode(),
        lambda: text.replace(
            "1700000000000", rng.choice(["-7", "1e400", '"tomorrow"', "99999999999999", "{}"])
        ).encode(),
        lambda: b"\xff" + text.encode(),
        lambda: b"",
        lambda: None,
        lambda: text.replace('"u"', rng.choice(["3", "[]", "{}", '""', "null"])).encode(),
        lambda: text.encode().replace(b'"i"', b'"\\ud800"'),
        lambda: rng.choice([b"[" * 500, b'{"a":' * 500, b"null", b"17", b'"text"', b"[[]]", b"[1]"]),
        lambda: rng.randbytes(rng.randrange(1, 40)),
    ]
    decoder = make_decoder(hashed=True)
    good = bad = shown = lettered = 0
    for round_number in range(21):
        if round_number == 9:  # a round before its first reading, so that what a round leaves is in both
            tracemalloc.start()
        values: list[bytes | None] = []
        sent_good = 0
        for _ in range(10_000):
            if rng.random() < 0.05:
                values.append(text.replace('"i"', f'"i{good + sent_good}"').encode())
                sent_good += 1
            else:
                values.append(rng.choice(manglers)())
        if round_number == 5:
            values.append(b'{"impression_id": "' + b"x" * 20_000_000 + b'"}')
        batch, letters = decoder.messages(
            values, [0] * len(values), topic=("t",), partition=0, offsets=range(len(values)), format="json", shared=True
        )
        assert len({letter.offset for letter in letters}) == len(letters)
        assert all(
            letter.reason in REASONS and letter.value == (values[letter.offset] or b"")
            for letter in letters
            if values[letter.offset] is None or values[letter.offset][:1] != b"["
        )
        good, bad = good + sent_good, bad + len(values) - sent_good
        shown, lettered = shown + len(batch.impressions) + len(batch.clicks), lettered + len(letters)
        if round_number == 10:
            middle = tracemalloc.get_traced_memory()[0]
    grown = tracemalloc.get_traced_memory()[0] - middle
    tracemalloc.stop()
    assert bad > 199_000
    assert (shown, lettered) == (good, bad)
    assert grown < 20_000_000, "nothing may pile up"


@pytest.mark.parametrize("kind", ["json", "array", "arrow", "table"])
def test_an_event_of_a_batch_is_available_complete_with_its_origin(kind: str) -> None:
    events = [{**GOOD, "impression_id": f"i{i}", "ts": GOOD["ts"] + i} for i in range(4)]
    events[1]["pclick"] = 7.0  # a dead letter: places are those of arrival, with it
    decoder, where = make_decoder(), {"topic": ("t",), "partition": 0, "shared": True}
    if kind == "json":
        values, offsets = [json.dumps(event).encode() for event in events], [10, 11, 12, 13]
        batch, _ = decoder.messages(values, [0] * 4, offsets=offsets, format="json", **where)
    elif kind == "array":
        values, offsets = [json.dumps(events[:2]).encode(), json.dumps(events[2:]).encode()], [10, 10, 11, 11]
        batch, _ = decoder.messages(values, [0] * 2, offsets=[10, 11], format="json", **where)
    elif kind == "arrow":
        values, offsets = (
            [arrow_bytes(pa.Table.from_pylist(part)) for part in (events[:2], events[2:])],
            [10, 10, 11, 11],
        )
        batch, _ = decoder.messages(values, [0] * 2, offsets=[10, 11], format="arrow", **where)
    else:
        offsets = [10, 11, 12, 13]
        batch, _ = decoder.table(pa.Table.from_pylist(events), topic="t", partition=0, first_offset=10)
    assert batch.impressions.order.tolist() == [0, 2, 3]
    for place in batch.impressions.order.tolist():
        value, topic, offset = batch.whole(place)
        assert json.loads(value) == events[place]
        assert (topic, offset) == ("t", offsets[place])


def test_the_kernel_may_be_turned_on_between_two_batches(monkeypatch) -> None:
    decoder, scanned = make_decoder(json_kernel=False), []
    monkeypatch.setattr(read_json, "scan", lambda *given: scanned.append(1) or scan(*given))
    found = []
    for decoder.json_kernel in (False, True, False):
        values = [json.dumps({**GOOD, "slices": {"country": "de"}}).encode()]
        batch, letters = decoder.messages(
            values, [1], topic=("t",), partition=0, offsets=[0], format="json", shared=True
        )
        found.append((batch.impressions.id.tolist(), batch.impressions.slices.tolist(), letters, len(scanned)))
    assert found == [(*found[0][:3], many) for many in (0, 1, 1)]
