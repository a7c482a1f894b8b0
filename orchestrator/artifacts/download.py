"""Downloading one file from an allowed address: cut-off ones are resumed, nothing is handed over that isn't whole."""

from __future__ import annotations

import base64
import errno
import hashlib
import ipaddress
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import SplitResult, urljoin, urlsplit, urlunsplit

from orchestrator.clock import Clock, SystemClock
from orchestrator.documents import adapter_of, dump_document
from orchestrator.errors import DownloadError, HostStorageError, NotThereError, UsageError
from orchestrator.files import make_private

if TYPE_CHECKING:
    import requests

_REDIRECTS: Final = frozenset({301, 302, 303, 307, 308})
_REDIRECTS_MAX: Final = 5
#: How often a download that breaks off is resumed, as long as each attempt brings something.
_ATTEMPTS_MAX: Final = 5
_PART_BYTES: Final = 1 << 16
_SIZE_MAX: Final = 4 << 30
_MD5: Final = re.compile(r"md5=([A-Za-z0-9+/]{22}==)")
_CONTENT_RANGE: Final = re.compile(r"bytes (\d+)-(\d+)/(\d+)")

_UNREACHABLE: Final = " can't be reached"

Progress = Callable[[int, int | None], None]


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
    if named is not None and named.scheme == "http" and (named.hostname, named.port) == (split.hostname, split.port):
        return ""
    return "plain http is taken from a mirror and from this computer only"


def shown(url: str) -> str:
    """Return an address as it may be shown and kept: without user name, password, query and fragment."""
    split = _split(url)
    if split is None:
        return "an address that can't be read"
    return urlunsplit((split.scheme, split.netloc.rpartition("@")[2], split.path, "", ""))


def _split(url: str) -> SplitResult | None:
    try:
        split = urlsplit(url)
        _ = split.port
    except ValueError:
        return None
    return split


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


@dataclass(frozen=True, slots=True, kw_only=True)
class Validators:
    """What a server tells a content by; both empty when it doesn't."""

    etag: str = ""
    last_modified: str = ""

    @classmethod
    def of(cls, response: requests.Response) -> Validators:
        """Return those of an answer."""
        return cls(etag=response.headers.get("ETag", ""), last_modified=response.headers.get("Last-Modified", ""))

    @property
    def conditions(self) -> dict[str, str]:
        """Request headers for an answer that comes only when the server has another content; none when unknown."""
        if self.etag:
            return {"If-None-Match": self.etag}
        return {"If-Modified-Since": self.last_modified} if self.last_modified else {}

    @property
    def if_range(self) -> str:
        """What proves that the rest belongs to what is here: a strong ETag, else the date; empty without either."""
        return self.etag if self.etag and not self.etag.startswith("W/") else self.last_modified


@dataclass(frozen=True, slots=True, kw_only=True)
class Downloaded:
    """A whole file, in a place that its taker must move or copy it from."""

    path: Path
    size_bytes: int
    validators: Validators


class _CutOffError(Exception):
    """The connection ended before the file was whole; it may be resumed."""


class _StaleError(Exception):
    """What is here doesn't belong to what the server has now; begin again."""


