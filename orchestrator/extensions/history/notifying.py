"""A message to a webhook (a chat's, a ticket system's, one's own) or by mail."""

from __future__ import annotations

import json
import smtplib
import socket
import ssl
import time
from collections.abc import Callable
from email.headerregistry import Address
from email.message import EmailMessage
from email.utils import formatdate, make_msgid
from functools import partial
from pathlib import Path
from typing import Final
from urllib.parse import SplitResult, unquote, urlsplit

from orchestrator.errors import UsageError
from orchestrator.plugins import Message, Notifier, Receiver, Settings, load, plugins
from orchestrator.tables.escapes import one_line

_TRIES: Final = 3
_PAUSE_S: Final = 2.0
#: How long a connection or an answer is waited for.
_ANSWER_S: Final = 10.0
FORMS: Final = ("json", "text")
#: A subject longer than this is cut in every list of mails.
_SUBJECT_MAX: Final = 120


def send(
    receiver: Receiver,
    message: Message,
    *,
    answer_s: float = _ANSWER_S,
    sleep: Callable[[float], None] = time.sleep,
) -> str:
    """Send a message in up to three tries; return why it wasn't delivered, empty when it was.

    ``answer_s`` is how long an answer is waited for; ``sleep`` waits between two tries, seconds.
    """
    reason, again = "", True
    for number in range(_TRIES):
        if number:
            sleep(_PAUSE_S * number)
        reason, again = receiver.deliver(message, answer_s)
        if not again:
            break
    return f"the message to {receiver.name} wasn't delivered: {reason}" if reason else ""


def receiver_of(text: str, option: str, settings: Settings) -> Receiver:
    """Return where an option's messages go; raises UsageError.

    ``text`` is an address, or ``@FILE`` with one in it; its scheme says which notifier's it is.
    """
    address = text
    if text.startswith("@"):
        try:
            address = Path(text[1:]).read_text("utf-8").strip()
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or "it isn't text"
            raise UsageError(f"{option} {text}: the file can't be read: {reason}") from error
    what = f"{text}: it" if text.startswith("@") else "it"
    scheme, known = address.partition(":")[0].lower(), plugins("notifiers")
    try:
        if scheme not in known:
            raise ValueError(f"it is no address of {', '.join(known)}")
        return load(known[scheme], Notifier).receiver(address, settings)
    except ValueError as error:
        hint = "https://..., mailto:lab@example.org, or @FILE with one of them in that file"
        raise UsageError(f"{option} {what} can't be used: {error}", hint=hint) from error


def _webhook(address: str, settings: Settings) -> Receiver:
    parts = urlsplit(address)
    if not parts.hostname or parts.port == 0:
        raise ValueError("it isn't the URL of a webhook")
    # The address of a webhook is a secret: only its host is shown.
    return Receiver(name=parts.netloc.rpartition("@")[2], deliver=partial(_post, address))


def _mailbox(address: str, settings: Settings) -> Receiver:
    to = _addresses(unquote(urlsplit(address).path))
    return Receiver(name=to, deliver=partial(_mail, to, _mail_server(settings.smtp)))


WEBHOOK = Notifier(receiver=_webhook)
MAIL = Notifier(receiver=_mailbox)


def _post(address: str, message: Message, answer_s: float) -> tuple[str, bool]:
    import requests

    body, media_type = message.text, "text/plain; charset=utf-8"
    if message.form == "json":
        body = json.dumps({"text": message.text, "report": message.content}, allow_nan=False)
        media_type = "application/json"
    headers = {"Content-Type": media_type, "User-Agent": "benchfarm"}
    try:
        # A webhook that has moved is a fault: what was meant for one address goes to no other.
        answer = requests.post(
            address,
            data=body.encode(),
            headers=headers,
            timeout=answer_s,
            allow_redirects=False,
            stream=True,
        )
    except requests.exceptions.RequestException as error:
        # Its text names the whole address.
        return f"it can't be reached ({type(error).__name__})", True
    with answer:
        if 200 <= answer.status_code < 300:
            return "", False
        return (
            f"it answered {answer.status_code}",
            answer.status_code >= 500 or answer.status_code == 429,
        )


def _mail(to: str, server: SplitResult, message: Message, answer_s: float) -> tuple[str, bool]:
    mail = EmailMessage()
    mail["Subject"] = f"benchfarm: {one_line(message.text.partition(chr(10))[0])}"[:_SUBJECT_MAX]
    mail["From"] = Address("benchfarm", "benchfarm", socket.getfqdn())
    mail["To"] = to
    mail["Date"], mail["Message-ID"] = formatdate(localtime=True), make_msgid("benchfarm")
    mail.set_content(message.text)
    try:
        with _connected(server, answer_s) as connection:
            connection.send_message(mail)
    except smtplib.SMTPResponseException as error:
        return f"the mail server answered {error.smtp_code}", 400 <= error.smtp_code < 500
    except smtplib.SMTPRecipientsRefused:
        return "the mail server refused the address", False
    except (smtplib.SMTPException, OSError) as error:
        return f"the mail server {server.hostname} can't be used ({type(error).__name__})", True
    return "", False


def _connected(place: SplitResult, answer_s: float) -> smtplib.SMTP:
    host, is_tls = place.hostname or "localhost", place.scheme == "smtps"
    context = ssl.create_default_context()
    server: smtplib.SMTP
    if is_tls:
        server = smtplib.SMTP_SSL(host, place.port or 465, timeout=answer_s, context=context)
    else:
        server = smtplib.SMTP(host, place.port or 25, timeout=answer_s)
        server.ehlo()
        if server.has_extn("starttls"):
            server.starttls(context=context)
            is_tls = True
    if place.username:
        if not is_tls:
            server.close()
            raise smtplib.SMTPNotSupportedError("a password is sent over TLS only")
        server.login(unquote(place.username), unquote(place.password or ""))
    return server


def _addresses(text: str) -> str:
    """Return mail addresses as a mail's head lists them; raises ValueError for what is none."""
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
    return ", ".join(found)


def _mail_server(text: str) -> SplitResult:
    """Return the mail server of a setting.

    Raises ValueError, without the text, which may hold a password.
    """
    parts = urlsplit(text)
    if parts.scheme not in {"smtp", "smtps"} or not parts.hostname or parts.port == 0:
        raise ValueError("$BENCHFARM_SMTP isn't smtp://HOST:PORT or smtps://HOST:PORT")
    return parts
