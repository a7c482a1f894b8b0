"""Downloads from a web server with faults: whole or not at all, and each fault has its own words."""

from pathlib import Path

import pytest

from orchestrator.artifacts.fetch import Downloader, public_url
from orchestrator.errors import DownloadError, NotThereError, UsageError

CONTENT = bytes(range(256)) * 2000


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "downloads"


def download(downloader: Downloader, url: str) -> bytes:
    with downloader.fetched(url) as got:
        return got.path.read_bytes()


def leftovers(folder: Path) -> list[Path]:
    return list(folder.iterdir())


def test_a_cut_off_file_is_fetched_once_more(server, folder):
    server.put("/a", CONTENT, faults=[("cut", 100_000)])
    assert download(Downloader(folder), f"{server.url}/a") == CONTENT
    server.put("/a", CONTENT, faults=[("cut", 100_000), ("cut", 50_000)])
    with pytest.raises(DownloadError, match="can't be fetched"):
        download(Downloader(folder), f"{server.url}/a")
    assert leftovers(folder) == []


def test_shorter_file_than_announced_is_never_handed_over(server, folder):
    server.put("/a", b"x" * 900, faults=[("length", 1000)] * 2)
    with pytest.raises(
        DownloadError, match=r"can't be fetched: .*900 bytes read, 100 more expected"
    ):
        download(Downloader(folder), f"{server.url}/a")


def test_answer_in_chunks_that_is_cut_off_is_never_handed_over(server, folder):
    server.put("/a", CONTENT, faults=[("chunks", 70_000)] * 2)
    with pytest.raises(DownloadError, match="can't be fetched"):
        download(Downloader(folder), f"{server.url}/a")


def test_answer_whose_end_cannot_be_known_is_refused(server, folder):
    server.put("/a", CONTENT, faults=["no length"])
    with pytest.raises(
        DownloadError,
        match=r"the server sends no length, so a truncated file can't be detected",
    ):
        download(Downloader(folder), f"{server.url}/a")
    assert leftovers(folder) == []


def test_answer_in_chunks_is_read_to_its_end(server, folder):
    server.put("/a", CONTENT, faults=["chunked"])
    assert download(Downloader(folder), f"{server.url}/a") == CONTENT


def test_a_refusal_of_a_server_is_told_and_a_missing_file_is_another_error(server, folder):
    server.put("/a", CONTENT, faults=[500, 403])
    with pytest.raises(DownloadError, match="answers HTTP 403"):
        download(Downloader(folder), f"{server.url}/a")
    assert leftovers(folder) == []
    with pytest.raises(NotThereError, match=r"isn't there \(HTTP 404\)"):
        download(Downloader(folder), f"{server.url}/none")


def test_redirects_are_followed_to_places_that_may_be_used_only(server, folder):
    server.put("/a", CONTENT)
    server.put("/near", b"", faults=[("to", "/a")])
    assert download(Downloader(folder), f"{server.url}/near") == CONTENT
    for target in ("ftp://127.0.0.1/a", "file:///etc/passwd", "http://example.com/a"):
        server.put("/far", b"", faults=[("to", target)] * 2)
        with pytest.raises(DownloadError, match="isn't used"):
            download(Downloader(folder), f"{server.url}/far")
    server.put("/far", b"", faults=[("to", "https://example.com/a")] * 2)
    with pytest.raises(DownloadError, match=r"redirects to another scheme, .*: refused"):
        download(Downloader(folder), f"{server.url}/far")
    server.put("/round", b"", faults=[("to", "/round")] * 99)
    with pytest.raises(DownloadError, match="Exceeded 30 redirects"):
        download(Downloader(folder), f"{server.url}/round")


def test_mirror_is_looked_at_instead(server, folder):
    server.put("/copies/example.com/x/a", CONTENT)
    downloader = Downloader(folder, mirror=f"{server.url}/copies/")
    assert download(downloader, "https://example.com/x/a") == CONTENT
    for wrong in ("mirror.example", "ftp://x/", "/srv/mirror", "http://"):
        with pytest.raises(UsageError, match="can't be a mirror"):
            Downloader(folder, mirror=wrong)


def test_proxy_of_the_environment_is_used(server, folder, monkeypatch):
    monkeypatch.setenv("HTTP_PROXY", server.url)
    monkeypatch.setenv("http_proxy", server.url)
    monkeypatch.delenv("NO_PROXY", raising=False)
    monkeypatch.delenv("no_proxy", raising=False)
    server.put("/x/a", CONTENT)
    mirror = "http://mirror.example/"
    assert download(Downloader(folder, mirror=mirror), "https://x/a") == CONTENT
    assert server.asked[0][0] == "http://mirror.example/x/a"
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    with pytest.raises(DownloadError, match="can't be fetched"):
        download(Downloader(folder, mirror=mirror), "https://x/a")


@pytest.mark.parametrize(
    "url",
    [
        "http://example.com/a",
        "http://127.0.0.1.example.com/a",
        "ftp://example.com/a",
        "file:///etc/passwd",
        "https:///a",
        "http://[::1/a",
    ],
)
def test_addresses_that_are_not_safe_are_refused(url, folder):
    with pytest.raises(DownloadError, match="isn't used"):
        download(Downloader(folder), url)


def test_passwords_in_addresses_are_never_shown():
    assert public_url("https://user:secret@host:1/a?token=x#y") == "https://host:1/a"
    assert "secret" not in public_url("http://user:secret@[::1/a")


def test_a_folder_that_cannot_be_written_is_told_with_the_reason(server, tmp_path):
    (tmp_path / "taken").touch()
    server.put("/a", CONTENT)
    with pytest.raises(DownloadError, match=r"can't be written: (File exists|Not a directory)"):
        download(Downloader(tmp_path / "taken" / "downloads"), f"{server.url}/a")
