"""Every kind of receiver against a real server: what arrives, what an error says, and what it never says."""

from __future__ import annotations

import hashlib
import hmac
import socket
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest

from streameval.outlets.notify import receivers
from streameval.outlets.notify.message import Notice, message_for_a_test, message_of
from streameval.outlets.notify.receivers import DeliveryError, Receiver, make_receiver
from streameval.settings import toml
from streameval.settings.tree import ConfigError
from tests.outlets.receiving import Inbox, Post, http_receiver, mail_receiver

BODY = {
    "kind": "worse", "model": "ads <1>", "at": 1_714_564_800_000, "text": "v2 is worse than v1: AUC -0.012 & more",
    "incident": "c0ffee", "comparison": "2-paired", "candidate": "v2", "baseline": "v1",
}  # fmt: skip
MESSAGE = message_of("key-1", BODY, "https://monitor.example/ads/")
LINK = "https://monitor.example/ads/#/comparisons?id=2-paired"


@pytest.fixture
def inbox() -> Iterator[Inbox]:
    with http_receiver() as inbox:
        yield inbox


def receiver(tmp_path: Path, kind: str, **keys: Any) -> Receiver:
    table = {"kind": kind, **keys}
    for name in ("url", "key", "secret", "password"):
        if name in table and not (kind == "pagerduty" and name == "url"):
            (tmp_path / name).write_text(str(table.pop(name)) + "\n")
            table[f"{name}_file"] = str(tmp_path / name)
    return make_receiver(toml.validate({"notify": [table]}).notify[0])


def test_a_webhook_gets_the_change_signed_and_with_its_key(inbox: Inbox, tmp_path: Path) -> None:
    receiver(tmp_path, "webhook", url=inbox.url, secret="hush-hush").send(MESSAGE)
    [post] = inbox.taken
    assert post.body == {
        **{name: value for name, value in BODY.items() if name != "at"},
        "id": "key-1", "title": "Worse: ads <1> v2", "at": "2024-05-01T12:00:00.000Z", "link": LINK,
    }  # fmt: skip
    assert post.headers["Idempotency-Key"] == "key-1"
    expected = hmac.new(b"hush-hush", post.raw, hashlib.sha256).hexdigest()
    assert post.headers["X-Streameval-Signature"] == f"sha256={expected}"


def test_slack_gets_text_in_which_names_are_no_markup(inbox: Inbox, tmp_path: Path) -> None:
    receiver(tmp_path, "slack", url=inbox.url).send(MESSAGE)
    [post] = inbox.taken
    assert post.body == {
        "text": "*Worse: ads &lt;1&gt; v2*\nv2 is worse than v1: AUC -0.012 &amp; more\n<" + LINK + "|Evidence>"
    }


def test_pagerduty_opens_an_incident_and_what_recovers_resolves_the_same(inbox: Inbox, tmp_path: Path) -> None:
    pager = receiver(tmp_path, "pagerduty", key="r0uting-key", url=inbox.url)
    pager.send(MESSAGE)
    pager.send(message_of("key-2", {**BODY, "kind": "recovered"}, ""))
    first, second = (post.body for post in inbox.taken)
    assert first["routing_key"] == "r0uting-key"
    assert (first["event_action"], second["event_action"]) == ("trigger", "resolve")
    assert first["dedup_key"] == second["dedup_key"]
    assert first["payload"]["severity"] == "error"
    assert first["payload"]["summary"].startswith("Worse: ads <1> v2: v2 is worse")
    assert first["links"] == [{"href": LINK, "text": "Evidence"}]
    assert "links" not in second


def test_a_mail_arrives_with_an_id_that_a_repetition_has_too(tmp_path: Path) -> None:
    with mail_receiver() as box:
        mailer = receiver(
            tmp_path, "email", host="127.0.0.1", port=box.port, security="none", sender="m@example.com",
            to=["a@example.com", "b@example.com"],
        )  # fmt: skip
        mailer.send(MESSAGE)
        mailer.send(MESSAGE)
    assert box.recipients[0] == ["a@example.com", "b@example.com"]
    assert box.mails[0]["Subject"] == "[streameval] Worse: ads <1> v2"
    assert LINK in str(box.mails[0].get_payload())
    assert box.mails[0]["Message-ID"] == box.mails[1]["Message-ID"]


def test_a_name_in_an_event_cannot_forge_a_header(tmp_path: Path) -> None:
    forged = message_of("k", {**BODY, "model": "x\r\nBcc: all@example.com"}, "")
    with mail_receiver() as box:
        receiver(
            tmp_path, "email", host="127.0.0.1", port=box.port, security="none", sender="m@example.com", to=["a@b"]
        ).send(forged)
    assert box.mails[0]["Bcc"] is None


@pytest.mark.parametrize(
    ("status", "headers", "refused", "wait"),
    [
        (400, {}, True, 0.0), (413, {}, True, 0.0), (401, {}, False, 0.0), (404, {}, False, 0.0), (500, {}, False, 0.0),
        (429, {"Retry-After": "7"}, False, 7.0), (503, {"Retry-After": "99999"}, False, 300.0),
        (302, {"Location": "http://127.0.0.1:1/elsewhere"}, False, 0.0),
    ],
)  # fmt: skip
def test_an_error_says_whether_the_message_or_the_receiver_is_at_fault_and_no_secret(
    inbox: Inbox, tmp_path: Path, status: int, headers: dict[str, str], refused: bool, wait: float
) -> None:
    inbox.answer = lambda post: (status, headers)
    with pytest.raises(DeliveryError) as raised:
        receiver(tmp_path, "slack", url=inbox.url).send(MESSAGE)
    assert (raised.value.refused, raised.value.wait) == (refused, wait)
    assert str(raised.value) == f"127.0.0.1: {status}"


