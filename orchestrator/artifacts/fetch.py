"""Downloading one file from an allowed address: whole, or an error that says why not."""

from __future__ import annotations

import enum
import errno
import hashlib
import ipaddress
import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import SplitResult, urljoin, urlsplit, urlunsplit

from orchestrator.artifacts.archive import Arrival, Release, ReleaseFile
from orchestrator.artifacts.library import BuildLibrary
from orchestrator.errors import DownloadError, HostStorageError, NotThereError, UsageError
from orchestrator.locks import Locks
from orchestrator.records.build_spec import BuildSpec

if TYPE_CHECKING:
    import requests


_REDIRECTS_MAX: Final = 5
#: Seconds to connect, and without data.
_SILENCE_S: Final = 30.0
_PART_BYTES: Final = 1 << 16
_SIZE_MAX: Final = 4 << 30
#: A file over this size is resumed where it was cut off; a smaller one is begun again.
RESUMED_BYTES: Final = 200_000_000

#: The bytes that are here, and all that there will be when the server says it.
Progress = Callable[[int, int | None], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Mirror:
    """A place with copies: ``origin`` is the beginning of the addresses that ``prefix`` replaces,
    empty for all.
    """

    prefix: str
    origin: str = ""

    def rewritten(self, url: str) -> str:
        """Return where the mirror keeps a file: without an origin, ``https://host/a`` is
        ``<prefix>/host/a``.
        """
        if self.origin:
            return (
                self.prefix + url.removeprefix(self.origin) if url.startswith(self.origin) else url
            )
        return f"{self.prefix.rstrip('/')}/{url.partition('://')[2]}"


def parse_mirror(text: str) -> Mirror | None:
    """Read ``PREFIX`` or ``ORIGIN=PREFIX``; None for an empty text.

    Raises UsageError for what is no address.
    """
    if not text.strip():
        return None
    # An origin ends before "=http": addresses may have an equals sign of their own.
    origin, found, rest = text.strip().partition("=http")
    prefix, origin = (f"http{rest}", origin) if found else (origin, "")
    for part in filter(None, (origin, prefix)):
        split = _split(part)
        if split is None or split.scheme not in {"http", "https"} or not split.hostname:
            raise UsageError(
                f"{shown(part)!r} can't be a mirror: it isn't an http or https address",
                hint="give PREFIX or ORIGIN=PREFIX in $BENCHFARM_MIRROR, for example https://mirror.example/",
            )
    return Mirror(prefix=prefix, origin=origin)


def why_refused(url: str, mirror: Mirror | None) -> str:
    """Return why nothing is fetched from an address, empty when it may be used.

    Only https is safe from whoever sits on the way. Plain http is taken from this computer, and
    from a mirror that was given with http.
    """
    split = _split(url)
    if split is None or not split.hostname:
        return "it has no host"
    if split.scheme == "https":
        return ""
    if split.scheme != "http":
        return f"its scheme is {split.scheme or 'missing'}, not https"
    named = _split(mirror.prefix) if mirror is not None else None
    is_mirror = named is not None and (named.scheme, named.netloc) == ("http", split.netloc)
    return (
        ""
        if is_mirror or _is_loopback(split.hostname)
        else "plain http is taken from a mirror and this computer only"
    )


def shown(url: str) -> str:
    """Return an address as it may be shown and kept: without user name, password, query and
    fragment.
    """
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
class Downloaded:
    """A whole file, in a place that its taker must move or copy it from."""

    path: Path
    #: As the server says it; empty where it doesn't.
    last_modified: str


class Downloader:
    """Fetches files over https, through the proxies that the environment names (``HTTPS_PROXY``,
    ``NO_PROXY`` ...).
    """

    def __init__(self, folder: Path, *, mirror: Mirror | None = None) -> None:
        """``folder`` is where unfinished files are; ``mirror`` is asked instead."""
        self._folder = folder
        self._mirror = mirror

    @contextmanager
    def fetched(
        self, url: str, *, on_progress: Progress = lambda _received, _total: None
    ) -> Iterator[Downloaded]:
        """Download a file and lend it; it is gone when the context ends.

        Raises DownloadError when it can't be fetched whole, at the second try, or the folder can't
        be written; HostStorageError without space for it.
        """
        source = self._mirror.rewritten(url) if self._mirror is not None else url
        draft = self._folder / hashlib.sha256(source.encode()).hexdigest()[:32]
        busy = DownloadError(
            f"{shown(source)} is being downloaded by another benchfarm",
            hint="wait for it, then run this again",
        )
        with ExitStack() as stack:
            try:
                stack.enter_context(Locks(self._folder).held(draft.name, wait_s=0.0, busy=busy))
            except HostStorageError as error:
                cause = error.__cause__
                if not isinstance(cause, OSError) or cause.errno in {errno.ENOSPC, errno.EDQUOT}:
                    raise
                raise DownloadError(f"{self._folder} can't be written: {cause.strerror}") from error
            last_modified = self._download(source, draft, on_progress)
            try:
                yield Downloaded(path=draft, last_modified=last_modified)
            finally:
                draft.unlink(missing_ok=True)

    def _download(self, url: str, draft: Path, on_progress: Progress) -> str:
        """Write a file to ``draft``; return when the server says that it was modified."""
        import requests

        for is_last in (False, True):
            try:
                with (
                    requests.Session() as session,
                    self._get(session, url, _size(draft)) as response,
                ):
                    _take(response, url, draft, on_progress)
                    return response.headers.get("Last-Modified", "")
            except requests.exceptions.RequestException as error:
                if is_last:
                    what, hint = _meaning(error)
                    resumes = "run the same command again to resume" if draft.exists() else hint
                    raise DownloadError(
                        f"{shown(url)}: {what}: {_cause(error)}", hint=resumes
                    ) from error
            except OSError as error:
                if error.errno in {errno.ENOSPC, errno.EDQUOT}:
                    raise HostStorageError(f"no space left in {self._folder}") from error
                raise
        raise AssertionError("the last try returns or raises")

    def _get(self, session: requests.Session, url: str, offset: int) -> requests.Response:
        """Ask for a file from a byte on, and follow redirects, each of which must lead to a place
        that may be used.
        """
        # Without identity a server may send compressed bytes, whose offset isn't the file's.
        headers = {"Accept-Encoding": "identity"} | (
            {"Range": f"bytes={offset}-"} if offset else {}
        )
        for _ in range(_REDIRECTS_MAX + 1):
            if refusal := why_refused(url, self._mirror):
                raise DownloadError(f"{shown(url)} isn't used: {refusal}")
            response = session.get(
                url, headers=headers, stream=True, allow_redirects=False, timeout=_SILENCE_S
            )
            if not response.is_redirect:
                return response
            target = urljoin(url, response.headers["Location"])
            response.close()
            if urlsplit(target).scheme != urlsplit(url).scheme:
                raise DownloadError(
                    f"{shown(url)} redirects to another scheme, {shown(target)}: refused",
                    hint="give the right address in the build file, or a mirror in $BENCHFARM_MIRROR",
                )
            url = target
        raise DownloadError(f"{shown(url)}: more than {_REDIRECTS_MAX} redirects")


def _take(response: requests.Response, url: str, draft: Path, on_progress: Progress) -> None:
    """Write an answer's content; what came of a file over 200 MB stays when it is cut off, of any
    other nothing.
    """
    import requests

    size, status = _size(draft), response.status_code
    if status in {404, 410}:
        raise NotThereError(
            f"{shown(url)} isn't there (HTTP {status})",
            hint="check the address in the build file, or the mirror",
        )
    if status in {401, 403, 407}:
        raise DownloadError(f"{shown(url)} needs a permission that is missing (HTTP {status})")
    if status != 206 or not response.headers.get("Content-Range", "").startswith(f"bytes {size}-"):
        draft.unlink(missing_ok=True)
        size = 0
        if status != 200:
            raise requests.exceptions.HTTPError(f"the server answers HTTP {status}")
    length = response.headers.get("Content-Length", "")
    total = size + int(length) if length.isdigit() else None
    if total is None and response.headers.get("Transfer-Encoding") != "chunked":
        raise DownloadError(
            f"{shown(url)}: the server tells no length, so that a file that was cut off looks whole",
            hint="fetch it through a mirror that tells lengths ($BENCHFARM_MIRROR)",
        )
    if total is not None and total > _SIZE_MAX:
        raise DownloadError(f"{shown(url)} has {total} bytes, which no benchmark program has")
    is_whole = False
    try:
        with draft.open("ab") as stream:
            on_progress(size, total)
            for part in response.iter_content(_PART_BYTES):
                stream.write(part)
                size += len(part)
                on_progress(size, total)
                if size > _SIZE_MAX:
                    raise DownloadError(f"{shown(url)} has no end: {size} bytes came")
        is_whole = True
    finally:
        if not is_whole and (total is None or total <= RESUMED_BYTES):
            draft.unlink()


def _meaning(error: Exception) -> tuple[str, str]:
    """Return what an error of the network means, and what to do."""
    from requests import exceptions

    match error:
        case exceptions.ProxyError():
            return "the proxy can't be used", "check HTTPS_PROXY and NO_PROXY"
        case exceptions.SSLError():
            hint = "a company's own certificates are named by $REQUESTS_CA_BUNDLE"
            return "the server's certificate can't be trusted", hint
        case exceptions.Timeout():
            return f"no answer for {_SILENCE_S:g} s", "check network and proxy, then try again"
        case exceptions.ChunkedEncodingError():
            return "was cut off", "run the same command again"
        case _:
            return "can't be fetched", "check the address, network and proxy"


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _cause(error: BaseException) -> str:
    """Return the innermost reason of an error: the outer ones only say through which layers it
    came.
    """
    while error.__cause__ or error.__context__:
        error = error.__cause__ or error.__context__ or error
    text = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return text or type(error).__name__


_VERSION: Final = re.compile(r"/v?(\d+(?:\.\d+)+[A-Za-z0-9.+-]*)/")


class FetchStatus(enum.StrEnum):
    """What fetching a build came to."""

    #: The first one that was seen.
    NEW = "new"
    #: The address still has what was fetched last.
    UNCHANGED = "unchanged"
    #: The address has another content than last time.
    CHANGED = "changed"
    #: There is nothing to download; a person builds it.
    RECIPE = "recipe"


@dataclass(frozen=True, slots=True, kw_only=True)
class FileProgress:
    """How far a download is."""

    name: str
    received_bytes: int
    #: None when the server doesn't tell.
    total_bytes: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Fetched:
    """What fetching one build for one ABI came to."""

    name: str
    abi: str
    status: FetchStatus
    #: What the address has now; None for a recipe.
    release: Release | None = None
    #: What was fetched from there before, when that is something else.
    previous: Release | None = None
    #: What is used from now on.
    in_use: Release | None = None
    #: Optional libraries that the place doesn't have.
    absent: tuple[str, ...] = ()
    #: The commands to build it with.
    recipe: tuple[str, ...] = ()


class BuildFetcher:
    """Brings declared builds into the library."""

    def __init__(self, library: BuildLibrary, downloader: Downloader) -> None:
        self._library = library
        self._downloader = downloader

    def fetch(
        self,
        spec: BuildSpec,
        *,
        keep_pin: bool = False,
        on_progress: Callable[[FileProgress], None] | None = None,
    ) -> Fetched:
        """Fetch one build for one ABI.

        Args:
            spec: What is declared of it.
            keep_pin: Go on using what is in use; what is new is kept beside it.
            on_progress: Hears how far each file is.

        Raises:
            DownloadError: a file couldn't be fetched whole.
            ArtifactError: what came isn't what is declared, or doesn't belong together. Nothing is
                kept then.
            HostStorageError: no space left.
        """
        if spec.recipe:
            return Fetched(
                name=spec.name, abi=spec.abi, status=FetchStatus.RECIPE, recipe=spec.recipe
            )
        fetch = self._from_folder if spec.file else self._from_server
        before = [
            release
            for release in self._library.archive.releases(spec.name)
            if spec.abi in release.abis
        ]
        release, absent = fetch(spec, keep_pin, on_progress or (lambda _: None))
        # Only what came from the same address says whether that address has changed.
        before = [item for item in before if item.program.url == release.program.url]
        last = before[-1] if before else None
        changed = last is not None and last.release_id != release.release_id
        return Fetched(
            name=spec.name,
            abi=spec.abi,
            status=FetchStatus.NEW
            if last is None
            else FetchStatus.CHANGED
            if changed
            else FetchStatus.UNCHANGED,
            release=release,
            previous=last if changed else None,
            in_use=self._library.archive.pinned(spec.name, spec.abi),
            absent=absent,
        )

    def _from_folder(
        self, spec: BuildSpec, keep_pin: bool, _on_progress: Callable[[FileProgress], None]
    ) -> tuple[Release, tuple[str, ...]]:
        """Take a program and its libraries from a folder of this computer."""
        program, named = Path(spec.file), [item for item in spec.libraries if item.file]
        arrivals = [
            Arrival(path=Path(item.file), file=ReleaseFile(name=item.name, group=item.group))
            for item in named
            if Path(item.file).is_file()
        ]
        absent = tuple(item.name for item in named if not Path(item.file).is_file())
        arrival = Arrival(path=program, file=ReleaseFile(name=program.name))
        return self._library.register(
            spec.name, arrival, arrivals, tag="", abi=spec.abi, pin=not keep_pin
        ), absent

    def _from_server(
        self, spec: BuildSpec, keep_pin: bool, on_progress: Callable[[FileProgress], None]
    ) -> tuple[Release, tuple[str, ...]]:
        with ExitStack() as stack:

            def arrival(name: str, url: str, group: str = "") -> Arrival:
                def progress(received_bytes: int, total_bytes: int | None) -> None:
                    on_progress(
                        FileProgress(
                            name=name, received_bytes=received_bytes, total_bytes=total_bytes
                        )
                    )

                got = stack.enter_context(self._downloader.fetched(url, on_progress=progress))
                file = ReleaseFile(
                    name=name, url=shown(url), group=group, tag=self._tag(url, got.last_modified)
                )
                return Arrival(path=got.path, file=file)

            program = arrival(spec.program, spec.url)
            arrivals, absent = self._by_hand(spec), []
            held = {item.file.group for item in arrivals}
            for item in spec.libraries:
                if not item.url or item.group in held:
                    continue
                try:
                    arrivals.append(arrival(item.name, item.url, item.group))
                except NotThereError:
                    if not item.optional:
                        raise
                    absent.append(item.name)
            folder = _folder_of(program.file.url)
            beside = [
                replace(item, file=replace(item.file, tag=program.file.tag))
                if item.file.url and _folder_of(item.file.url) == folder
                else item
                for item in arrivals
            ]
            release = self._library.register(
                spec.name, program, beside, tag=program.file.tag, abi=spec.abi, pin=not keep_pin
            )
            return release, tuple(absent)

    def _by_hand(self, spec: BuildSpec) -> list[Arrival]:
        """Return the groups that a person completed for the release in use: a newer program keeps
        them.
        """
        in_use = self._library.archive.pinned(spec.name, spec.abi)
        libraries = in_use.libraries if in_use is not None else ()
        held = {file.group for file in libraries if file.group and not file.url}
        return [self._library.arrival(file) for file in libraries if file.group in held]

    def _tag(self, url: str, last_modified: str) -> str:
        """Return which release an address holds: its version, else its date."""
        found = _VERSION.search(url)
        if found:
            return found[1]
        try:
            date = parsedate_to_datetime(last_modified)
        except ValueError:
            date = datetime.now(UTC)
        return f"{'latest ' if '/latest/' in url else ''}{date:%Y-%m-%d}"


def _folder_of(url: str) -> str:
    return url.rpartition("/")[0]
