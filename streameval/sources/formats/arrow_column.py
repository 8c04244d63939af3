"""One column of a table: in one piece, what its type holds, and what is said of a type that cannot be ours."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from streameval.sources.formats.raw import Rejection

_MOST_TEXT = 1 << 28  # bytes; a dictionary of one long text with a byte per row could expand to any size


class SchemaError(ValueError):
    """A stream or file whose columns cannot contain events."""

    def __init__(self, problem: Rejection) -> None:
        super().__init__(problem[2])
        self.problem = problem


def flat(name: str, column: pa.ChunkedArray) -> pa.Array:
    """Returns the column in one piece; null values of a dictionary become nulls of the column."""
    whole = column.combine_chunks()
    whole = whole if isinstance(whole, pa.Array) else pa.concat_arrays(whole.chunks)
    if pa.types.is_dictionary(whole.type):
        if whole.dictionary.null_count:
            indices = pc.if_else(
                whole.dictionary.is_valid().take(whole.indices), whole.indices, pa.scalar(None, whole.indices.type)
            )
            whole = pa.DictionaryArray.from_arrays(indices, whole.dictionary)
        if is_text(whole.type.value_type):
            size = pc.sum(pc.binary_length(whole.dictionary).take(whole.indices)).as_py() or 0
            if size > _MOST_TEXT:
                what = f"column {name[:50]}: {size} bytes of text when written out; at most {_MOST_TEXT}"
                raise SchemaError(("too_large", name[:50], what))
    return whole


def is_text(kind: pa.DataType) -> bool:
    """Whether its values are strings."""
    return pa.types.is_string(kind) or pa.types.is_large_string(kind)


def blank_to_null(column: pa.Array) -> pa.Array:
    """Text, of which what is nothing but white space is absent."""
    column = column.cast(pa.string())
    return pc.if_else(pc.equal(pc.utf8_trim_whitespace(column), ""), pa.scalar(None, pa.string()), column)


def must_be(field: str, column: pa.Array, what: str) -> SchemaError:
    """The error of a column whose type cannot be that of its field."""
    return SchemaError(("wrong_schema", field, f"column {field} is {str(column.type)[:100]}: must be {what}"))


def is_plain(kind: pa.DataType) -> bool:
    """Whether its values are numbers or booleans."""
    return pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind)
