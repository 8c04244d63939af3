"""What must hold of a decoder, whatever it is fed.

Nothing is raised but what has a name; nothing is lost and nothing is made up (events + dead letters = what came in);
what is let through is as the contract says; and nobody's fate depends on who stands beside him: messages decoded
together give what each gives alone.
"""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from pathlib import Path
from typing import Any, Literal

import msgspec
import numpy as np
import pyarrow.ipc

from streameval.events.batch import Batch, Catalog, Impressions, Series, Shadow
from streameval.events.fields import FIELDS
from streameval.events.hashing import hash_one
from streameval.settings.tree import ConfigError, Files, Kafka
from streameval.sources.files import FileSource
from streameval.sources.formats.decode import Decoder
from streameval.sources.formats.line_text import Lines
from streameval.sources.kafka.formats import open_format
from streameval.sources.protocol import REASONS, DeadLetter, SourceError
from streameval.testing import carrying_all
from tests.fuzz.strategies import NOW

MAX_MESSAGE = 20_000
MAX_FUTURE = 3_600_000


@dataclass(frozen=True, slots=True)
class Form:
    """How a decoder is set up: which form of the features it wants, and whether it keeps the ids as text."""

    hashed: bool = True
    dicts: bool = False
    names: bool = False
    json_kernel: bool = True

    def decoder(self) -> Decoder:
        return Decoder(
            Catalog(("country",), max_values=5, max_series=8), clock=lambda: NOW, max_future=MAX_FUTURE,
            hashed=self.hashed, dicts=self.dicts, names=self.names, max_message=MAX_MESSAGE,
            json_kernel=self.json_kernel,
        )  # fmt: skip


FORMS = (Form(), Form(hashed=False), Form(dicts=True), Form(names=True))


def decode(
    form: Form, values: Sequence[bytes | None], kinds: Sequence[int], format: Literal["json", "arrow"]
) -> tuple[Decoder, Batch, list[DeadLetter]]:
    decoder = form.decoder()
    shared = 0 in kinds
    with carrying_all():
        batch, letters = decoder.messages(
            values, kinds, topic=("i",) if shared else ("i", "c"), partition=3, offsets=range(len(values)),
            format=format, shared=shared,
        )  # fmt: skip
    check_letters(batch, letters)
    check_columns(decoder, batch, form)
    return decoder, batch, letters


def check_letters(batch: Batch, letters: Sequence[DeadLetter]) -> None:
    assert dict(batch.invalid) == Counter(letter.reason for letter in letters)
    for letter in letters:
        assert letter.reason in REASONS
        assert letter.message, "every letter says what would be right"
        assert isinstance(letter.value, bytes)


def check_columns(decoder: Decoder, batch: Batch, form: Form) -> None:
    """What went through is as the contract says."""
    assert (batch.candidates.label == -1).all()
    assert batch.candidates.features is batch.candidates.names is None
    _check_clicks(batch)
    for some in (batch.impressions, batch.candidates):
        _check_impressions(some, decoder._catalog, form, shown=some is batch.impressions)


def _check_clicks(batch: Batch) -> None:
    i, c = batch.impressions, batch.clicks
    assert {*i.fields, *c.fields} >= {"position", "propensity", "value"} or not (len(i) and len(c))
    assert ((c.ts >= 0) & (c.ts <= NOW + MAX_FUTURE)).all()
    assert c.id.all()
    _check_numbers(c.fields)


def _check_numbers(columns: Mapping[str, np.ndarray]) -> None:
    for name, column in columns.items():
        field, given = FIELDS[name], column[~np.isnan(column)]
        assert np.isfinite(given).all()
        assert ((given > field.low) if field.above else (given >= field.low)).all()
        assert (given <= field.high).all()
        assert field.type == "number" or (given == np.floor(given)).all()


