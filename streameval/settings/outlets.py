"""The sections of `[[notify]]` and `[[sinks]]`, one class a kind: who is notified of verdicts, and where results are written.

No secret is a setting: it is in a file or in an environment variable, and the settings name where. So `config show`, errors
and logs cannot reveal any.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Annotated, Literal
from urllib.parse import urlsplit

from pydantic import Field, model_validator

from streameval.settings.section import TOPIC, Int, Kinds, PositiveDuration, Section, kind_of, of_form, written

NotifyOn = Literal["worse", "not_worse", "withheld", "recovered", "no_data"]
_NAME = of_form(
    r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$|^$",
    "must be at most 64 letters, digits, dots, dashes and underscores, a letter or digit first",
)
_ENV = "environment variable that holds it instead; its name must not begin with `STREAMEVAL_`"


def _one_place(section: Section, what: str, *, needed: bool = True) -> None:
    """Raises ValueError unless `<what>_file` or `<what>_env` is set, and not both."""
    file, env = getattr(section, f"{what}_file"), getattr(section, f"{what}_env")
    if file and env:
        raise ValueError(f"{what}_file: {what}_env is set too; keep one of them")
    if needed and not file and not env:
        raise ValueError(f'{what}_file = "": is required; name a file that holds it, or set {what}_env')
    if env.startswith("STREAMEVAL_"):  # would be read as a setting
        raise ValueError(f'{what}_env = "{env}": must not begin with "STREAMEVAL_"; choose another name')


class NotifySettings(Section):
    """Who is notified of verdicts; a kind's class adds its `kind` and its parameters."""

    name: str = Field(
        "",
        pattern=_NAME,
        description="its name in logs and metrics, and the key of its undelivered messages; absent: the kind",
    )
    on: tuple[NotifyOn, ...] = Field(
        ("worse", "not_worse", "withheld", "recovered", "no_data"),
        description="which changes are sent: `worse`, `not_worse` (certified), `withheld` (or retracted), `recovered`, `no_data`",
    )
    no_data_after: PositiveDuration = written(
        "15m", description="wall-clock time without a new label of a model after which it has no data"
    )

    @property
    def called(self) -> str:
        """Its name."""
        return self.name or kind_of(type(self))


class WebhookNotify(NotifySettings):
    """A JSON object in a POST to an address of your own ([notifications.md](../notifications.md))."""

    kind: Literal["webhook"] = Field("webhook", description="kind of receiver; required")
    url_file: str = Field("", description="file with the address")
    url_env: str = Field("", description=_ENV)
    secret_file: str = Field(
        "", description="file with a key: messages are signed with HMAC-SHA256 in `X-Streameval-Signature`"
    )
    secret_env: str = Field("", description=_ENV)

    @model_validator(mode="after")
    def _where(self) -> WebhookNotify:
        _one_place(self, "url")
        _one_place(self, "secret", needed=False)
        return self


class SlackNotify(NotifySettings):
    """A Slack channel, by an incoming webhook; also what understands the same, as Mattermost does."""

    kind: Literal["slack"] = Field("slack", description="kind of receiver; required")
    url_file: str = Field("", description="file with the address of the incoming webhook")
    url_env: str = Field("", description=_ENV)

    @model_validator(mode="after")
    def _where(self) -> SlackNotify:
        _one_place(self, "url")
        return self


class PagerdutyNotify(NotifySettings):
    """A PagerDuty service, by its Events API v2: `worse` and `no_data` trigger an incident, `recovered` resolves it."""

    kind: Literal["pagerduty"] = Field("pagerduty", description="kind of receiver; required")
    key_file: str = Field("", description="file with the integration key")
    key_env: str = Field("", description=_ENV)
    url: str = Field(
        "https://events.pagerduty.com/v2/enqueue",
        pattern=of_form(r"^https?://[^@\s]+$", 'must be an address such as "https://events.example/v2/enqueue"'),
        description="address of the Events API; the EU region has another one",
    )

    @model_validator(mode="after")
    def _where(self) -> PagerdutyNotify:
        _one_place(self, "key")
        return self


