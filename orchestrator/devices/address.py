"""Where an adb server listens, read from what the user or adb's own environment variables say."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from orchestrator.errors import UsageError

DEFAULT_PORT: Final = 5037


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerAddress:
    """Host and port of an adb server, or the path of its socket file."""

    host: str = "127.0.0.1"
    port: int = DEFAULT_PORT
    #: A socket in the file system (``localfilesystem:``); host and port don't count then.
    path: str = ""
    #: Where it was named, for people.
    named_by: str = field(default="", compare=False)

    @property
    def is_local(self) -> bool:
        """Whether the server is on this computer."""
        return bool(self.path) or self.host in {"127.0.0.1", "localhost", "::1"}

    @property
    def spec(self) -> str:
        """What adb's ``-L`` and ``ADB_SERVER_SOCKET`` take; "tcp:127.0.0.1:N" is refused by 29 and
        36.
        """
        if self.path:
            return f"localfilesystem:{self.path}"
        return f"tcp:{'localhost' if self.host == '127.0.0.1' else self.host}:{self.port}"

    def __str__(self) -> str:
        if self.path:
            return self.spec
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_address(text: str, *, source: str = "the adb server's address") -> ServerAddress:
    """Read ``host:port``, ``host``, ``port``, ``[v6]:port``, ``tcp:...`` or
    ``localfilesystem:/path``.

    Raises UsageError naming ``source``.
    """
    rest = text.strip()
    if rest.startswith("localfilesystem:"):
        path = rest.removeprefix("localfilesystem:")
        if path.startswith("/"):
            return ServerAddress(path=path, named_by=source)
    rest = rest.removeprefix("tcp:")
    if re.fullmatch(r"\d+", rest):
        return ServerAddress(port=_port(rest, text, source), named_by=source)
    found = re.fullmatch(
        r"(?:\[(?P<v6>[0-9a-fA-F:.%\w]+)\]|(?P<host>[^\s:/\[\]]+))(?::(?P<port>\d+))?", rest
    )
    if found is None:
        raise UsageError(
            f"{source} is {text!r}, which isn't host:port, tcp:host:port or localfilesystem:/path"
        )
    host = found["v6"] or found["host"]
    port = _port(found["port"], text, source) if found["port"] else DEFAULT_PORT
    return ServerAddress(
        host="127.0.0.1" if host == "localhost" else host, port=port, named_by=source
    )


def configured_address(setting: str, environ: Mapping[str, str]) -> ServerAddress | None:
    """Return the address that was asked for, None when nobody asked for one (adb's default applies
    then).

    The setting comes first, then ``ADB_SERVER_SOCKET``, then ``ANDROID_ADB_SERVER_ADDRESS`` and
    ``ANDROID_ADB_SERVER_PORT``, in the order in which adb reads them. Raises UsageError.
    """
    if setting.strip():
        return parse_address(setting, source="$BENCHFARM_ADB_SERVER")
    if socket := environ.get("ADB_SERVER_SOCKET", "").strip():
        return parse_address(socket, source="$ADB_SERVER_SOCKET")
    host = environ.get("ANDROID_ADB_SERVER_ADDRESS", "").strip()
    port = environ.get("ANDROID_ADB_SERVER_PORT", "").strip()
    if not host and not port:
        return None
    number = _port(port, port, "$ANDROID_ADB_SERVER_PORT") if port else DEFAULT_PORT
    if not host:
        return ServerAddress(port=number, named_by="$ANDROID_ADB_SERVER_PORT")
    source = "$ANDROID_ADB_SERVER_ADDRESS"
    named = parse_address(
        f"[{host}]" if ":" in host and not host.startswith("[") else host, source=source
    )
    return ServerAddress(host=named.host, port=number, named_by=source)


def _port(digits: str, text: str, source: str) -> int:
    if not digits.isascii() or not digits.isdigit() or not 0 < int(digits) < 65536:
        raise UsageError(f"{source} is {text!r}: the port must be a number from 1 to 65535")
    return int(digits)
