"""Reports unknown fields of events, in JSON and in schemas: without this, a misspelt optional field would be ignored silently."""

from __future__ import annotations

import difflib
import json
import logging
from collections.abc import Iterable, Sequence

import msgspec

from streameval.events.fields import FIELDS

log = logging.getLogger(__name__)

MESSAGES_SEEN = 200  # messages inspected, one per batch
MOST_NAMES = 20  # names reported
_ALIKE = 0.6  # of 1, see `difflib`: "version" and "model_version" have 0.7
_OTHER_WORDS = {  # that companies use for a field, and that are spelt nothing like it
    "label": "clicked",
    "target": "clicked",
    "is_click": "clicked",
    "prediction": "pclick",
    "score": "pclick",
    "ad_id": "item_id",
    "doc_id": "item_id",
    "document_id": "item_id",
    "session_id": "request_id",
    "rank": "position",
}
_read = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


class Unread:
    """Inspects a message of each of the first batches, and logs every unknown name once."""

    def __init__(self) -> None:
        self._left = MESSAGES_SEEN
        self._told: set[str] = set()

    def look(self, values: Sequence[bytes | None]) -> None:
        """Inspects the last of some messages, if it is an object."""
        if self._left <= 0 or not values or len(self._told) >= MOST_NAMES:
            return
        self._left -= 1
        try:
            names = _read(values[-1] or b"")
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            return  # an array, or a dead letter
        for name in names.keys() - FIELDS.keys() - self._told:
            if len(self._told) < MOST_NAMES:
                self._told.add(name)
                _log_name(name, names.keys())


def tell(names: Iterable[str], where: str) -> None:
    """Logs the unknown ones of the fields of a type of events; `where`: the beginning of the line."""
    names = list(names)
    for name in [one for one in names if one not in FIELDS][:MOST_NAMES]:
        _log_name(name, names, where)


def _log_name(name: str, beside: Iterable[str], where: str = "") -> None:
    absent = sorted(FIELDS.keys() - beside)
    other = _OTHER_WORDS.get(name.lower())
    meant = [other] if other in absent else difflib.get_close_matches(name.lower(), absent, 1, cutoff=_ALIKE)
    shown = json.dumps(name[:80])
    if meant:
        log.warning("%sevents have a field %s, which is ignored: did you mean %s?", where, shown, meant[0])
    else:
        log.info("%sevents have a field %s, which is ignored", where, shown)