class EmailNotify(NotifySettings):
    """Mail, by SMTP."""

    kind: Literal["email"] = Field("email", description="kind of receiver; required")
    host: str = Field(min_length=1, description="the mail server; required")
    port: Int = Field(587, ge=1, le=65535, description="its port")
    security: Literal["starttls", "tls", "none"] = Field("starttls", description="how the connection is encrypted")
    sender: str = Field(
        pattern=of_form(r"^[^\s@]+@[^\s@]+$", 'must be an address such as "oncall@example.com"'),
        description="sender of the emails; required",
    )
    to: tuple[str, ...] = Field(min_length=1, max_length=100, description="recipients; required")
    username: str = Field("", description='user name for the login; with `""` there is no login')
    password_file: str = Field("", description="file with the password")
    password_env: str = Field("", description=_ENV)

    @model_validator(mode="after")
    def _who(self) -> EmailNotify:
        _one_place(self, "password", needed=bool(self.username))
        for one in self.to:
            if not re.fullmatch(r"[^\s@]+@[^\s@]+", one):
                raise ValueError(f'to = "{one}": must be an address such as "oncall@example.com"')
        return self


class SinkSettings(Section):
    """Where else results and verdicts are written; a kind's class adds its `kind` and its parameters."""

    name: str = Field(
        "",
        pattern=_NAME,
        description="its name in logs and metrics, and the key of its stored progress; absent: the kind",
    )

    @property
    def called(self) -> str:
        """Its name."""
        return self.name or kind_of(type(self))


class ParquetSink(SinkSettings):
    """Parquet files, one a pane and one a verdict, in a folder or an object store."""

    kind: Literal["parquet"] = Field("parquet", description="kind of sink; required")
    to: str = Field(
        min_length=1,
        description="a folder, or an address such as `s3://bucket/path`, `gs://...`, `abfs://...` (credentials are the library's usual ones); required",
    )

    @model_validator(mode="after")
    def _no_password(self) -> ParquetSink:
        if "@" in urlsplit(self.to).netloc:
            raise ValueError("to: must not contain a password; give credentials in the environment")
        return self


class KafkaSink(SinkSettings):
    """A topic on the brokers of `[kafka]`: JSON messages keyed by what they are about, so that compaction keeps the newest."""

    kind: Literal["kafka"] = Field("kafka", description="kind of sink; required")
    to: str = Field(min_length=1, pattern=TOPIC, description="the topic; required")


class SqlSink(SinkSettings):
    """Tables of any database that SQLAlchemy speaks to: `pip install "streameval[sql]"` and the database's driver."""

    kind: Literal["sql"] = Field("sql", description="kind of sink; required")
    to: str = Field(
        "",
        description="SQLAlchemy's address, such as `sqlite:////var/lib/results.db`; one with a password belongs in a file",
    )
    to_file: str = Field("", description="file with the address")
    to_env: str = Field("", description=_ENV)
    prefix: str = Field(
        "streameval_",
        pattern=of_form(
            r"^[a-z_][a-z0-9_]{0,30}$", "must be at most 31 small letters, digits and underscores, no digit first"
        ),
        description="prefix of the table names",
    )

    @model_validator(mode="after")
    def _where(self) -> SqlSink:
        _one_place(self, "to", needed=not self.to)
        if self.to and (self.to_file or self.to_env):
            raise ValueError("to: to_file or to_env is set too; keep one of them")
        try:
            secret = urlsplit(self.to).password is not None or "password=" in self.to.lower()
        except ValueError:
            secret = True
        if secret:
            raise ValueError("to: must not contain a password; put the address into a file, and name it in to_file")
        return self


NOTIFIERS = Kinds(WebhookNotify, SlackNotify, PagerdutyNotify, EmailNotify)
AnyNotifier = Annotated[NotifySettings, NOTIFIERS]
SINKS = Kinds(ParquetSink, KafkaSink, SqlSink)
AnySink = Annotated[SinkSettings, SINKS]


def same_called(section: str, several: Iterable[NotifySettings | SinkSettings]) -> str | None:
    """What is wrong when two have one name."""
    names = [one.called for one in several]
    for name in names:
        if names.count(name) > 1:
            return f'{section}: two are called "{name}"; give each a `name` of its own'
    return None
