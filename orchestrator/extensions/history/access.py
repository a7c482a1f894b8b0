"""Who may read what a command serves: this computer alone, or whoever brings the token."""

from __future__ import annotations

import secrets
import socket
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

from orchestrator.app.options import Texts, opt
from orchestrator.errors import UsageError
from orchestrator.plugins import Settings

if TYPE_CHECKING:
    from orchestrator.extensions.history.web import Access

#: A token that is shorter can be guessed.
_LEAST_TOKEN: Final = 16
_MADE_UP: Final = "'openssl rand -hex 16' makes one up"


@dataclass(frozen=True, kw_only=True)
class Listening:
    """Where a command listens, and who may read what it serves there."""

    host: Annotated[
        str,
        opt("--host", "Address to listen on. Any other than this computer's own requires a token."),
    ] = "127.0.0.1"
    port: Annotated[int, opt("--port", "Port. 0 takes a free one.", min=0, max=65535)] = 8080
    token: Annotated[
        str,
        opt("--token", "Token for reading and for actions ($BENCHFARM_TOKEN). 'new' creates one."),
    ] = ""
    token_file: Annotated[Path | None, opt("--token-file", "File that holds the token.")] = None
    allow_host: Annotated[
        Texts, opt("--allow-host", "Another name of this server. Repeat for several.")
    ] = ()
    anyone_reads: Annotated[
        bool, opt("--anyone-reads", "Require the token for actions only, not for reading.")
    ] = False


def token_of(settings: Settings, listening: Listening) -> str:
    """Return the token of the option, the file or the environment, in this order; empty for none.

    Raises:
        UsageError: the file can't be read or is empty, or the token is too short to be one.
    """
    token = listening.token
    if listening.token_file is not None:
        if token:
            raise UsageError(
                "--token and --token-file are two tokens", hint="leave one of them out"
            )
        try:
            token = listening.token_file.read_text("utf-8").strip()
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or "it isn't text"
            raise UsageError(f"--token-file {listening.token_file}: {reason}") from error
        if not token:
            raise UsageError(f"--token-file {listening.token_file} is empty")
    token = token or settings.token
    if token == "new":  # noqa: S105 - a word, no secret
        return secrets.token_urlsafe(24)
    if token and (len(token) < _LEAST_TOKEN or not token.isascii() or not token.isprintable()):
        raise UsageError(
            f"a token must have {_LEAST_TOKEN} letters or more, and nothing but ASCII",
            hint=_MADE_UP,
        )
    return token


def access_of(settings: Settings, listening: Listening) -> Access:
    """Return who may ask; raises UsageError when there is no token and one is needed."""
    from orchestrator.extensions.history import web

    token = token_of(settings, listening)
    is_local = web.is_loopback(listening.host)
    if not is_local and not token:
        raise UsageError(
            f"{listening.host} can be reached by other computers: that needs a token",
            hint=f"--token-file FILE or $BENCHFARM_TOKEN; {_MADE_UP}; on 127.0.0.1 only this computer can connect",
        )
    if listening.anyone_reads and not token:
        raise UsageError(
            "--anyone-reads is about a server with a token",
            hint="give --token-file, or leave it out",
        )
    return web.Access(
        hosts=(
            *listening.allow_host,
            *(() if is_local else (listening.host, socket.gethostname())),
        ),
        any_address=not is_local,
        token=token,
        anyone_reads=listening.anyone_reads,
    )


def address_of(listening: socket.socket) -> str:
    """Return ``http://host:port`` of a listening socket."""
    address = listening.getsockname()
    name = f"[{address[0]}]" if ":" in address[0] else address[0]
    return f"http://{name}:{address[1]}"