def _check_impressions(i: Impressions, catalog: Catalog, form: Form, shown: bool) -> None:
    assert ((i.ts >= 0) & (i.ts <= NOW + MAX_FUTURE)).all()
    assert (np.isnan(i.pclick) | ((i.pclick >= 0) & (i.pclick <= 1))).all()
    assert np.isin(i.label, (-1, 0, 1)).all()
    _check_numbers(i.fields)
    assert i.id.all()
    assert i.user.all()
    assert ((i.series >= 0) & (i.series < len(catalog.series))).all()
    assert len(catalog.series) <= 2 * catalog.max_series + 2
    assert all(len(values) <= catalog.most_values + 2 for values in catalog.values)
    scored = ~np.isnan(i.pclick)
    if i.shadow is not None:
        _check_rows(i.shadow.indptr, len(i), i.shadow.pclick.size)
        assert ((i.shadow.pclick >= 0) & (i.shadow.pclick <= 1)).all()
        scored |= np.diff(i.shadow.indptr) > 0
    if i.policies is not None:
        _check_rows(i.policies.indptr, len(i), i.policies.pclick.size)
        assert ((i.policies.pclick >= 0) & (i.policies.pclick <= 1)).all()
    if not shown:
        return
    if form.hashed or form.dicts:
        assert i.features is not None or not len(i)
    else:
        assert scored.all()
    if i.features is not None:
        _check_rows(i.features.indptr, len(i), i.features.index.size)
        assert np.isfinite(i.features.value).all()
        assert (i.features.dicts is not None) == form.dicts
    assert (i.names is not None) == form.names or not len(i)


def _check_rows(indptr: Any, rows: int, entries: int) -> None:
    assert indptr.size == rows + 1
    assert indptr[0] == 0
    assert indptr[-1] == entries
    assert (np.diff(indptr) >= 0).all()


def events_of(decoder: Decoder, batch: Batch) -> list[tuple[Any, ...]]:
    """The events of a batch in order of arrival, codes written out, as plain values that can be compared."""
    c, catalog = batch.clicks, decoder._catalog
    out = [(int(c.order[k]), "click", int(c.id[k]), int(c.ts[k]), _numbers(c.fields, k)) for k in range(len(c))]
    for i, k in ((some, k) for some in (batch.impressions, batch.candidates) for k in range(len(some))):
        features, names = (), ()
        shadow, policies = (_by_series(of, k, catalog) for of in (i.shadow, i.policies))
        if i.features is not None:
            on = slice(int(i.features.indptr[k]), int(i.features.indptr[k + 1]))
            features = (i.features.index[on].tolist(), i.features.value[on].tolist())
            features = (*features, None if i.features.dicts is None else i.features.dicts[k])
        if i.names is not None:
            names = (i.names.impression_id[k], i.names.user_id[k], i.names.request_id[k])
        value = catalog.values[0][int(catalog.split(i.slices[k : k + 1], 0)[0])]
        out.append(
            (
                int(i.order[k]), "impression" if i is batch.impressions else "candidate", int(i.id[k]), int(i.ts[k]), int(i.user[k]), int(i.request[k]),
                int(i.item[k]), catalog.series[i.series[k]], _plain(i.pclick[k]), value, int(i.label[k]),
                _numbers(i.fields, k), shadow, features, names, policies, 0 if i.query is None else int(i.query[k]),
            )
        )  # fmt: skip
    orders = [event[0] for event in out]
    assert len(set(orders)) == len(orders), "no two events stand at the same place"
    return [event[1:] for event in sorted(out, key=lambda event: event[0])]


def _by_series(of: Shadow | None, row: int, catalog: Catalog) -> tuple[tuple[Series, float | None], ...]:
    if of is None:
        return ()
    on = slice(int(of.indptr[row]), int(of.indptr[row + 1]))
    return tuple((catalog.series[s], _plain(p)) for s, p in zip(of.series[on], of.pclick[on], strict=True))


def _numbers(fields: Mapping[str, np.ndarray], k: int) -> dict[str, float | None]:
    return {name: _plain(column[k]) for name, column in fields.items()}


def _plain(value: Any) -> float | None:
    return None if np.isnan(value) else float(value)


def _letters_of(letters: Sequence[DeadLetter]) -> list[tuple[Any, ...]]:
    return [(letter.value, letter.reason, letter.field, letter.topic) for letter in letters]


