"""Messages reach their server as they should, and one that doesn't answer holds nobody up."""

import email
import email.policy
import socket
import socketserver
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import ClassVar

import pytest

from orchestrator.errors import UsageError
from orchestrator.extensions.history.notifying import receiver_of, send
from orchestrator.plugins import Message, Receiver, Settings

TEXT = "2 changes, in 1 series\n\n..a line that begins with a dot: Größe\n"
MESSAGE = Message(content={"groups": []}, text=TEXT)

Server = Callable[[type[socketserver.BaseRequestHandler]], str]


@pytest.fixture
def server() -> Iterator[Server]:
    """Start a server for a handler; returns ``HOST:PORT``."""
    with_threads: list[socketserver.ThreadingTCPServer] = []

    def start(handler: type[socketserver.BaseRequestHandler]) -> str:
        found = socketserver.ThreadingTCPServer(("127.0.0.1", 0), handler)
        found.daemon_threads = True
        threading.Thread(target=found.serve_forever, daemon=True).start()
        with_threads.append(found)
        return f"127.0.0.1:{found.server_address[1]}"

    yield start
    for item in with_threads:
        item.shutdown()
        item.socket.close()


class MailServer(socketserver.StreamRequestHandler):
    """As much of RFC 5321 as takes a mail; keeps what came, refuses some addresses."""

    kept: ClassVar[list[tuple[str, list[str], bytes]]]

    def handle(self) -> None:
        sender, receivers = "", []
        self.answer("220 here")
        while line := self.rfile.readline().decode("ascii").strip():
            match line.upper().partition(" ")[0]:
                case "EHLO":
                    self.answer("250-here\r\n250 8BITMIME")
                case "MAIL":
                    sender = line
                    self.answer("250 ok")
                case "RCPT" if "nobody" in line:
                    self.answer("550 nobody")
                case "RCPT":
                    receivers.append(line.partition("<")[2].partition(">")[0])
                    self.answer("250 ok")
                case "DATA":
                    self.answer("354 go")
                    content = b""
                    while not content.endswith(b"\r\n.\r\n"):
                        content += self.rfile.readline()
                    self.kept.append((sender, receivers, content[:-3].replace(b"\r\n..", b"\r\n.")))
                    self.answer("250 taken")
                case "QUIT":
                    self.answer("221 bye")
                    return
                case _:
                    self.answer("502 unknown")

    def answer(self, text: str) -> None:
        self.wfile.write(f"{text}\r\n".encode("ascii"))


def to(address: str, mail_server: str) -> Receiver:
    settings = Settings.from_environment({"BENCHFARM_SMTP": mail_server}, home=Path("/nowhere"))
    return receiver_of(address, "--notify", settings)


def test_a_mail_has_the_report_and_its_first_line_as_subject(server: Server) -> None:
    class Here(MailServer):
        kept: ClassVar = []

    place = f"smtp://{server(Here)}"
    assert send(to("mailto:lab@here.example,a.b@here.example", place), MESSAGE) == ""
    ((sender, receivers, content),) = Here.kept
    mail = email.message_from_bytes(content, policy=email.policy.default)
    assert "benchfarm@" in sender
    assert receivers == ["lab@here.example", "a.b@here.example"]
    assert mail["Subject"] == "benchfarm: 2 changes, in 1 series"
    assert mail.get_content().replace("\r\n", "\n") == TEXT
    refused = send(to("mailto:nobody@here.example", place), MESSAGE)
    assert (
        refused
        == "the message to nobody@here.example wasn't delivered: the mail server refused the address"
    )
    # No TLS, no password.
    secret = f"smtp://user:secret@{place.removeprefix('smtp://')}"
    told = send(to("mailto:lab@here.example", secret), MESSAGE, sleep=lambda s: None)
    assert "can't be used" in told
    assert "secret" not in told
    assert len(Here.kept) == 1


def test_a_server_that_does_not_answer_is_abandoned(server: Server) -> None:
    tried = []

    class Silent(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            tried.append(self)
            while self.request.recv(65536):
                pass

    place = server(Silent)
    for receiver in (
        to(f"http://{place}/hooks/secret", ""),
        to("mailto:lab@here.example", f"smtp://{place}"),
    ):
        told = send(receiver, MESSAGE, answer_s=0.2, sleep=lambda seconds: None)
        assert f"the message to {receiver.name} wasn't delivered: " in told
        assert "secret" not in told
    assert len(tried) == 6


def test_where_nobody_listens_that_is_said() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    receiver = to("mailto:lab@here.example", f"smtp://127.0.0.1:{port}")
    assert "the mail server 127.0.0.1 can't be used (ConnectionRefusedError)" in send(
        receiver, MESSAGE, sleep=lambda s: None
    )


@pytest.mark.parametrize(
    ("text", "server_text", "said"),
    [
        ("mailto:", "smtp://h", "no address is named"),
        ("mailto:lab", "smtp://h", "'lab' is no mail address"),
        ("mailto:a@b.c%0aBcc:%20d@e.f", "smtp://h", "no mail address"),
        ("mailto:a@b.c", "http://user:secret@h", r"\$BENCHFARM_SMTP isn't"),
        ("ftp://h", "smtp://h", "it is no address of http, https, mailto"),
    ],
)
def test_what_is_no_address_is_refused_before_anything_is_read(
    text: str, server_text: str, said: str
) -> None:
    with pytest.raises(UsageError, match=said) as raised:
        to(text, server_text)
    assert "secret" not in str(raised.value)