def test_nobody_there_is_an_error_without_the_secret_of_the_address(tmp_path: Path) -> None:
    with pytest.raises(DeliveryError, match=r"127\.0\.0\.1") as raised:
        receiver(tmp_path, "webhook", url="http://127.0.0.1:9/T000/B000/hushhushhush").send(MESSAGE)
    assert "hush" not in str(raised.value)


@pytest.mark.parametrize("text", ["", "not an address hush", "ftp://hush", "https://hush\u00e9/x"])
def test_an_address_that_is_none_is_an_error_that_does_not_show_it(tmp_path: Path, text: str) -> None:
    with pytest.raises(ConfigError) as raised:
        receiver(tmp_path, "webhook", url=text).check()
    assert "hush" not in str(raised.value)


def test_a_renewed_secret_is_read_again(inbox: Inbox, tmp_path: Path) -> None:
    hook = receiver(tmp_path, "webhook", url="http://127.0.0.1:9/old")
    with pytest.raises(DeliveryError):
        hook.send(MESSAGE)
    (tmp_path / "url").write_text(inbox.url)
    hook.send(MESSAGE)
    assert inbox.ids == ["key-1"]


def test_a_secret_of_the_environment(inbox: Inbox, monkeypatch: pytest.MonkeyPatch) -> None:
    hook = make_receiver(toml.validate({"notify": [{"kind": "webhook", "url_env": "MY_HOOK"}]}).notify[0])
    with pytest.raises(ConfigError, match="MY_HOOK"):
        hook.check()
    monkeypatch.setenv("MY_HOOK", inbox.url)
    hook.send(message_for_a_test(0.0, ""))
    assert inbox.taken[0].body["kind"] == "test"


def test_a_message_without_an_external_address_has_no_link() -> None:
    assert message_of("k", BODY, "").as_json()["link"] is None
    assert isinstance(message_of("k", BODY, ""), Notice)


@pytest.mark.parametrize("model", ["模型 🚀", "line\r\nX-Forged: yes", "100%", "a" * 256])
@pytest.mark.parametrize("kind", ["webhook", "slack", "pagerduty"])
def test_a_silent_model_of_any_name_is_told_of(inbox: Inbox, tmp_path: Path, kind: str, model: str) -> None:
    """Its name is in the id. A header has no place for most characters: the message failed, and all later ones with it."""
    said = {"kind": "no_data", "model": model, "at": 1_714_564_800_000, "text": f"{model}: no new labels for 1h"}
    message = message_of(f"no_data|3600000|{model}|1", {**said, "incident": "no_data"}, "")
    receiver(tmp_path, kind, url=inbox.url, **({"key": "k"} if kind == "pagerduty" else {})).send(message)
    [post] = inbox.taken
    assert "X-Forged" not in post.headers
    if kind == "webhook":
        assert unquote(post.headers["Idempotency-Key"]) == message.id == post.body["id"]
    if kind == "pagerduty":
        assert len(post.body["dedup_key"]) <= 255, "PagerDuty rejects longer ones"


def test_models_of_long_names_have_incidents_of_their_own(inbox: Inbox, tmp_path: Path) -> None:
    pager = receiver(tmp_path, "pagerduty", key="k", url=inbox.url)
    for model in ("m" * 255 + "1", "m" * 255 + "2"):
        for kind in ("no_data", "recovered"):
            pager.send(message_of("id", {**BODY, "model": model, "kind": kind, "incident": "no_data"}, ""))
    first, resolves, second, _ = (post.body["dedup_key"] for post in inbox.taken)
    assert first == resolves != second


def test_what_was_accepted_is_not_sent_again_because_the_answer_never_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(receivers, "SEND_SECONDS", 1.0)
    with socket.create_server(("127.0.0.1", 0)) as server:
        held = []

        def answer() -> None:
            connection, _ = server.accept()
            connection.recv(1 << 16)
            connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n")
            held.append(connection)

        thread = threading.Thread(target=answer)
        thread.start()
        receiver(tmp_path, "webhook", url=f"http://127.0.0.1:{server.getsockname()[1]}/").send(MESSAGE)
        thread.join()
        held[0].close()


def _always(answer: tuple[int, dict[str, str]], post: Post) -> tuple[int, dict[str, str]]:
    return answer


def test_a_receiver_may_say_until_when_it_wants_to_be_left_alone(inbox: Inbox, tmp_path: Path) -> None:
    until = format_datetime(datetime.now(UTC) + timedelta(seconds=100), usegmt=True)
    for said, low, high in ((until, 90.0, 100.0), ("Wed, 21 Oct 2015 07:28:00 GMT", 0.0, 0.0), ("soon", 0.0, 0.0)):
        inbox.answer = partial(_always, (429, {"Retry-After": said}))
        with pytest.raises(DeliveryError) as raised:
            receiver(tmp_path, "webhook", url=inbox.url).send(MESSAGE)
        assert low <= raised.value.wait <= high