def check_messages(
    form: Form, values: Sequence[bytes | None], kinds: Sequence[int], format: Literal["json", "arrow"]
) -> None:
    """Messages together and each alone."""
    decoder, batch, letters = decode(form, values, kinds, format)
    together = events_of(decoder, batch)
    alone: list[tuple[Any, ...]] = []
    alone_letters: list[tuple[Any, ...]] = []
    for value, kind in zip(values, kinds, strict=True):
        one, single, refused = decode(form, [value], [kind], format)
        alone += events_of(one, single)
        if format == "json":
            _check_whole(value, len(single) + len(single.candidates), refused)
        else:
            _check_rows_whole(value, len(single) + len(single.candidates), refused)
        topic = "c" if kind == 2 else "i"
        assert all(letter.topic == topic for letter in refused)
        alone_letters += _letters_of(refused)
    if len({v for e in together for v in _coded(e)}) < 5:  # else the catalog's limits decide, by order of appearance
        assert together == alone
    assert len(together) == len(alone)
    assert _letters_of(letters) == alone_letters


def check_json_kernel(form: Form, values: Sequence[bytes | None], kinds: Sequence[int]) -> None:
    """With the kernel and without it: the same columns to the bit, the same names in the same order, the same letters word for word."""
    decoder, batch, letters = decode(form, values, kinds, "json")
    slowly, expected, refused = decode(replace(form, json_kernel=False), values, kinds, "json")
    assert letters == refused
    assert decoder._catalog.names() == slowly._catalog.names()
    _check_same(batch, expected)
    assert [batch.whole(k) for k in range(len(batch))] == [expected.whole(k) for k in range(len(expected))]


def check_live_kernel(
    form: Form, values: Sequence[bytes | None], kinds: Sequence[int], columns: dict[str, Any]
) -> None:
    """The same of messages under a mapping; as objects of their own and as one text."""
    settings = Kafka(columns=columns)
    given: list[Sequence[bytes | None]] = [values]
    if (packed := Lines.packed(values)) is not None:
        given.append(Lines.joined([packed]))
    for some in given:
        seen: list[Any] = []
        for kernel in (True, False):
            decoder = replace(form, json_kernel=kernel).decoder()
            open_format(settings, decoder)
            with carrying_all():
                batch, letters = decoder.messages(
                    some, kinds, topic=("i", "c"), partition=3, offsets=range(len(values)), format="own", shared=False
                )  # fmt: skip
            check_letters(batch, letters)
            seen.append((decoder, batch, letters))
        (decoder, batch, letters), (slowly, expected, refused) = seen
        assert letters == refused
        assert decoder._catalog.names() == slowly._catalog.names()
        _check_same(batch, expected)


def check_file_kernel(
    form: Form, data: bytes, suffix: str, columns: dict[str, Any] | None, max_events: int = 3
) -> None:
    """The same of a file through the source. How rows are written for dead letters does not depend on the form: one form shows it."""
    with carrying_all(), tempfile.NamedTemporaryFile(suffix=suffix) as file:
        Path(file.name).write_bytes(data)
        decoder, batches, letters, error = given_by(form, file.name, columns, max_events)
        slowly, *expected = given_by(replace(form, json_kernel=False), file.name, columns, max_events)
        assert [letters, error] == expected[1:]
        assert decoder._catalog.names() == slowly._catalog.names()
        for batch, one in zip(batches, expected[0], strict=True):
            _check_same(batch, one, whole=form.hashed and not form.names)


def given_by(
    form: Form, path: str, columns: dict[str, Any] | None, max_events: int
) -> tuple[Decoder, list[Batch], list[DeadLetter], str]:
    """(the decoder, batches, letters, the error in the end) of a file."""
    sink, batches, error, decoder = Kept(), list[Batch](), "", form.decoder()
    try:
        source = FileSource([path], decoder, Files(columns=columns or {}), max_events, sink)
        try:
            while not source.finished:
                batches += source.poll(0.0)
        finally:
            source.close()
    except (SourceError, ConfigError) as failure:
        error = str(failure)
    return decoder, batches, sink.letters, error


