"""Why nothing comes from a place, in words."""

from __future__ import annotations

from collections.abc import Mapping


def why_silent(place: tuple[str, int], in_transaction: Mapping[tuple[str, int], int]) -> str:
    """Returns what is known of a (topic, partition) that was not read to its end, and what to do; `in_transaction`: see `Source`."""
    topic, partition = place
    silent = f"nothing comes from {topic} [{partition}]"
    if place not in in_transaction:
        return f"{silent}, and no broker says that this is its end; has it a leader?"
    offset, where = in_transaction[place], f"--topic {topic} --partition {partition}"
    return (
        f"{silent}: a transaction was begun at offset {offset} and has not ended, and what follows cannot be read until it "
        f"has; have its producer commit it (kafka-transactions.sh describe-producers {where} tells which), or abort it "
        f"(kafka-transactions.sh abort {where} --start-offset {offset}); to read what is not committed, too, set "
        '"isolation.level" (kafka-python: isolation_level) = "read_uncommitted" in kafka.client_options'
    )
