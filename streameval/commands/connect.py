"""`config check --connect`: checks everything that the settings refer to, one line each, with the fix for every
problem.

Nothing is changed: no group is joined, no topic is created, and the file written to test the disk is removed.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from streameval.sources.kafka.options import redacted
from streameval.sources.kafka.reader import UnreachableError
from streameval.sources.protocol import SourceError
from streameval.sources.registry import kind_of_source

if TYPE_CHECKING:
    from streameval.settings.store import Store
    from streameval.settings.tree import Kafka, Settings

BROKER_PATIENCE = 10.0  # seconds for a broker's first answer
_REMOTE = {"nfs", "nfs4", "cifs", "smb3", "smbfs", "fuse.sshfs", "fuse.s3fs", "ceph", "glusterfs", "9p"}


@dataclass(frozen=True, slots=True)
class Probed:
    """The result of one check. `fix`: what to do when it is not `ok`."""

    state: Literal["ok", "warn", "fail"]
    about: str
    text: str
    fix: str = ""

    def line(self) -> str:
        """For a terminal, in one line."""
        return f"{self.state:<4}  {self.about}: {self.text}" + (f"; {self.fix}" if self.fix else "")


def connections(settings: Settings, patience: float = BROKER_PATIENCE) -> Iterator[Probed]:
    """The findings, one by one, as checks finish."""
    kind = kind_of_source(settings).name
    if kind == "kafka":
        yield from _kafka(settings.kafka, patience)
        if settings.kafka.format in ("avro", "protobuf"):
            yield _registry(settings.kafka)
    else:
        yield Probed("ok", "source", f"kind {kind}: not checked by this command")
    yield from _disk(settings.store)


def _kafka(kafka: Kafka, patience: float) -> Iterator[Probed]:
    from streameval.sources.kafka.clients import open_reader

    wanted = tuple(dict.fromkeys((kafka.impressions_topic, kafka.clicks_topic)))
    names = (*wanted, *((kafka.dead_letter_topic,) if kafka.dead_letter_topic else ()))
    check = "check the address, that Kafka runs there, and the TLS and SASL settings in kafka.client_options"
    try:
        reader = open_reader(kafka)
        try:
            counts = reader.partition_counts(names, patience)
        finally:
            reader.close()
    except UnreachableError as error:
        said = redacted(str(error), kafka.client_options)
        yield Probed(
            "fail", "broker", f"{kafka.bootstrap_servers} did not answer within {patience:g} s ({said})", check
        )
        return
    except SourceError as error:
        yield Probed("fail", "broker", redacted(str(error), kafka.client_options), check)
        return
    yield Probed("ok", "broker", f"{kafka.bootstrap_servers} answers")
    most = max([counts.get(name, 0) for name in wanted] + [1])
    for name in wanted:
        yield _input(name, counts, most)
    if kafka.dead_letter_topic:
        yield _letters(kafka.dead_letter_topic, counts)


def _input(name: str, counts: dict[str, int], most: int) -> Probed:
    about = f'topic "{name}"'
    if name not in counts:
        create = f"kafka-topics.sh --create --topic {name} --partitions {most}"
        return Probed("fail", about, "does not exist, or this user has no access to it", f"create it: {create}")
    if counts[name] != most:
        text = f"has {counts[name]} partitions, the other topic {most}"
        return Probed("fail", about, text, f"give both topics {most} partitions, and key both by user id")
    return Probed("ok", about, f"{most} partition{'s' * (most != 1)}")


def _letters(name: str, counts: dict[str, int]) -> Probed:
    about = f'topic "{name}" (dead letters)'
    if name in counts:
        return Probed("ok", about, f"{counts[name]} partition{'s' * (counts[name] != 1)}")
    fix = 'create it, allow brokers to create topics, or set kafka.dead_letter_topic = ""'
    return Probed("warn", about, "does not exist yet", fix)


def _registry(kafka: Kafka) -> Probed:
    from streameval.sources.schema_registry import RegistryClient, RegistryDownError

    url = kafka.schema_registry.url
    try:
        kinds = RegistryClient(kafka.schema_registry).get("/schemas/types")
    except (RegistryDownError, SourceError) as error:
        fix = "check kafka.schema_registry: its address with its path, TLS and credentials"
        return Probed("fail", "schema registry", str(error), fix)
    if isinstance(kinds, list) and kafka.format.upper() not in kinds:
        text = f"{url} responds, but has no schemas of type {kafka.format.upper()}"
        return Probed("fail", "schema registry", text, "check kafka.format, or use another registry")
    return Probed("ok", "schema registry", f"{url} answers")


def _disk(store: Store) -> Iterator[Probed]:
    if not store.path:
        yield Probed(
            "warn", "disk", 'store.path = "": nothing is stored, a restart begins empty', "set it in production"
        )
        return
    path = Path(store.path)
    about = f'disk "{path}"'
    there = path.absolute()  # or the nearest folder above, in which it will be made
    while not there.exists() and there != there.parent:
        there = there.parent
    if not there.is_dir():
        yield Probed("fail", about, f"{there} is a file, not a folder", "choose another store.path")
        return
    try:
        with tempfile.NamedTemporaryFile(dir=there, prefix=".streameval-check-") as probe:
            probe.write(b"streameval")
            probe.flush()
            os.fsync(probe.fileno())
    except OSError as error:
        why = error.strerror or str(error)
        fix = f"let user {os.getuid()} write there, or choose another store.path"
        yield Probed("fail", about, f"{there} cannot be written: {why}", fix)
        return
    kind = _filesystem(there)
    if kind in _REMOTE:
        yield Probed("fail", about, f"is on {kind}, where SQLite does not work", "choose a folder on a local disk")
        return
    free = shutil.disk_usage(there).free
    if free < store.max_size:
        text = f"{_gigabytes(free)} free, but the history alone may take {_gigabytes(store.max_size)}"
        yield Probed("warn", about, text, "make room, or lower store.max_size")
        return
    made = "" if path.exists() else ", will be created"
    yield Probed("ok", about, f"can be written, {_gigabytes(free)} free{made}")


def _gigabytes(count: int) -> str:
    return f"{count / 1e9:,.1f} GB"


def _filesystem(path: Path) -> str:
    """The kind of the file system that holds `path`; "" where Linux does not tell."""
    best, kind = "", ""
    try:
        lines = Path("/proc/mounts").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return ""
    whole = str(path.resolve())
    for line in lines:
        _, mount, found, *_ = line.split(" ")
        mount = mount.replace("\\040", " ")
        if len(mount) >= len(best) and (whole == mount or whole.startswith(mount.rstrip("/") + "/")):
            best, kind = mount, found
    return kind
