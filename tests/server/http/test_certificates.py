"""The dates of certificates, against those that the library which made them reads."""

from __future__ import annotations

import ssl
from datetime import UTC, datetime, timedelta

import pytest
import trustme
from cryptography import x509

from streameval.results.certificate import CertificateState
from streameval.server.http.certificates import dates

NOW = datetime(2026, 11, 27, 16, 0, 0, tzinfo=UTC)
DAY = 86400.0


@pytest.mark.parametrize("kind", trustme.KeyType)
@pytest.mark.parametrize("end", [NOW, datetime(2049, 12, 31, 23, 59, 59, tzinfo=UTC), datetime(2050, 1, 1, tzinfo=UTC)])
def test_the_dates_are_those_of_the_certificate(kind: trustme.KeyType, end: datetime) -> None:
    made = trustme.CA(key_type=kind).issue_cert(
        "localhost", not_before=NOW - timedelta(days=9), not_after=end, key_type=kind
    )
    pem = made.cert_chain_pems[0].bytes()
    known = x509.load_pem_x509_certificate(pem)
    assert dates(pem.decode()) == CertificateState(
        known.not_valid_before_utc.timestamp(), known.not_valid_after_utc.timestamp()
    )


def test_a_chain_is_valid_as_long_as_all_of_it() -> None:
    own, longer, shorter = (
        trustme.CA().issue_cert("a", not_before=NOW - timedelta(days=days), not_after=NOW + timedelta(days=days))
        for days in (20, 30, 10)
    )
    own, longer, shorter = (one.cert_chain_pems[0].bytes().decode() for one in (own, longer, shorter))
    whole = dates("subject=CN = a\n" + own + longer)
    assert (whole.not_after - NOW.timestamp(), whole.of_chain) == (20 * DAY, False)
    cut = dates(own.replace("\n", "\r\n") + shorter)
    assert (cut.not_before - NOW.timestamp(), cut.not_after - NOW.timestamp()) == (-10 * DAY, 10 * DAY)
    assert "a certificate of the server's chain expires on 2026-12-07 16:00 UTC" in cut.words(NOW.timestamp() + 9 * DAY)


@pytest.mark.parametrize("pem", ["", "-----BEGIN CERTIFICATE-----\nbm8=\n-----END CERTIFICATE-----\n"])
def test_what_is_no_certificate_has_no_dates(pem: str) -> None:
    with pytest.raises(ValueError, match=r"no certificate|ends early"):
        dates(pem)


def test_a_certificate_cut_at_any_byte_is_refused() -> None:
    pem = trustme.CA().issue_cert("localhost").cert_chain_pems[0].bytes().decode()
    der = ssl.PEM_cert_to_DER_cert(pem)
    for length in range(1, len(der)):
        with pytest.raises(ValueError, match="it ends early"):
            dates(ssl.DER_cert_to_PEM_cert(der[:length]))


def test_what_is_said_of_it_depends_on_how_long_it_lives() -> None:
    year, week = CertificateState(0.0, 365 * DAY), CertificateState(0.0, 6 * DAY)
    assert [year.concern(t * DAY) for t in (-0.1, 0, 350.9, 351.1, 364.9, 365)] == [
        "early",
        "",
        "",
        "soon",
        "soon",
        "expired",
    ]
    assert [week.concern(t * DAY) for t in (4.7, 4.9, 6)] == ["", "soon", "expired"]
    assert year.words(0.0) is None
    assert "is not valid before 1970-01-01 00:00 UTC" in year.words(-1.0)
    assert "expires on 1971-01-01 00:00 UTC and has not been renewed" in year.words(360 * DAY)
    assert "expired on 1971-01-01 00:00 UTC, so clients" in year.words(400 * DAY)
