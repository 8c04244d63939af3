"""TLS with a real certificate and real handshakes."""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx
import pytest
import trustme
from cryptography.hazmat.primitives import serialization

from streameval.server import ServerHandle, create_app, serve
from streameval.server.http.tls import tls_context
from streameval.settings.server import Server
from streameval.settings.toml import load
from streameval.settings.tree import ConfigError


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    """Who signs the certificates of this test."""
    return trustme.CA()


@pytest.fixture
def files(authority, tmp_path: Path) -> dict[str, str]:
    """`tls_certificate` and `tls_key` of 127.0.0.1."""
    made = authority.issue_cert("127.0.0.1", "localhost")
    made.cert_chain_pems[0].write_to_path(tmp_path / "server.pem")
    made.private_key_pem.write_to_path(tmp_path / "server.key")
    return {"tls_certificate": str(tmp_path / "server.pem"), "tls_key": str(tmp_path / "server.key")}


@pytest.fixture
def trust(authority) -> ssl.SSLContext:
    """A client that trusts the authority, and nobody else."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    authority.configure_trust(context)
    return context


@pytest.fixture
def server(publisher, files) -> Iterator[ServerHandle]:
    handle = serve(create_app(publisher, Server(**files), version="1", environ={}), "127.0.0.1", 0)
    yield handle
    handle.stop()


def test_a_client_that_trusts_the_authority_is_answered_over_tls(server, trust) -> None:
    assert server.url == f"https://127.0.0.1:{server.port}"
    answer = httpx.get(server.url + "/livez", verify=trust)
    assert answer.json()["status"] == "alive"
    assert answer.headers["strict-transport-security"] == "max-age=31536000"


def issued_to(server: ServerHandle, trust: ssl.SSLContext) -> int:
    """The serial number of the certificate that a new connection is shown."""
    with trust.wrap_socket(socket.create_connection(("127.0.0.1", server.port)), server_hostname="127.0.0.1") as secure:
        return int(secure.getpeercert()["serialNumber"], 16)


def waits_for(done: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20.0
    while not done():
        assert time.monotonic() < deadline
        time.sleep(0.1)


def test_a_renewed_certificate_is_used_without_a_restart_once_its_key_is_there_too(
    publisher, authority, files, trust, caplog
) -> None:
    server = serve(create_app(publisher, Server(**files), version="1", environ={}), "127.0.0.1", 0, renewal=0)
    try:
        first, renewed = issued_to(server, trust), authority.issue_cert("127.0.0.1", "localhost")
        renewed.cert_chain_pems[0].write_to_path(files["tls_certificate"])
        waits_for(lambda: "the one from before is still used" in caplog.text)
        assert issued_to(server, trust) == first
        renewed.private_key_pem.write_to_path(files["tls_key"])
        waits_for(lambda: issued_to(server, trust) != first)
        assert httpx.get(server.url + "/livez", verify=trust).status_code == 200
    finally:
        server.stop()


def test_a_certificate_that_nobody_renews_is_told_every_day_until_it_is(
    publisher, authority, files, trust, caplog
) -> None:
    end = datetime.now(UTC).replace(microsecond=0) + timedelta(days=30)
    made = authority.issue_cert("127.0.0.1", not_before=end - timedelta(days=90), not_after=end)
    made.cert_chain_pems[0].write_to_path(files["tls_certificate"])
    made.private_key_pem.write_to_path(files["tls_key"])
    now = time.time()
    app = create_app(publisher, Server(**files), version="1", environ={}, clock=lambda: now)

    def told() -> list[str]:
        asyncio.run(app.state.renewal.look())
        said = [record.getMessage() for record in caplog.records if "tls: " in record.getMessage()]
        caplog.clear()
        return said

    assert told() == []
    now = end.timestamp() - 13 * 86400
    assert f"tls: the server's certificate expires on {end:%Y-%m-%d %H:%M} UTC and has not been renewed" in told()[0]
    assert told() == [], "once"
    now += 86400
    assert len(told()) == 1, "and every day"
    now = end.timestamp()
    assert f"expired on {end:%Y-%m-%d %H:%M} UTC" in told()[0], "at once"
    assert told() == []
    renewed = authority.issue_cert("127.0.0.1", not_before=end - timedelta(days=20), not_after=end + timedelta(days=70))
    renewed.cert_chain_pems[0].write_to_path(files["tls_certificate"])
    renewed.private_key_pem.write_to_path(files["tls_key"])
    now += 86400
    assert told() == []
    assert app.state.certificate().not_after == (end + timedelta(days=70)).timestamp()


def test_refusals_before_the_app_have_the_header_too(server, trust) -> None:
    with trust.wrap_socket(socket.create_connection(("127.0.0.1", server.port)), server_hostname="127.0.0.1") as secure:
        secure.sendall(b"nonsense\r\n\r\n")
        assert b"Strict-Transport-Security: max-age=31536000" in secure.recv(65536)


def test_a_client_that_does_not_trust_the_authority_hangs_up(server) -> None:
    with pytest.raises(httpx.ConnectError, match="CERTIFICATE_VERIFY_FAILED"):
        httpx.get(server.url + "/livez")


def handshake(server: ServerHandle, trust: ssl.SSLContext, version: ssl.TLSVersion) -> str | None:
    trust.minimum_version = ssl.TLSVersion.TLSv1
    trust.set_ciphers("ALL:@SECLEVEL=0")  # or this side would refuse the old versions itself
    trust.maximum_version = version
    with trust.wrap_socket(socket.create_connection(("127.0.0.1", server.port)), server_hostname="127.0.0.1") as secure:
        return secure.version()


@pytest.mark.filterwarnings("ignore:ssl.TLSVersion:DeprecationWarning")
def test_tls_before_1_2_is_refused(server, trust) -> None:
    assert handshake(server, trust, ssl.TLSVersion.TLSv1_3) == "TLSv1.3"
    assert handshake(server, trust, ssl.TLSVersion.TLSv1_2) == "TLSv1.2"
    assert server._server.config.ssl.minimum_version == ssl.TLSVersion.TLSv1_2
    for old in (ssl.TLSVersion.TLSv1_1, ssl.TLSVersion.TLSv1):
        with pytest.raises((ssl.SSLError, ConnectionError), match=r"PROTOCOL_VERSION|EOF|reset"):
            handshake(server, trust, old)


def test_plain_http_gets_no_answer_and_the_server_lives(server, trust, caplog) -> None:
    with pytest.raises(httpx.HTTPError):
        httpx.get(server.url.replace("https", "http") + "/livez")
    assert httpx.get(server.url + "/livez", verify=trust).status_code == 200
    assert [record for record in caplog.records if record.levelno > logging.INFO] == []


def test_one_without_the_other_is_an_error(tmp_path: Path) -> None:
    for given, missing in (("tls_certificate", "tls_key"), ("tls_key", "tls_certificate")):
        path = tmp_path / "s.toml"
        path.write_text(f'[server]\n{given} = "x.pem"\n')
        with pytest.raises(ConfigError) as error:
            load(path)
        assert str(error.value) == (
            f'server.{missing} = "": is needed with server.{given} = "x.pem"; set both or neither'
        )


def test_without_a_certificate_there_is_no_tls() -> None:
    assert tls_context(Server()) is None


def test_files_that_cannot_be_used_are_named_with_the_fix(authority, files, tmp_path: Path) -> None:
    empty, other, locked = tmp_path / "empty.pem", tmp_path / "other.key", tmp_path / "locked.key"
    empty.write_text("")
    authority.issue_cert("127.0.0.1").private_key_pem.write_to_path(other)
    key = serialization.load_pem_private_key(Path(files["tls_key"]).read_bytes(), None)
    encryption = serialization.BestAvailableEncryption(b"password")
    form = serialization.PrivateFormat.PKCS8
    locked.write_bytes(key.private_bytes(serialization.Encoding.PEM, form, encryption))
    broken = tmp_path / "broken.pem"
    broken.write_text("-----BEGIN CERTIFICATE-----\nbm8=\n-----END CERTIFICATE-----\n")
    for changed, says in (
        ({"tls_certificate": "nope.pem"}, 'server.tls_certificate = "nope.pem": no such file; give the PEM file with'),
        ({"tls_key": "nope.key"}, 'server.tls_key = "nope.key": no such file'),
        ({"tls_certificate": str(tmp_path)}, "cannot be read: Is a directory"),
        ({"tls_certificate": str(empty)}, f'server.tls_certificate = "{empty}": holds no certificate in PEM'),
        ({"tls_key": files["tls_certificate"]}, "holds no private key in PEM"),
        ({"tls_key": str(other)}, f'server.tls_key = "{other}": does not belong to server.tls_certificate'),
        ({"tls_key": str(locked)}, "the key without a password (openssl pkey"),
        ({"tls_certificate": str(broken)}, "both must be PEM"),
    ):
        with pytest.raises(ConfigError) as error:
            tls_context(Server(**{**files, **changed}))
        assert says in str(error.value)