class Downloader:
    """Fetches files over https, through the proxies that the environment names (``HTTPS_PROXY``, ``NO_PROXY`` ...).

    A file that is cut off stays in ``partial_folder`` with what its server told it by, and the next call goes on there
    (Range and If-Range), so that two contents can't be mixed. A whole file is handed over only after its length, and
    the MD5 where the server sends one, were compared.
    """

    def __init__(
        self,
        partial_folder: Path,
        *,
        mirror: Mirror | None = None,
        stall_s: float = 30.0,
        deadline_s: float = 1800.0,
        clock: Clock | None = None,
    ) -> None:
        """Set it up; nothing is connected yet.

        Args:
            partial_folder: Where unfinished files are kept.
            mirror: Where to look instead.
            stall_s: How long a connection may take, or be silent.
            deadline_s: How long one file may take in all.
            clock: For the deadline.
        """
        self._folder = partial_folder
        self._mirror = mirror
        self._stall_s = stall_s
        self._deadline_s = deadline_s
        self._clock = clock or SystemClock()

    @contextmanager
    def fetched(
        self, url: str, *, known: Validators | None = None, on_progress: Progress | None = None
    ) -> Iterator[Downloaded | None]:
        """Download a file and lend it; it is gone when the context ends.

        Args:
            url: Its address; the mirror is looked at instead when there is one.
            known: What an earlier content was told by. Yields None when the server still has that content.
            on_progress: Hears of the bytes that are here, and of all that there will be when that is known.

        Raises:
            DownloadError: it couldn't be fetched whole; the message says why.
            HostStorageError: no space left for it.
        """
        from filelock import FileLock, Timeout

        source = self._mirror.rewritten(url) if self._mirror is not None else url
        make_private(self._folder)
        draft = self._folder / hashlib.sha256(source.encode()).hexdigest()[:32]
        lock = FileLock(f"{draft}.lock")
        try:
            lock.acquire(timeout=0)
        except Timeout as error:
            raise DownloadError(
                f"{shown(source)} is being downloaded by another benchfarm", hint="wait for it, then run this again"
            ) from error
        try:
            validators = self._download(source, draft, known, on_progress or (lambda _received, _total: None))
            if validators is None:
                yield None
                return
            try:
                yield Downloaded(path=draft, size_bytes=draft.stat().st_size, validators=validators)
            finally:
                _discard(draft)  # also what was refused
        finally:
            lock.release()

    def has_still(self, url: str, known: Validators) -> bool:
        """Return whether an address has the content that it had; raises DownloadError when it doesn't answer."""
        import requests

        source = self._mirror.rewritten(url) if self._mirror is not None else url
        headers = {"Accept-Encoding": "identity", **known.conditions}
        try:
            with requests.Session() as session, self._get(session, source, headers) as response:
                is_same = response.status_code == 200 and Validators.of(response) == known
                return response.status_code == 304 or is_same
        except requests.exceptions.RequestException as error:
            raise DownloadError(f"{shown(source)} can't be reached: {_cause(error)}", hint="try again") from error

    def _download(self, url: str, draft: Path, known: Validators | None, on_progress: Progress) -> Validators | None:
        ends_at_s = self._clock.monotonic_s() + self._deadline_s
        for attempt in range(1, _ATTEMPTS_MAX + 1):
            had = _size(draft)
            try:
                return self._attempt(url, draft, known, on_progress, ends_at_s)
            except _StaleError:
                _discard(draft)
            except _CutOffError as error:
                has = _size(draft)
                if attempt == _ATTEMPTS_MAX or has <= had:
                    kept = f"; the {has} bytes that came are kept" if has else ""
                    raise DownloadError(
                        f"{shown(url)} was cut off: {error}{kept}", hint="run the same command again to resume"
                    ) from error
        raise DownloadError(f"{shown(url)} changes faster than it can be downloaded", hint="try again later")

    def _attempt(
        self, url: str, draft: Path, known: Validators | None, on_progress: Progress, ends_at_s: float
    ) -> Validators | None:
        import requests
        import urllib3

        began_with = _read_validators(draft)
        offset = _size(draft) if began_with.if_range else 0
        # Without identity a server may send compressed bytes, of which neither length nor offset is the file's.
        headers = {"Accept-Encoding": "identity"}
        if offset:
            headers |= {"Range": f"bytes={offset}-", "If-Range": began_with.if_range}
        elif known is not None:
            headers |= known.conditions
        answered = False
        try:
            with requests.Session() as session, self._get(session, url, headers) as response:
                answered = True
                if response.status_code == 304 and not offset and known is not None:
                    return None
                return self._take(response, url, draft, offset, on_progress, ends_at_s)
        except (requests.exceptions.RequestException, urllib3.exceptions.HTTPError, OSError) as error:
            if isinstance(error, OSError) and error.errno in {errno.ENOSPC, errno.EDQUOT}:
                raise HostStorageError(f"no space left in {self._folder}") from error
            what, hint = self._meaning(error)
            if answered and not what:
                raise _CutOffError(_cause(error)) from error
            raise DownloadError(f"{shown(url)}{what or _UNREACHABLE}: {_cause(error)}", hint=hint) from error

    def _meaning(self, error: Exception) -> tuple[str, str]:
        """Return what an error of the network means, empty for any other, and what to do."""
        from requests import exceptions
        from urllib3 import exceptions as below

        if isinstance(error, exceptions.Timeout | below.TimeoutError):
            return f": no answer for {self._stall_s:g} s", "check network and proxy, then try again"
        if isinstance(error, exceptions.ProxyError | below.ProxyError):
            return ": the proxy can't be used", "check HTTPS_PROXY and NO_PROXY"
        if isinstance(error, exceptions.SSLError | below.SSLError):
            return ": the server's certificate can't be trusted", (
                "a company's own certificates are named by $REQUESTS_CA_BUNDLE"
            )
        return "", "check the address, network and proxy"

    def _get(self, session: requests.Session, url: str, headers: dict[str, str]) -> requests.Response:
        """Ask for a file and follow redirects, each of which must lead to a place that may be used."""
        for _ in range(_REDIRECTS_MAX + 1):
            refusal = why_refused(url, self._mirror)
            if refusal:
                raise DownloadError(f"{shown(url)} isn't used: {refusal}")
            response = session.get(
                url, headers=headers, stream=True, allow_redirects=False, timeout=(self._stall_s, self._stall_s)
            )
            if response.status_code not in _REDIRECTS:
                return response
            target = urljoin(url, response.headers.get("Location", ""))
            response.close()
            if urlsplit(target).scheme != urlsplit(url).scheme:
                raise DownloadError(
                    f"{shown(url)} redirects to another scheme, {shown(target)}: refused",
                    hint="give the right address in the build file, or a mirror with --mirror",
                )
            url = target
        raise DownloadError(f"{shown(url)}: more than {_REDIRECTS_MAX} redirects")

    def _take(
        self, response: requests.Response, url: str, draft: Path, offset: int, on_progress: Progress, ends_at_s: float
    ) -> Validators:
        validators = Validators.of(response)
        start, total = _extent(response, url, offset, _read_validators(draft), validators)
        if total is not None and total > _SIZE_MAX:
            raise DownloadError(f"{shown(url)} has {total} bytes, which no benchmark program has")
        if start == 0:
            _write_validators(draft, validators)
        size = start
        with draft.open("r+b" if start else "wb") as stream:
            stream.seek(start)
            on_progress(size, total)
            while part := response.raw.read1(_PART_BYTES, decode_content=False):
                stream.write(part)
                size += len(part)
                stream.flush()
                on_progress(size, total)
                if size > _SIZE_MAX:
                    raise DownloadError(f"{shown(url)} has no end: {size} bytes came")
                if self._clock.monotonic_s() > ends_at_s:
                    raise DownloadError(
                        f"{shown(url)} wasn't whole after {self._deadline_s:g} s, {size} bytes came and are kept",
                        hint="run the same command again to resume, or give --timeout more seconds",
                    )
        if total is not None and size < total:
            raise _CutOffError(f"{size} of {total} bytes came")
        if total is None and not response.raw.chunked and not _MD5.search(response.headers.get("x-goog-hash", "")):
            # Its end is that of the connection, whatever ended that.
            _discard(draft)
            raise DownloadError(
                f"{shown(url)}: the server tells no length, so that a file that was cut off looks whole",
                hint="fetch it through a mirror that tells lengths (--mirror)",
            )
        if (total is not None and size > total) or size == 0:
            _discard(draft)
            announced = "some" if total is None else total
            raise DownloadError(f"{shown(url)} has the wrong length: {size} bytes came, {announced} were announced")
        _check_md5(draft, response.headers.get("x-goog-hash", ""), url)
        return validators


