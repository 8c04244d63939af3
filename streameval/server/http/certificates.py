"""The dates of the certificates in a PEM file. Python's `ssl` tells them of a peer's certificate only, not of one's own."""

from __future__ import annotations

import base64
import re
from datetime import UTC, datetime

from streameval.results.certificate import CertificateState

_PEM = re.compile(r"-----BEGIN (?:X509 |TRUSTED )?CERTIFICATE-----([A-Za-z0-9+/=\s]+)-----END")
_SEQUENCE, _VERSION, _UTC_TIME = 0x30, 0xA0, 0x17


def dates(pem: str) -> CertificateState:
    """When all certificates in `pem` are valid; the first one is the server's own. Raises ValueError when they cannot be read."""
    found = [_validity(base64.b64decode(one)) for one in _PEM.findall(pem)]
    if not found:
        raise ValueError("no certificate")
    end = min(last for _, last in found)
    return CertificateState(max(first for first, _ in found), end, of_chain=end < found[0][1])


def _validity(der: bytes) -> tuple[float, float]:
    """RFC 5280: a certificate begins with {{[version,] serial number, signature, issuer, {not before, not after}, ..."""
    try:
        signed = _items(_items(der)[0][1])[0][1]
        fields = _items(signed)
        validity = fields[4 if fields[0][0] == _VERSION else 3]
        if validity[0] != _SEQUENCE:
            raise ValueError("its validity is not where it should be")
        first, last = _items(validity[1])
        return _seconds(*first), _seconds(*last)
    except IndexError:
        raise ValueError("it ends early") from None


def _items(der: bytes) -> list[tuple[int, bytes]]:
    """(tag, content) of the values that follow each other in `der`; only as many as are whole."""
    out, at = [], 0
    while at + 2 <= len(der):
        tag, size = der[at], der[at + 1]
        at += 2
        if size >= 0x80:  # the number of bytes that hold the size
            size, at = int.from_bytes(der[at : at + size - 0x80], "big"), at + size - 0x80
        if at + size > len(der):
            break
        out.append((tag, der[at : at + size]))
        at += size
    return out


def _seconds(tag: int, content: bytes) -> float:
    text = content.decode("ascii")
    if tag == _UTC_TIME:  # two digits of the year: until 2049
        text = ("19" if text >= "50" else "20") + text
    return datetime.strptime(text, "%Y%m%d%H%M%SZ").replace(tzinfo=UTC).timestamp()