def _check_same(batch: Batch, expected: Batch, whole: bool = True) -> None:
    kinds = ("impressions", "candidates", "clicks")
    for kind in kinds:
        assert _bits(getattr(batch, kind)) == _bits(getattr(expected, kind))
    assert batch.invalid == expected.invalid
    places = [int(k) for kind in kinds for k in getattr(batch, kind).order] if whole else []
    assert [batch.whole(k) for k in places] == [expected.whole(k) for k in places]


def _bits(value: Any) -> Any:
    """Something of columns as plain values, numbers as their bits."""
    if isinstance(value, np.ndarray) and value.dtype != object:
        return (value.dtype.str, value.shape, value.tobytes())
    if isinstance(value, np.ndarray | list | tuple):
        return [_bits(one) for one in value]
    if isinstance(value, Mapping):
        return {name: _bits(one) for name, one in value.items()}
    if is_dataclass(value) and not isinstance(value, type):
        return {one.name: _bits(getattr(value, one.name)) for one in fields(value)}
    return repr(value)


def _coded(event: tuple[Any, ...]) -> list[Any]:
    return [] if event[0] == "click" else [event[6], event[8], *(series for series, _ in (*event[11], *event[14]))]


def _check_whole(value: bytes | None, events: int, letters: Sequence[DeadLetter]) -> None:
    """A message is one event or one letter; an array is one per element."""
    if not (value or b"").lstrip(b" \t\r\n").startswith(b"["):
        assert events + len(letters) == 1
        assert all(letter.value == (value or b"") for letter in letters)
        return
    assert value is not None
    try:
        elements = [bytes(element) for element in msgspec.json.decode(value, type=list[msgspec.Raw])]
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        elements = None
    if elements is None or len(value) > MAX_MESSAGE:
        assert events == 0
        assert [letter.value for letter in letters] == [value]
    else:
        assert events + len(letters) == len(elements)
        assert not Counter(letter.value for letter in letters) - Counter(elements)


def _check_rows_whole(value: bytes | None, events: int, letters: Sequence[DeadLetter]) -> None:
    """An Arrow message is one letter, or as many events and letters as it has rows."""
    if events == 0 and [letter.value for letter in letters] == [value or b""]:
        return
    assert value
    with pyarrow.ipc.open_stream(value) as reader:
        assert events + len(letters) == reader.read_all().num_rows


class Kept:
    """A dead-letter sink that keeps them here."""

    def __init__(self) -> None:
        self.letters: list[DeadLetter] = []

    def write(self, letters: Sequence[DeadLetter]) -> None:
        self.letters += letters

    def flush(self, timeout: float) -> None: ...

    def close(self) -> None: ...


@dataclass(slots=True)
class Read:
    """What a file gave: the ids of its events, the dead letters, and why it could not be read to its end, if so."""

    ids: list[int]
    letters: list[DeadLetter]
    error: str

    @property
    def count(self) -> int:
        return len(self.ids) + len(self.letters)


def read_file(form: Form, data: bytes, suffix: str, columns: dict[str, Any] | None, max_events: int = 3) -> Read:
    """A file through the source, with every law of its batches checked."""
    sink, ids, error, counted = Kept(), [], "", Counter[str]()
    with carrying_all(), tempfile.NamedTemporaryFile(suffix=suffix) as file:
        Path(file.name).write_bytes(data)
        try:
            decoder = form.decoder()
            source = FileSource([file.name], decoder, Files(columns=columns or {}), max_events, sink)
            try:
                while not source.finished:
                    for batch in source.poll(0.0):
                        check_columns(decoder, batch, form)
                        counted.update(batch.invalid)
                        for events in (batch.impressions, batch.candidates, batch.clicks):
                            ids += events.id.tolist()
            finally:
                source.close()
        except (SourceError, ConfigError) as failure:
            error = str(failure)
    assert all(letter.reason in REASONS for letter in sink.letters)
    if not error:
        assert counted == Counter(letter.reason for letter in sink.letters)
    return Read(ids, sink.letters, error)


def check_good_lines_survive(good: Sequence[str], read: Read) -> None:
    """Every good line is there, however bad its neighbours are."""
    missing = Counter(hash_one(name) for name in good) - Counter(read.ids)
    assert not missing
