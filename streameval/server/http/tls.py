"""The server's certificate: checked and read at the start, and again when its files have been replaced."""

from __future__ import annotations

import logging
import os
import ssl
from collections.abc import Callable
from pathlib import Path

from streameval.results.certificate import CertificateState
from streameval.server.http.certificates import dates
from streameval.settings.server import Server
from streameval.settings.tree import ConfigError

log = logging.getLogger(__name__)

_AGAIN = 86400.0  # seconds until the log is told once more of a certificate that nobody renews


class Renewal:
    """Takes up a renewed certificate without a restart, and says so when none comes: it lasts for months, and a monitor should run longer.

    `certificate`: the one in use.
    """

    def __init__(self, settings: Server, context: ssl.SSLContext, clock: Callable[[], float]) -> None:
        """`context`: of `tls_context`; connections that begin after a renewal use the new certificate. `clock`: seconds since the epoch."""
        self._settings, self._context, self._clock = settings, context, clock
        self._known = self._files()
        self._told = ("", 0.0)  # what was wrong with its dates, and when the log was told
        self.certificate = certificate_dates(settings)
        self._warn()

    async def look(self) -> None:
        """Reads the files if they are not those read last. On the thread that accepts connections: they use the context."""
        found = self._files()
        if found != self._known:
            self._known = found
            self._renew()
        self._warn()

    def _renew(self) -> None:
        try:
            # tried apart: a certificate whose key has not been replaced yet would leave ours without one
            tls_context(self._settings)
            self._context.load_cert_chain(self._settings.tls_certificate, self._settings.tls_key, password="")
        except (ConfigError, ssl.SSLError, OSError) as error:
            log.warning("the certificate was replaced, but the one from before is still used: %s", error)
        else:
            self.certificate = certificate_dates(self._settings)
            log.info("the certificate was replaced: new connections use it")

    def _warn(self) -> None:
        """Tells the log when the dates are wrong or soon will be: at once, and then every day."""
        now = self._clock()
        concern = self.certificate.concern(now) if self.certificate is not None else ""
        before, at = self._told
        if self.certificate is not None and concern and (concern != before or now >= at + _AGAIN):
            log.warning("%s (%s)", self.certificate.words(now), self._settings.tls_certificate)
            at = now
        self._told = (concern, at)

    def _files(self) -> list[tuple[int, int, int] | None]:
        return [_version(path) for path in (self._settings.tls_certificate, self._settings.tls_key)]


def _version(path: str) -> tuple[int, int, int] | None:
    try:
        found = os.stat(path)
    except OSError:  # between the removal of the old one and the new one
        return None
    return found.st_ino, found.st_mtime_ns, found.st_size


def tls_context(settings: Server) -> ssl.SSLContext | None:
    """TLS 1.2 or newer with the configured certificate; None without one.

    Raises ConfigError, naming the file, when they cannot be used.
    """
    if not settings.tls_certificate:
        return None
    certificate = f'server.tls_certificate = "{settings.tls_certificate}"'
    key = f'server.tls_key = "{settings.tls_key}"'
    _check(certificate, settings.tls_certificate, "CERTIFICATE", "the certificate and its chain")
    _check(key, settings.tls_key, "PRIVATE KEY", "the certificate's key")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    try:
        # without a password of ours OpenSSL would ask for one on the terminal
        context.load_cert_chain(settings.tls_certificate, settings.tls_key, password="")
    except (ssl.SSLError, ValueError) as error:
        if getattr(error, "reason", "") == "KEY_VALUES_MISMATCH":
            raise ConfigError(
                f"{key}: does not belong to {certificate}; give the key that the certificate was created with"
            ) from None
        raise ConfigError(
            f"{key}: cannot be used with {certificate} ({getattr(error, 'reason', None) or error}); both must be PEM, "
            "and the key without a password (openssl pkey -in KEY -out PLAIN)"
        ) from None
    return context


def certificate_dates(settings: Server) -> CertificateState | None:
    """When the configured certificate, which `tls_context` has accepted, is valid; None without one."""
    if not settings.tls_certificate:
        return None
    try:
        return dates(Path(settings.tls_certificate).read_text(encoding="latin-1"))
    except (OSError, ValueError) as error:
        log.warning("%s: when it expires cannot be read: %s", settings.tls_certificate, error)
        return None


def _check(name: str, path: str, kind: str, wanted: str) -> None:
    try:
        text = Path(path).read_text(encoding="latin-1")
    except FileNotFoundError:
        raise ConfigError(f"{name}: no such file; give the PEM file with {wanted}") from None
    except OSError as error:
        raise ConfigError(f"{name}: cannot be read: {error.strerror}; make it readable for this user") from None
    if f"{kind}-----" not in text:
        raise ConfigError(f"{name}: holds no {kind.lower()} in PEM; give the PEM file with {wanted}")
