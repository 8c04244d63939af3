"""The server's certificate."""

from __future__ import annotations

import ssl
from pathlib import Path

from streameval.settings.server import Server
from streameval.settings.tree import ConfigError


def tls_context(settings: Server) -> ssl.SSLContext | None:
    """TLS 1.2 or newer with the configured certificate; None without one. The files are read once, at the start.

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


def _check(name: str, path: str, kind: str, wanted: str) -> None:
    try:
        text = Path(path).read_text(encoding="latin-1")
    except FileNotFoundError:
        raise ConfigError(f"{name}: no such file; give the PEM file with {wanted}") from None
    except OSError as error:
        raise ConfigError(f"{name}: cannot be read: {error.strerror}; make it readable for this user") from None
    if f"{kind}-----" not in text:
        raise ConfigError(f"{name}: holds no {kind.lower()} in PEM; give the PEM file with {wanted}")
