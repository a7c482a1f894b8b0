"""The phone's file tree: what users may do with its files, and what is kept of them."""

from __future__ import annotations

import errno

import pytest

from benchfarm_virtual.contract import PhoneFileError
from benchfarm_virtual.processes import as_user

TMP = "/data/local/tmp"


class _Fails:
    def __init__(self, number: int) -> None:
        self.number = number

    def __enter__(self) -> None:
        return

    def __exit__(self, kind, exc, trace) -> bool:
        assert isinstance(exc, PhoneFileError), (
            f"expected {errno.errorcode[self.number]}, got {exc!r}"
        )
        assert exc.errno == self.number, (
            f"expected {errno.errorcode[self.number]}, got {errno.errorcode[exc.errno]}"
        )
        return True


def test_folder_that_may_no_longer_be_searched_is_closed_at_once(phone):
    files = phone.userland.files
    for name in ("one", "one/two"):
        files.make_folder(f"{TMP}/{name}")
    phone.put(f"{TMP}/one/two/file", b"content")
    app = 10007
    files.set_mode(f"{TMP}/one", 0o755)
    files.set_mode(f"{TMP}/one/two", 0o755)
    with as_user(app):
        assert files.open_read(f"{TMP}/one/two/file").read() == b"content"
    files.set_mode(f"{TMP}/one", 0o700)
    with _Fails(errno.EACCES), as_user(app):
        files.open_read(f"{TMP}/one/two/file")
    assert files.open_read(f"{TMP}/one/two/file").read() == b"content"


@pytest.mark.parametrize(
    ("path", "number"),
    [("/system/x", errno.EROFS), ("/x", errno.EROFS), ("/sys/x", errno.EACCES), ("/proc/x", errno.ENOENT),
     ("/data/x", errno.EACCES), ("/data/data/x", errno.EACCES), ("/data/local/x", errno.EACCES)],
)  # fmt: skip
def test_shell_user_may_not_write_there(phone, path, number):
    with _Fails(number):
        phone.userland.files.open_write(path)


def test_app_reads_what_was_pushed_but_writes_only_in_its_own_places(phone):
    files = phone.userland.files
    phone.put(f"{TMP}/m", b"x", mode=0o644)
    phone.put(f"{TMP}/private", b"x", mode=0o600)
    with as_user(10147):
        assert files.open_read(f"{TMP}/m").read() == b"x"
        for attempt in (
            lambda: files.open_write(f"{TMP}/new"),
            lambda: files.open_write(f"{TMP}/m"),
            lambda: files.open_read(f"{TMP}/private"),
            lambda: files.list(TMP),
        ):
            with _Fails(errno.EACCES):
                attempt()


def test_nobody_changes_the_mode_of_the_root_folder(phone):
    with _Fails(errno.EROFS), as_user(0):
        phone.userland.files.set_mode("/", 0o700)
