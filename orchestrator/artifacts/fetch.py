"""Downloads complete files from allowed addresses, and fetches declared builds."""

from __future__ import annotations

import ipaddress
import re
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import urljoin, urlsplit, urlunsplit

from orchestrator.artifacts.archive import Release
from orchestrator.artifacts.library import BuildLibrary, SourceFile
from orchestrator.errors import DownloadError, HostStorageError, NotThereError, UsageError
from orchestrator.files import is_disk_full, make_private
from orchestrator.records import frozen
from orchestrator.records.build_spec import BuildSpec

if TYPE_CHECKING:
    import requests

#: Seconds to connect, and without data.
_SILENCE_S: Final = 30.0
_PART_BYTES: Final = 1 << 16
#: Seconds. No download takes so long: an older file was left by a process that was killed.
_LEFTOVER_AGE_S: Final = 86_400.0
_SIZE_MAX: Final = 4 << 30
_VERSION: Final = re.compile(r"/v?(\d+(?:\.\d+)+[A-Za-z0-9.+-]*)/")

#: Called with a file's name, the bytes that are here, and all that there will be when the server
#: says it.
Progress = Callable[[str, int, int | None], None]
_Received = Callable[[int, int | None], None]


def public_url(url: str) -> str:
    """Return an address without user name, password, query and fragment, to show and to keep."""
    try:
        split = urlsplit(url)
    except ValueError:
        return "an address that can't be read"
    return urlunsplit((split.scheme, split.netloc.rpartition("@")[2], split.path, "", ""))


@frozen
class Downloaded:
    """A complete file, which the caller must move or copy."""

    path: Path
    #: From the server; empty where it sends none.
    last_modified: str


class Downloader:
    """Fetches files over https, through the proxies that the environment names (``HTTPS_PROXY``,
    ``NO_PROXY`` ...).
    """

    def __init__(self, folder: Path, *, mirror: str = "") -> None:
        """``folder`` is where unfinished files are; ``mirror`` begins the address that keeps
        ``https://host/a`` as ``<mirror>/host/a``. Raises UsageError for a mirror that is none.
        """
        self._folder = folder
        self._mirror = mirror.strip().rstrip("/")
        if self._mirror and not re.match(r"https?://[^/]", self._mirror):
            raise UsageError(
                f"{public_url(mirror)!r} can't be a mirror: it isn't an http or https address",
                hint="for example BENCHFARM_MIRROR=https://mirror.example",
            )

    @contextmanager
    def fetched(
        self, url: str, *, name: str = "", on_progress: Progress = lambda *_: None
    ) -> Iterator[Downloaded]:
        """Download a file and lend it; it is gone when the context ends.

        Raises DownloadError when it can't be fetched whole, at the second try, or the folder can't
        be written; HostStorageError without space for it.
        """
        source = f"{self._mirror}/{url.partition('://')[2]}" if self._mirror else url
        with ExitStack() as stack:
            try:
                make_private(self._folder)
                for leftover in self._folder.glob("tmp*"):  # by a process that was killed
                    if time.time() - leftover.stat().st_mtime > _LEFTOVER_AGE_S:
                        shutil.rmtree(leftover, ignore_errors=True)
                folder = stack.enter_context(tempfile.TemporaryDirectory(dir=self._folder))
                path = Path(folder) / "file"
                last_modified = self._download(source, path, partial(on_progress, name))
            except OSError as error:
                if is_disk_full(error):
                    raise HostStorageError(f"no space left in {self._folder}") from error
                problem = f"{self._folder} can't be written: {error.strerror}"
                raise DownloadError(problem) from error
            yield Downloaded(path=path, last_modified=last_modified)

    def _download(self, url: str, path: Path, on_progress: _Received) -> str:
        """Write a file; return its modification time as the server reports it."""
        import requests

        # Without identity the length may be that of compressed bytes.
        headers = {"Accept-Encoding": "identity"}
        hooks = {"response": self._check_redirect}
        self._check_allowed(url)
        for is_last in (False, True):
            try:
                with requests.get(
                    url, headers=headers, hooks=hooks, stream=True, timeout=_SILENCE_S
                ) as answer:
                    _take(answer, url, path, on_progress)
                    return answer.headers.get("Last-Modified", "")
            except requests.exceptions.RequestException as error:
                if is_last:
                    raise _failure(url, error) from error
        raise AssertionError("the last try returns or raises")

    def _check_redirect(self, answer: requests.Response, **_: object) -> None:
        """Raise DownloadError before a redirect to an address that may not be used is followed."""
        if answer.is_redirect:
            target = urljoin(answer.url, answer.headers["Location"])
            self._check_allowed(target)
            if urlsplit(target).scheme != urlsplit(answer.url).scheme:
                raise DownloadError(
                    f"{public_url(answer.url)} redirects to another scheme, {public_url(target)}: refused",
                    hint="give the right address in the build file, or a mirror in $BENCHFARM_MIRROR",
                )

    def _check_allowed(self, url: str) -> None:
        """Raise DownloadError for an address that isn't safe from whoever sits on the way.

        Plain http is taken from this computer, and from a mirror that was given with http.
        """
        try:
            split, of_mirror = urlsplit(url), urlsplit(self._mirror)
        except ValueError as error:
            raise DownloadError(f"{public_url(url)} isn't used: {error}") from error
        is_mirror = (split.scheme, split.netloc) == (of_mirror.scheme, of_mirror.netloc)
        is_plain = split.scheme == "http" and (is_mirror or is_loopback(split.hostname or ""))
        if not split.hostname or not (split.scheme == "https" or is_plain):
            raise DownloadError(
                f"{public_url(url)} isn't used: it isn't https",
                hint="give the right address in the build file, or a mirror in $BENCHFARM_MIRROR",
            )


