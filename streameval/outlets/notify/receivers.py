"""The kinds of receivers: each sends one message, or reports why it could not. Its errors never contain a secret.

The standard library speaks HTTP and SMTP, and every service here accepts a single POST; so no client library is needed.
"""

from __future__ import annotations

import hashlib
import hmac
import http.client
import json
import smtplib
import ssl
import urllib.error
import urllib.request
from abc import ABC, abstractmethod
from collections.abc import Mapping
from datetime import UTC, datetime
from email.message import EmailMessage
from email.utils import formatdate, parsedate_to_datetime
from typing import Any
from urllib.parse import quote, urlsplit

from streameval import __version__
from streameval.outlets.notify.message import Notice
from streameval.outlets.secrets import Secret
from streameval.settings.outlets import EmailNotify, NotifySettings, PagerdutyNotify, SlackNotify, WebhookNotify
from streameval.settings.section import kind_of
from streameval.settings.tree import ConfigError

SEND_SECONDS = 10.0  # that one attempt may take, between two bytes
# about this message; anything else is about the receiver, and affects all messages
_REFUSED = frozenset({400, 413, 422})
_LONGEST_WAIT = 300.0  # seconds that a receiver may ask for
_LONGEST_DEDUP_KEY = 255  # characters that PagerDuty takes
_PLAIN = "".join(chr(code) for code in range(0x20, 0x7F) if chr(code) != "%")  # in a header as it is


class DeliveryError(Exception):
    """A message did not arrive. `refused`: this one, others may; `wait`: seconds that the receiver asks for."""

    def __init__(self, why: str, *, refused: bool = False, wait: float = 0.0) -> None:
        super().__init__(why)
        self.refused, self.wait = refused, wait


class Receiver(ABC):
    """One `[[notify]]`. One thread uses it."""

    def __init__(self, settings: NotifySettings) -> None:
        self.name = settings.called
        self.kind = kind_of(type(settings))
        self.on = frozenset(settings.on)
        self.no_data_after = settings.no_data_after

    @abstractmethod
    def check(self) -> None:
        """Raises ConfigError when a secret is missing."""

    @abstractmethod
    def send(self, message: Notice) -> None:
        """Returns once the message is accepted. Raises DeliveryError, ConfigError."""


class _Webhook(Receiver):
    def __init__(self, settings: WebhookNotify) -> None:
        super().__init__(settings)
        self._url = Secret("url", settings.url_file, settings.url_env)
        signed = settings.secret_file or settings.secret_env
        self._key = Secret("secret", settings.secret_file, settings.secret_env) if signed else None

    def check(self) -> None:
        _address(self._url)
        if self._key is not None:
            self._key.read()

    def send(self, message: Notice) -> None:
        body = _encoded(message.as_json())
        headers = {"Idempotency-Key": quote(message.id, safe=_PLAIN)}  # it may hold the name of a model
        if self._key is not None:
            signature = hmac.new(self._key.read().encode(), body, hashlib.sha256).hexdigest()
            headers["X-Streameval-Signature"] = f"sha256={signature}"
        _post(_address(self._url), body, headers, (self._url,))


class _Slack(Receiver):
    def __init__(self, settings: SlackNotify) -> None:
        super().__init__(settings)
        self._url = Secret("url", settings.url_file, settings.url_env)

    def check(self) -> None:
        _address(self._url)

    def send(self, message: Notice) -> None:
        text = f"*{_escaped(message.title)}*\n{_escaped(message.text)}"
        if message.link:
            text += f"\n<{message.link}|Evidence>"
        _post(_address(self._url), _encoded({"text": text}), {}, (self._url,))


class _Pagerduty(Receiver):
    """One incident per comparison or silent model: `recovered` resolves it, and so does `not_worse`."""

    def __init__(self, settings: PagerdutyNotify) -> None:
        super().__init__(settings)
        self._key = Secret("key", settings.key_file, settings.key_env)
        self._url = settings.url

    def check(self) -> None:
        self._key.read()

    def send(self, message: Notice) -> None:
        severity = {"worse": "error", "no_data": "error", "withheld": "warning"}.get(message.kind, "info")
        resolves = message.kind in ("recovered", "not_worse")
        event: dict[str, Any] = {
            "routing_key": self._key.read(),
            "event_action": "resolve" if resolves else "trigger",
            "dedup_key": _dedup_key(message),
            "payload": {
                "summary": f"{message.title}: {message.text}"[:1024],
                "source": "streameval",
                "severity": severity,
                "timestamp": message.as_json()["at"],
                "custom_details": message.as_json(),
            },
        }
        if message.link:
            event["links"] = [{"href": message.link, "text": "Evidence"}]
        _post(self._url, _encoded(event), {}, (self._key,))


