"""A message to a webhook (a chat's, a ticket system's, one's own) or by mail."""

from __future__ import annotations

import json
import smtplib
import socket
import ssl
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from email.headerregistry import Address
from email.message import EmailMessage
from email.utils import formatdate, make_msgid
from pathlib import Path
from typing import Final, Protocol
from urllib.parse import SplitResult, unquote, urlsplit

from orchestrator.errors import UsageError
from orchestrator.report.escapes import one_line

_TRIES: Final = 3
_PAUSE_S: Final = 2.0
#: For a whole try: connection, request and answer.
_ANSWER_S: Final = 10.0
FORMS: Final = ("json", "text")
#: A subject longer than this is cut in every list of mails.
_SUBJECT_MAX: Final = 120


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """What is sent."""

    #: Plain values; a webhook gets them as ``report`` in one JSON object with ``text`` when ``form`` is ``json``.
    content: object
    #: For people; its first line is a mail's subject.
    text: str
    #: One of FORMS.
    form: str = "json"


class Receiver(Protocol):
    """Where a message goes."""

    @property
    def name(self) -> str:
        """What people are told; no secret."""
        ...

    def deliver(self, message: Message) -> tuple[str, bool]:
        """Try once; return why it wasn't taken, empty when it was, and whether another try may help."""
        ...


def send(
    receiver: Receiver, message: Message, *, answer_s: float = _ANSWER_S, sleep: Callable[[float], None] = time.sleep
) -> str:
    """Send a message, up to three times; return why it wasn't delivered, empty when it was.

    Args:
        receiver: where it goes.
        message: what goes there.
        answer_s: the longest time for one try, seconds. A server that answers a byte at a time can't hold us longer.
        sleep: waits between two tries, seconds.
    """
    reason, again = "", True
    for number in range(_TRIES):
        if number:
            sleep(_PAUSE_S * number)
        found: list[tuple[str, bool]] = []
        # What hangs ends with the process.
        trying = threading.Thread(target=lambda found=found: found.append(receiver.deliver(message)), daemon=True)
        trying.start()
        trying.join(answer_s)
        reason, again = found[0] if found else (f"no answer within {answer_s:g} s", True)
        if not again:
            break
    return f"the message to {receiver.name} wasn't delivered: {reason}" if reason else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Webhook:
    """A webhook. Its address is a secret: only its host is ever shown."""

    address: str

    @property
    def name(self) -> str:
        """See Receiver.name."""
        return urlsplit(self.address).netloc.rpartition("@")[2]

    def deliver(self, message: Message) -> tuple[str, bool]:
        """See Receiver.deliver."""
        import requests

        is_json = message.form == "json"
        whole = {"text": message.text, "report": message.content}
        body = json.dumps(whole, allow_nan=False) if is_json else message.text
        media_type = "application/json" if is_json else "text/plain; charset=utf-8"
        try:
            # A webhook that has moved is a fault: what was meant for one address goes to no other.
            answer = requests.post(
                self.address,
                data=body.encode(),
                headers={"Content-Type": media_type, "User-Agent": "benchfarm"},
                timeout=_ANSWER_S,
                allow_redirects=False,
                stream=True,
            )
        except requests.exceptions.RequestException as error:
            # Its text names the whole address.
            return f"it can't be reached ({type(error).__name__})", True
        with answer:
            if 200 <= answer.status_code < 300:
                return "", False
            return f"it answered {answer.status_code}", answer.status_code >= 500 or answer.status_code == 429


