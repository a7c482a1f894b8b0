"""Addresses that programs are fetched from: which are allowed, what a mirror makes of them, how they are shown."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from urllib.parse import SplitResult, urlsplit, urlunsplit

from orchestrator.errors import UsageError


@dataclass(frozen=True, slots=True, kw_only=True)
class Mirror:
    """A place that holds copies: ``origin`` is the beginning of addresses that it stands for, empty for all."""

    prefix: str
    origin: str = ""

    def rewritten(self, url: str) -> str:
        """Return where the mirror keeps a file.

        With an origin, that beginning of the address is replaced. Without, the address without its scheme lies below
        the mirror's prefix: ``https://host/a/b`` is ``<prefix>/host/a/b``, as recursive downloaders lay files out.
        """
        if self.origin:
            return self.prefix + url.removeprefix(self.origin) if url.startswith(self.origin) else url
        return f"{self.prefix.rstrip('/')}/{url.partition('://')[2]}"


def parse_mirror(text: str) -> Mirror | None:
    """Read ``PREFIX`` or ``ORIGIN=PREFIX``; None for an empty text.

    Raises:
        UsageError: either part isn't an http or https address.
    """
    if not text.strip():
        return None
    # An origin ends before "=http": addresses may have an equals sign of their own.
    origin, found, rest = text.strip().partition("=http")
    prefix = f"http{rest}" if found else origin
    origin = origin if found else ""
    for part in filter(None, (origin, prefix)):
        split = _split(part)
        if split is None or split.scheme not in {"http", "https"} or not split.hostname:
            raise UsageError(
                f"{shown(part)!r} can't be a mirror: it isn't an http or https address",
                hint="give PREFIX or ORIGIN=PREFIX with --mirror or $BENCHFARM_MIRROR, for example https://mirror.example/",
            )
    return Mirror(prefix=prefix, origin=origin)


def why_refused(url: str, mirror: Mirror | None) -> str:
    """Return why nothing is fetched from an address, empty when it may be used.

    Only https is safe from whoever sits on the way. Plain http is taken from this computer, and from a mirror that was
    given with http.
    """
    split = _split(url)
    if split is None or not split.hostname:
        return "it has no host"
    if split.scheme == "https":
        return ""
    if split.scheme != "http":
        return f"its scheme is {split.scheme or 'missing'}, not https"
    if _is_loopback(split.hostname):
        return ""
    named = _split(mirror.prefix) if mirror is not None else None
    if named is not None and named.scheme == "http" and _place(named) == _place(split):
        return ""
    return "plain http is taken from a mirror and from this computer only"


def scheme_of(url: str) -> str:
    """Return an address's scheme in lower case."""
    split = _split(url)
    return split.scheme if split is not None else ""


def shown(url: str) -> str:
    """Return an address as it may be shown and kept: without user name, password, query and fragment."""
    split = _split(url)
    if split is None:
        return "an address that can't be read"
    return urlunsplit((split.scheme, split.netloc.rpartition("@")[2], split.path, "", ""))


def folder_of(url: str) -> str:
    """Return the folder that a file lies in, with its slash."""
    return url[: url.rindex("/") + 1]


def _split(url: str) -> SplitResult | None:
    try:
        split = urlsplit(url)
        _ = split.port
    except ValueError:
        return None
    return split


def _place(split: SplitResult) -> tuple[str | None, int | None]:
    return split.hostname, split.port


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