class _Email(Receiver):
    def __init__(self, settings: EmailNotify) -> None:
        super().__init__(settings)
        self._settings = settings
        self._password = (
            Secret("password", settings.password_file, settings.password_env) if settings.username else None
        )

    def check(self) -> None:
        if self._password is not None:
            self._password.read()

    def send(self, message: Notice) -> None:
        s = self._settings
        try:
            with self._connected() as smtp:
                if s.security == "starttls":
                    smtp.starttls(context=ssl.create_default_context())
                if self._password is not None:
                    smtp.login(s.username, self._password.read())
                smtp.send_message(self._mail(message))
        except smtplib.SMTPRecipientsRefused as error:
            raise DeliveryError(f"{s.host}: rejected all recipients", refused=False) from error
        except smtplib.SMTPResponseException as error:  # its text may quote what was sent
            raise DeliveryError(f"{s.host}: {error.smtp_code}", refused=error.smtp_code in (552, 554)) from error
        except (smtplib.SMTPException, OSError) as error:
            raise DeliveryError(f"{s.host}:{s.port}: {type(error).__name__}") from error

    def _connected(self) -> smtplib.SMTP:
        s = self._settings
        if s.security == "tls":
            return smtplib.SMTP_SSL(s.host, s.port, timeout=SEND_SECONDS, context=ssl.create_default_context())
        return smtplib.SMTP(s.host, s.port, timeout=SEND_SECONDS)

    def _mail(self, message: Notice) -> EmailMessage:
        mail = EmailMessage()
        mail["Subject"] = " ".join(f"[streameval] {message.title}".split())
        mail["From"] = self._settings.sender
        mail["To"] = ", ".join(self._settings.to)
        mail["Date"] = formatdate(usegmt=True)
        unique = hashlib.sha256(message.id.encode()).hexdigest()[:32]  # a repetition has the same: readers show it once
        mail["Message-ID"] = f"<{unique}@streameval.invalid>"
        mail.set_content(f"{message.text}\n\n{message.link}\n" if message.link else f"{message.text}\n")
        return mail


def _dedup_key(message: Notice) -> str:
    incident = message.more.get("incident") or message.id
    key = f"streameval/{message.model}/{incident}"
    if len(key) <= _LONGEST_DEDUP_KEY:
        return key
    return f"streameval/{hashlib.sha256(key.encode()).hexdigest()}"


def make_receiver(settings: NotifySettings) -> Receiver:
    """The receiver of a `[[notify]]` table."""
    if isinstance(settings, WebhookNotify):
        return _Webhook(settings)
    if isinstance(settings, SlackNotify):
        return _Slack(settings)
    if isinstance(settings, PagerdutyNotify):
        return _Pagerduty(settings)
    if isinstance(settings, EmailNotify):
        return _Email(settings)
    raise ConfigError(f'notify: "{settings.called}": unknown kind of receiver')


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *args: Any, **options: Any) -> None:
        """Does not follow redirects: a message goes to the configured address or nowhere."""


def _address(where: Secret) -> str:
    """Raises ConfigError when the secret is not an address."""
    url = where.read()
    try:
        parts = urlsplit(url)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and url.isascii() and url.isprintable()
    except ValueError:
        usable = False
    if not usable:
        raise ConfigError(f"{where}: must be one http(s) address")
    return url


def _post(url: str, body: bytes, more: Mapping[str, str], secrets: tuple[Secret, ...]) -> None:
    """Raises DeliveryError, which names the host and no more of the address."""
    host = urlsplit(url).hostname
    headers = {"Content-Type": "application/json", "User-Agent": f"streameval/{__version__}", **more}
    request = urllib.request.Request(url, body, headers, method="POST")  # noqa: S310  (http or https, see above)
    opener = urllib.request.build_opener(_NoRedirects)
    try:
        opener.open(request, timeout=SEND_SECONDS).close()  # the status is all: a body may never end
    except urllib.error.HTTPError as error:
        with error:
            wait = _seconds(error.headers.get("Retry-After"))
        raise DeliveryError(f"{host}: {error.code}", refused=error.code in _REFUSED, wait=wait) from None
    except urllib.error.URLError as error:
        raise DeliveryError(f"{host}: {_hidden(str(error.reason), secrets)}") from None
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise DeliveryError(f"{host}: {type(error).__name__}") from None


def _hidden(text: str, secrets: tuple[Secret, ...]) -> str:
    for secret in secrets:
        text = secret.hide(text)
    return text


def _seconds(text: str | None) -> float:
    """Of `Retry-After`, which is a number of seconds or a date."""
    if text is None:
        return 0.0
    if text.isdecimal():
        return min(float(text), _LONGEST_WAIT)
    try:
        left = (parsedate_to_datetime(text).astimezone(UTC) - datetime.now(UTC)).total_seconds()
    except (ValueError, OverflowError):
        return 0.0
    return min(max(left, 0.0), _LONGEST_WAIT)


def _encoded(body: Mapping[str, Any]) -> bytes:
    return json.dumps(body, allow_nan=False).encode()


def _escaped(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