def _extent(
    response: requests.Response, url: str, offset: int, began_with: Validators, now: Validators
) -> tuple[int, int | None]:
    """Return at which byte an answer begins, and the whole file's length when it is told."""
    status = response.status_code
    if response.headers.get("Content-Encoding", "identity") != "identity":
        raise DownloadError(f"{shown(url)}: the server sends it compressed, which wasn't asked for")
    if status == 416 and offset:
        raise _StaleError
    if status == 206 and offset:
        found = _CONTENT_RANGE.fullmatch(response.headers.get("Content-Range", ""))
        if not found or int(found[1]) != offset or int(found[2]) + 1 != int(found[3]):
            raise _StaleError
        # A server that ignores If-Range would let two contents be mixed.
        if now.if_range and now.if_range != began_with.if_range:
            raise _StaleError
        return offset, int(found[3])
    if status == 200:
        length = response.headers.get("Content-Length", "")
        return 0, int(length) if length.isdigit() else None
    if status in {404, 410}:
        raise NotThereError(
            f"{shown(url)} isn't there (HTTP {status})", hint="check the address in the build file, or the mirror"
        )
    if status in {401, 403, 407}:
        raise DownloadError(f"{shown(url)} needs a permission that is missing (HTTP {status})")
    raise DownloadError(f"{shown(url)}: the server answers HTTP {status}", hint="try again later")


def _check_md5(path: Path, header: str, url: str) -> None:
    """Compare with the hash that Google's storage sends: ``x-goog-hash: crc32c=..., md5=...``, in base64."""
    found = _MD5.search(header)
    if not found:
        return
    with path.open("rb") as stream:
        digest = hashlib.file_digest(stream, lambda: hashlib.md5(usedforsecurity=False)).digest()
    if digest != base64.b64decode(found[1]):
        _discard(path)
        raise DownloadError(f"{shown(url)}: what came isn't what the server has (MD5 differs)", hint="run it again")


def _read_validators(draft: Path) -> Validators:
    try:
        return adapter_of(Validators).validate_json(_label(draft).read_bytes(), strict=True)
    except (OSError, ValueError):
        return Validators()


def _write_validators(draft: Path, validators: Validators) -> None:
    draft.unlink(missing_ok=True)
    _label(draft).write_text(dump_document(validators), encoding="utf-8")


def _discard(draft: Path) -> None:
    draft.unlink(missing_ok=True)
    _label(draft).unlink(missing_ok=True)


def _label(draft: Path) -> Path:
    return draft.with_name(f"{draft.name}.json")


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _cause(error: BaseException) -> str:
    """Return the innermost reason of an error: the outer ones only say through which layers it came."""
    while error.__cause__ or error.__context__:
        error = error.__cause__ or error.__context__ or error
    text = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return text or type(error).__name__
