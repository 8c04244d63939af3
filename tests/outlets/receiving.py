"""Receivers for tests: a real HTTP server and a real mail server on this machine, that can be made to fail."""

from __future__ import annotations

import json
import socketserver
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from email import message_from_bytes
from email.message import Message
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass
class Post:
    """One request."""

    path: str
    headers: dict[str, str]
    raw: bytes

    @property
    def body(self) -> Any:
        """As JSON."""
        return json.loads(self.raw)


@dataclass
class Inbox:
    """What an HTTP receiver has taken, and what it answers: `answer` is called with every request."""

    url: str = ""
    taken: list[Post] = field(default_factory=list)
    refused: int = 0
    answer: Callable[[Post], tuple[int, dict[str, str]]] = lambda post: (200, {})

    @property
    def ids(self) -> list[str]:
        """Of what was taken, in order."""
        return [post.body["id"] for post in self.taken]


@contextmanager
def http_receiver(port: int = 0) -> Iterator[Inbox]:
    """A server that takes POSTs."""
    inbox, lock = Inbox(), threading.Lock()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            post = Post(self.path, dict(self.headers), self.rfile.read(int(self.headers["Content-Length"])))
            with lock:
                status, headers = inbox.answer(post)
                if status < 300:
                    inbox.taken.append(post)
                else:
                    inbox.refused += 1
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *args: Any) -> None:
            """Silent."""

    server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
    inbox.url = f"http://127.0.0.1:{server.server_address[1]}/hook/a-secret-in-the-path"
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield inbox
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@dataclass
class Mailbox:
    """What a mail server has taken."""

    port: int = 0
    mails: list[Message] = field(default_factory=list)
    recipients: list[list[str]] = field(default_factory=list)
    greeting: str = "220 ready"


@contextmanager
def mail_receiver() -> Iterator[Mailbox]:
    """A server that speaks as much SMTP as it takes to get a mail."""
    box = Mailbox()

    class Handler(socketserver.StreamRequestHandler):
        def say(self, line: str) -> None:
            self.wfile.write(line.encode() + b"\r\n")

        def handle(self) -> None:
            self.say(box.greeting)
            to: list[str] = []
            while line := self.rfile.readline().decode().strip():
                verb = line.upper().partition(" ")[0]
                if verb == "RCPT":
                    to.append(line.partition("<")[2].partition(">")[0])
                if verb == "DATA":
                    self.say("354 go on")
                    lines = []
                    while (text := self.rfile.readline()) != b".\r\n":
                        lines.append(text[1:] if text.startswith(b"..") else text)
                    box.mails.append(message_from_bytes(b"".join(lines)))
                    box.recipients.append(to)
                self.say("221 bye" if verb == "QUIT" else "250 ok")
                if verb == "QUIT":
                    return

    server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    box.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield box
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
