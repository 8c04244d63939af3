"""Arrow tables without views of text, as Polars writes them: Arrow lacks many functions for these."""

from __future__ import annotations

import numpy as np
import pyarrow as pa


def without_views(table: pa.Table) -> pa.Table:
    """The same table, texts in one buffer instead of views of several, nested ones too."""
    for i, column in enumerate(table.schema):
        plain = _plain(column.type)
        if plain != column.type:
            table = table.set_column(i, column.name, table.column(i).cast(plain))
    return table


def viewed_bytes(table: pa.Table) -> int:
    """How much text the table's views show: any number of them may show the same bytes."""
    return sum(_viewed(chunk) for column in table.columns for chunk in column.chunks)


def _plain(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_string_view(kind):
        return pa.large_string()
    if pa.types.is_binary_view(kind):
        return pa.large_binary()
    if pa.types.is_dictionary(kind):
        return pa.dictionary(kind.index_type, _plain(kind.value_type), kind.ordered)
    if pa.types.is_list(kind):
        return pa.list_(_field(kind.value_field))
    if pa.types.is_large_list(kind):
        return pa.large_list(_field(kind.value_field))
    if pa.types.is_struct(kind):
        return pa.struct([_field(part) for part in kind])
    if pa.types.is_map(kind):
        return pa.map_(_field(kind.key_field), _field(kind.item_field), kind.keys_sorted)
    return kind


def _field(part: pa.Field) -> pa.Field:
    return part.with_type(_plain(part.type))


def _viewed(column: pa.Array) -> int:
    kind = column.type
    if pa.types.is_string_view(kind) or pa.types.is_binary_view(kind):
        views = column.buffers()[1]  # 16 bytes a value, which begin with its length
        lengths = np.frombuffer(views, np.int32)[4 * column.offset : 4 * (column.offset + len(column)) : 4]
        there = column.is_valid().to_numpy(zero_copy_only=False)
        return int(lengths[there].sum(dtype=np.int64))
    if pa.types.is_dictionary(kind):
        return _viewed(column.dictionary)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return _viewed(column.values)
    if pa.types.is_map(kind):
        return _viewed(column.keys) + _viewed(column.items)
    return sum(_viewed(column.field(i)) for i in range(kind.num_fields)) if pa.types.is_struct(kind) else 0
