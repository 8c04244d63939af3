"""Arrow IPC messages as tables, with bounded memory."""

from __future__ import annotations

import io

import pyarrow as pa
import pyarrow.ipc

from streameval.events.views import viewed_bytes, without_views
from streameval.sources.formats.arrow_column import SchemaError
from streameval.sources.formats.ipc_size import unpacked_size
from streameval.sources.formats.raw import most_events, too_large

EXPANSION = 16  # size of an unpacked message, in multiples of kafka.max_message; well-compressed events have 10


def read_stream(value: bytes | None, max_message: int) -> pa.Table:
    """Returns the table of an Arrow IPC stream message. Raises SchemaError."""
    if not value:
        raise SchemaError(("empty", "", "no bytes; a message is an Arrow IPC stream"))
    if len(value) > max_message:
        raise SchemaError(too_large(len(value), max_message))
    try:
        _check_size(unpacked_size(value), max_message)
        with pyarrow.ipc.open_stream(io.BytesIO(value)) as reader:
            table = reader.read_all()
        table.validate(full=True)  # offsets and texts are used unchecked from here on
        _check_size(viewed_bytes(table), max_message)
    except SchemaError:
        raise
    except (pa.ArrowException, OSError, ValueError) as error:
        raise SchemaError(("malformed", "", f"not an Arrow IPC stream: {str(error)[:200]}")) from None
    if table.num_rows > most_events(max_message):
        what = (
            f"{table.num_rows} rows: more than {most_events(max_message)}, one for every 16 bytes of kafka.max_message"
        )
        raise SchemaError(("too_large", "", what))
    return without_views(table)


def _check_size(size: int, max_message: int) -> None:
    if size > EXPANSION * max_message:
        what = f"{size} bytes and cells when unpacked: more than {EXPANSION} times kafka.max_message = {max_message}"
        raise SchemaError(("too_large", "", what))
