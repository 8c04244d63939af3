"""Tables of a database, by SQLAlchemy Core: `<prefix>results`, a row per pane and series, and `<prefix>verdicts`.

A pane is written in one transaction that deletes what was there of it, which every database can; the key of a row follows
from what it is about, so a second writer gets an error and no second row. A metric that is new gets a column.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from streameval.outlets.secrets import Secret, blanked
from streameval.outlets.sinks.kafka import result_key
from streameval.outlets.sinks.protocol import Sink, SinkError, time_of
from streameval.outlets.sinks.rows import RESULT_TIMES, VERDICT_KEYS, VERDICT_TIMES, SinkPane, SinkVerdict
from streameval.settings.outlets import SqlSink
from streameval.settings.tree import ConfigError

try:
    import sqlalchemy as sa
except ImportError as missing:
    raise ConfigError('sinks: kind = "sql" needs SQLAlchemy: pip install "streameval[sql]"') from missing

_CONNECT_SECONDS = 10
_TEXTS = ("kind", "verdict", "text", "comparison", "model", "version", "candidate", "candidate_source", "baseline",
          "setup", "source", "objective")  # fmt: skip
_WHOLE = ("impressions", "clicks", "corrected")


class SqlTables(Sink):
    """See the module."""

    def __init__(self, settings: SqlSink) -> None:
        """Connects at the first write. Raises ConfigError."""
        self._secret = None if settings.to else Secret("to", settings.to_file, settings.to_env)
        self._to, self._prefix = settings.to, settings.prefix
        self._engine: Any = None
        self._tables: dict[str, Any] = {}
        url = self._url()
        try:
            url.get_dialect().import_dbapi()
        except (ImportError, sa.exc.NoSuchModuleError) as error:
            raise ConfigError(
                f"sinks: to: {url.drivername}: its driver is not installed ({error}); install it, or name another one"
            ) from None

    def write(self, panes: Sequence[SinkPane], verdicts: Sequence[SinkVerdict]) -> None:
        """One transaction."""
        try:
            if self._engine is None:
                self._engine = sa.create_engine(self._patient(), pool_pre_ping=True, pool_size=1, max_overflow=0)
            results = [_stored(result_key(row), row, RESULT_TIMES) for pane in panes for row in pane.rows]
            changes = [_stored(one.key, one.row, VERDICT_TIMES) for one in verdicts]
            if results:
                table = self._table("results", list(dict.fromkeys(name for row in results for name in row)))
                starts = sorted({row["pane_start"] for row in results})
                self._replace(table, table.c.pane_start.in_(starts), results)
            if changes:
                table = self._table("verdicts", ["id", *VERDICT_KEYS])
                self._replace(table, table.c.id.in_([row["id"] for row in changes]), changes)
        except (sa.exc.SQLAlchemyError, OSError, OverflowError) as error:
            self.close()
            raise SinkError(self._said(error)) from error

    def close(self) -> None:
        """Drops the connection and what is known of the tables."""
        engine, self._engine = self._engine, None
        self._tables = {}
        if engine is not None:
            engine.dispose()

    def _replace(self, table: Any, old: Any, rows: Sequence[Mapping[str, Any]]) -> None:
        names = [column.name for column in table.columns]
        with self._engine.begin() as db:
            db.execute(sa.delete(table).where(old))
            db.execute(sa.insert(table), [{name: row.get(name) for name in names} for row in rows])

    def _table(self, name: str, columns: Sequence[str]) -> Any:
        """The table with at least these columns, made or widened if need be."""
        known = self._tables.get(name)
        if known is not None and set(columns) <= set(known.columns.keys()):
            return known
        wanted = sa.Table(self._prefix + name, sa.MetaData(), *(_column(one) for one in columns))
        with self._engine.begin() as db:
            wanted.create(db, checkfirst=True)
            there = {column["name"] for column in sa.inspect(db).get_columns(wanted.name)}
            quoted = db.dialect.identifier_preparer.quote
            for column in wanted.columns:
                if column.name not in there:
                    kind = column.type.compile(db.dialect)
                    db.execute(sa.text(f"ALTER TABLE {quoted(wanted.name)} ADD {quoted(column.name)} {kind}"))
            more = [_column(one) for one in sorted(there - set(columns))]  # of earlier settings: NULL from now on
        for column in more:
            wanted.append_column(column)
        self._tables[name] = wanted
        return wanted

    def _url(self) -> Any:
        try:
            url = sa.make_url(self._to or self._secret.read() if self._secret else self._to)
        except (sa.exc.ArgumentError, ValueError):
            raise ConfigError('sinks: to: must be an address of SQLAlchemy such as "postgresql://host/db"') from None
        if url.host and "@" in f"{url.host}{url.database}":  # half of a password, which errors would show
            raise ConfigError('sinks: to: has more than one "@"; write one in a password as %40')
        return url

    def _patient(self) -> Any:
        """The address with a timeout, for drivers that would wait two minutes for a server that hangs."""
        url = self._url()
        if not url.get_driver_name().startswith("psycopg") or "connect_timeout" in url.query:
            return url
        return url.update_query_dict({"connect_timeout": str(_CONNECT_SECONDS)})

    def _said(self, error: Exception) -> str:
        """Where and why, without the statement, its values and the password."""
        said = str(getattr(error, "orig", None) or error).partition("\n")[0]
        try:
            url = self._url()
        except ConfigError:  # the file has just been removed
            return type(error).__name__
        place = url.set(query={}).render_as_string()
        if url.password:
            said = blanked(said, str(url.password))
        return f"{place}: {said} ({type(error).__name__}); check the address, the password and the user's rights"


def _stored(key: str, row: Mapping[str, Any], times: tuple[str, ...]) -> dict[str, Any]:
    return {"id": key, **{name: time_of(value) if name in times else _held(value) for name, value in row.items()}}


def _held(value: Any) -> Any:
    """As a database can hold it: PostgreSQL has no text with a NUL character, JSON has."""
    return value.replace("\x00", "\ufffd") if isinstance(value, str) else value


def _column(name: str) -> Any:
    if name == "id":
        return sa.Column(name, sa.String(32), primary_key=True)
    if name in (*RESULT_TIMES, *VERDICT_TIMES):
        return sa.Column(name, sa.DateTime(timezone=True), index=name == "pane_start")
    if name in _WHOLE:
        return sa.Column(name, sa.BigInteger)
    return sa.Column(name, sa.Text if name in _TEXTS else sa.Double)