@dataclass(frozen=True, slots=True, kw_only=True)
class Mail:
    """A mail to one address or several, by a mail server."""

    to: tuple[str, ...]
    #: ``smtp://[USER:PASSWORD@]HOST[:PORT]``, or ``smtps://`` for TLS from the first byte.
    server: SplitResult

    @property
    def name(self) -> str:
        """See Receiver.name."""
        return ", ".join(self.to)

    def deliver(self, message: Message) -> tuple[str, bool]:
        """See Receiver.deliver."""
        mail = EmailMessage()
        mail["Subject"] = f"benchfarm: {one_line(message.text.partition(chr(10))[0])}"[:_SUBJECT_MAX]
        mail["From"] = Address("benchfarm", "benchfarm", socket.getfqdn())
        mail["To"] = ", ".join(self.to)
        mail["Date"], mail["Message-ID"] = formatdate(localtime=True), make_msgid("benchfarm")
        mail.set_content(message.text)
        try:
            with self._connected() as server:
                server.send_message(mail)
        except smtplib.SMTPResponseException as error:
            return f"the mail server answered {error.smtp_code}", 400 <= error.smtp_code < 500
        except smtplib.SMTPRecipientsRefused:
            return "the mail server refused the address", False
        except (smtplib.SMTPException, OSError) as error:
            return f"the mail server {self.server.hostname} can't be used ({type(error).__name__})", True
        return "", False

    def _connected(self) -> smtplib.SMTP:
        host, is_tls = self.server.hostname or "localhost", self.server.scheme == "smtps"
        context = ssl.create_default_context()
        server: smtplib.SMTP
        if is_tls:
            server = smtplib.SMTP_SSL(host, self.server.port or 465, timeout=_ANSWER_S, context=context)
        else:
            server = smtplib.SMTP(host, self.server.port or 25, timeout=_ANSWER_S)
            server.ehlo()
            if server.has_extn("starttls"):
                server.starttls(context=context)
                is_tls = True
        if self.server.username:
            if not is_tls:
                server.close()
                raise smtplib.SMTPNotSupportedError("a password is sent over TLS only")
            server.login(unquote(self.server.username), unquote(self.server.password or ""))
        return server


def receiver_of(text: str, option: str, *, mail_server: str) -> Receiver:
    """Return where an option's messages go; raises UsageError.

    Args:
        text: a webhook's URL, ``mailto:ADDRESS[,ADDRESS]``, or ``@FILE`` with one of them in it.
        option: what it is called in errors.
        mail_server: ``smtp://...`` or ``smtps://...``.
    """
    address = text
    if text.startswith("@"):
        try:
            address = Path(text[1:]).read_text("utf-8").strip()
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or "it isn't text"
            raise UsageError(f"{option} {text}: the file can't be read: {reason}") from error
    what = f"{text}: it" if text.startswith("@") else "it"
    try:
        parts = urlsplit(address)
        is_web = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
        if parts.scheme == "mailto":
            return Mail(to=_addresses(unquote(parts.path)), server=_mail_server(mail_server))
    except ValueError as error:
        if address.startswith("mailto:"):
            raise UsageError(f"{option} {what} can't be used: {error}", hint="mailto:lab@example.org") from error
        is_web = False
    if not is_web:
        raise UsageError(
            f"{option} {what} is neither the URL of a webhook nor an address for mail",
            hint="https://..., mailto:lab@example.org, or @FILE with one of them in that file",
        )
    return Webhook(address=address)


def _addresses(text: str) -> tuple[str, ...]:
    """Return mail addresses; raises ValueError for what is none."""
    from email.errors import HeaderParseError

    found = tuple(part.strip() for part in text.split(",") if part.strip())
    for address in found:
        try:
            is_address = bool(Address(addr_spec=address).domain)
        except (HeaderParseError, IndexError, ValueError):
            is_address = False
        if not is_address or not address.isprintable():
            raise ValueError(f"{one_line(address)!r} is no mail address")
    if not found:
        raise ValueError("no address is named")
    return found


def _mail_server(text: str) -> SplitResult:
    """Return the mail server of a setting; raises ValueError, without the text, which may hold a password."""
    parts = urlsplit(text)
    if parts.scheme not in {"smtp", "smtps"} or not parts.hostname or parts.port == 0:
        raise ValueError("$BENCHFARM_SMTP isn't smtp://HOST:PORT or smtps://HOST:PORT")
    return parts