def is_loopback(host: str) -> bool:
    """Whether only programs of this computer can connect to a host."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _take(answer: requests.Response, url: str, path: Path, on_progress: _Received) -> None:
    """Write an answer's content whole."""
    if answer.status_code in {404, 410}:
        raise NotThereError(
            f"{public_url(url)} isn't there (HTTP {answer.status_code})",
            hint="check the address in the build file, or the mirror",
        )
    if answer.status_code != 200:
        from requests import exceptions

        raise exceptions.HTTPError(f"the server answers HTTP {answer.status_code}")
    length = answer.headers.get("Content-Length", "")
    total = int(length) if length.isdigit() else None
    if total is None and answer.headers.get("Transfer-Encoding") != "chunked":
        raise DownloadError(
            f"{public_url(url)}: the server sends no length, so a truncated file can't be detected",
            hint="fetch it through a mirror that sends lengths ($BENCHFARM_MIRROR)",
        )
    size = 0
    with path.open("wb") as stream:
        on_progress(size, total)
        for part in answer.iter_content(_PART_BYTES):
            stream.write(part)
            size += len(part)
            on_progress(size, total)
            if max(size, total or 0) > _SIZE_MAX:
                raise DownloadError(f"{public_url(url)} is larger than {_SIZE_MAX} bytes")


def _failure(url: str, error: requests.exceptions.RequestException) -> DownloadError:
    """Return the error with a network failure's innermost cause, and a hint."""
    cause: BaseException = error
    # The outer ones only say through which layers it came.
    while inner := cause.__cause__ or cause.__context__:
        cause = inner
    return DownloadError(
        f"{public_url(url)} can't be fetched: {str(cause) or type(cause).__name__}",
        hint="check the address, network and proxy (HTTPS_PROXY, NO_PROXY); a company's own"
        " certificates are named by $REQUESTS_CA_BUNDLE",
    )


@frozen
class Fetched:
    """The result of fetching one build for one ABI."""

    name: str
    abi: str
    #: The release that is in use from now on; None where there are only commands to build it with.
    release: Release | None = None
    #: The release fetched from the same address before, when it differs.
    previous: Release | None = None
    #: Whether nothing had been fetched from there.
    is_new: bool = False
    #: Optional libraries that the place doesn't have.
    absent: tuple[str, ...] = ()
    #: The commands to build it with.
    recipe: tuple[str, ...] = ()


def fetch_build(
    library: BuildLibrary,
    downloader: Downloader,
    spec: BuildSpec,
    *,
    on_progress: Progress = lambda *_: None,
) -> Fetched:
    """Bring one declared build for one ABI into the library.

    Raises:
        DownloadError: a file couldn't be fetched whole.
        ArtifactError: the files differ from their declaration, or don't belong together. Nothing
            is kept then.
        HostStorageError: no space left.
    """
    if spec.source.recipe:
        return Fetched(name=spec.name, abi=spec.abi, recipe=spec.source.recipe)
    in_use = library.archive.in_use(spec.name, spec.abi)
    # What a person added stays beside a newer program.
    by_hand = (
        [file for file in in_use.libraries if not file.url]
        if in_use is not None and in_use.program.url
        else []
    )
    files = {file.name: SourceFile(library.verified_path(file)) for file in by_hand}
    absent: list[str] = []
    with ExitStack() as stack:

        def download(name: str, url: str) -> Downloaded:
            return stack.enter_context(downloader.fetched(url, name=name, on_progress=on_progress))

        url = spec.source.url
        program = download(spec.program, url)
        files[""] = SourceFile(program.path, public_url(url))
        for name in spec.libraries:
            place = spec.library_url(name)
            if not place or name in files:
                continue
            try:
                files[name] = SourceFile(download(name, place).path, public_url(place))
            except NotThereError:
                if name in spec.needed:
                    raise
                absent.append(name)
        release = library.register(
            spec.name, files, tag=_tag(url, program.last_modified), abi=spec.abi
        )
    # Only a release from the same address shows whether that address's content has changed.
    is_new = in_use is None or in_use.program.url != release.program.url
    changed = in_use is not None and not is_new and in_use.release_id != release.release_id
    return Fetched(
        name=spec.name,
        abi=spec.abi,
        release=release,
        previous=in_use if changed else None,
        is_new=is_new,
        absent=tuple(absent),
    )


def _tag(url: str, last_modified: str) -> str:
    """Return the tag of the release at an address: its version, else its date."""
    if match := _VERSION.search(url):
        return match[1]
    try:
        date = parsedate_to_datetime(last_modified)
    except ValueError:
        date = datetime.now(UTC)
    return f"{'latest ' if '/latest/' in url else ''}{date:%Y-%m-%d}"
