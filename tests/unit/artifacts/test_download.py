"""Downloads from a web server with faults: whole or not at all, and each fault has its own words."""

import threading
from pathlib import Path

import pytest

from orchestrator.artifacts.fetch import Downloader, parse_mirror, shown, why_refused
from orchestrator.errors import DownloadError, NotThereError, UsageError

CONTENT = bytes(range(256)) * 2000


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "downloads"


def download(downloader: Downloader, url: str) -> bytes:
    with downloader.fetched(url) as got:
        return got.path.read_bytes()


def leftovers(folder: Path) -> list[int]:
    return [path.stat().st_size for path in folder.iterdir() if not path.suffix]


def test_a_cut_off_file_is_fetched_once_more(server, folder):
    server.put("/a", CONTENT, faults=[("cut", 100_000)])
    assert download(Downloader(folder), f"{server.url}/a") == CONTENT
    server.put("/a", CONTENT, faults=[("cut", 100_000), ("cut", 50_000)])
    with pytest.raises(DownloadError, match="was cut off"):
        download(Downloader(folder), f"{server.url}/a")
    assert leftovers(folder) == []
    assert set(server.ranges()) == {""}


@pytest.mark.slow
def test_a_large_file_is_resumed_by_the_next_call(server, folder):
    large = bytes(200_000_000) + b"end"
    server.put("/a", large, faults=[("cut", 100_000), ("cut", 100_000)])
    with pytest.raises(DownloadError, match="was cut off") as raised:
        download(Downloader(folder), f"{server.url}/a")
    assert "run the same command again to resume" in raised.value.hint
    (kept,) = leftovers(folder)
    assert kept > 100_000
    assert download(Downloader(folder), f"{server.url}/a") == large
    assert server.ranges()[-1] == f"bytes={kept}-"


@pytest.mark.slow
@pytest.mark.parametrize("fault", [("range", "bytes 7-8/9"), 416])
def test_a_large_file_begins_again_where_the_server_answers_another_range(server, folder, fault):
    large = bytes(200_000_000) + b"end"
    server.put("/a", large, faults=[("cut", 100_000), ("cut", 0)])
    with pytest.raises(DownloadError, match="was cut off"):
        download(Downloader(folder), f"{server.url}/a")
    server.put("/a", large, faults=[fault])
    assert download(Downloader(folder), f"{server.url}/a") == large


def test_shorter_file_than_announced_is_never_handed_over(server, folder):
    server.put("/a", b"x" * 900, faults=[("length", 1000)] * 2)
    with pytest.raises(DownloadError, match=r"was cut off: .*900 bytes read, 100 more expected"):
        download(Downloader(folder), f"{server.url}/a")


@pytest.mark.parametrize(
    "size", [0, 70_000, 100_000], ids=["before the first", "in a chunk", "between two"]
)
def test_answer_in_chunks_that_is_cut_off_is_never_handed_over(server, folder, size):
    server.put("/a", CONTENT, faults=[("chunks", size)] * 2)
    with pytest.raises(DownloadError, match=r"was cut off"):
        download(Downloader(folder), f"{server.url}/a")


def test_answer_whose_end_cannot_be_known_is_refused(server, folder):
    server.put("/a", CONTENT, faults=["no length"])
    with pytest.raises(
        DownloadError,
        match=r"the server tells no length, so that a file that was cut off looks whole",
    ):
        download(Downloader(folder), f"{server.url}/a")
    assert leftovers(folder) == []


def test_answer_in_chunks_is_read_to_its_end(server, folder):
    server.put("/a", CONTENT, faults=["chunked"])
    assert download(Downloader(folder), f"{server.url}/a") == CONTENT


@pytest.mark.parametrize(
    ("status", "message"),
    [
        (404, r"isn't there \(HTTP 404\)"),
        (410, "isn't there"),
        (403, "needs a permission"),
        (500, "answers HTTP 500"),
    ],
)
def test_each_refusal_of_a_server_has_its_words(server, folder, status, message):
    server.put("/a", CONTENT, faults=[status, status])
    with pytest.raises(DownloadError, match=message):
        download(Downloader(folder), f"{server.url}/a")
    assert leftovers(folder) == []
    with pytest.raises(NotThereError):
        download(Downloader(folder), f"{server.url}/none")


def test_redirects_are_followed_within_their_scheme_only(server, folder):
    server.put("/a", CONTENT)
    server.put("/near", b"", faults=[("to", "/a")])
    assert download(Downloader(folder), f"{server.url}/near") == CONTENT
    for target in ("https://example.com/a", "ftp://127.0.0.1/a", "file:///etc/passwd"):
        server.put("/far", b"", faults=[("to", target)])
        with pytest.raises(DownloadError, match=r"redirects to another scheme, .*: refused"):
            download(Downloader(folder), f"{server.url}/far")
    server.put("/far", b"", faults=[("to", "http://example.com/a")])
    with pytest.raises(
        DownloadError, match=r"http://example\.com/a isn't used: plain http is taken from a mirror"
    ):
        download(Downloader(folder), f"{server.url}/far")
    server.put("/round", b"", faults=[("to", "/round")] * 9)
    with pytest.raises(DownloadError, match="more than 5 redirects"):
        download(Downloader(folder), f"{server.url}/round")


def test_one_file_is_downloaded_by_one_process_at_a_time(server, folder):
    server.put("/a", CONTENT, faults=["hang"])
    url = f"{server.url}/a"

    thread = threading.Thread(target=download, args=(Downloader(folder), url))
    thread.start()
    assert server.hanging.wait(60)
    with pytest.raises(DownloadError, match="is being downloaded by another benchfarm"):
        download(Downloader(folder), url)
    server.released.set()
    thread.join(timeout=60)
    assert not thread.is_alive()


def test_mirror_is_looked_at_instead(server, folder):
    server.put("/copies/example.com/x/a", CONTENT)
    everything = parse_mirror(f"{server.url}/copies/")
    assert download(Downloader(folder, mirror=everything), "https://example.com/x/a") == CONTENT
    server.put("/short/a", CONTENT)
    part = parse_mirror(f"https://example.com/x/={server.url}/short/")
    assert download(Downloader(folder, mirror=part), "https://example.com/x/a") == CONTENT
    assert part.rewritten("https://other.example/a") == "https://other.example/a"
    assert parse_mirror(" ") is None
    for wrong in ("mirror.example", "ftp://x/", "/srv/mirror", "http://", "http://x:y/"):
        with pytest.raises(UsageError, match="can't be a mirror"):
            parse_mirror(wrong)


def test_proxy_of_the_environment_is_used(server, folder, monkeypatch):
    monkeypatch.setenv("HTTP_PROXY", server.url)
    monkeypatch.setenv("http_proxy", server.url)
    monkeypatch.delenv("NO_PROXY", raising=False)
    monkeypatch.delenv("no_proxy", raising=False)
    server.put("/x/a", CONTENT)
    mirror = parse_mirror("http://mirror.example/")
    assert download(Downloader(folder, mirror=mirror), "https://x/a") == CONTENT
    assert server.asked[0][0] == "http://mirror.example/x/a"
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    with pytest.raises(DownloadError, match="the proxy can't be used"):
        download(Downloader(folder, mirror=mirror), "https://x/a")


@pytest.mark.parametrize(
    ("url", "refused"),
    [
        ("https://example.com/a", False),
        ("http://example.com/a", True),
        ("http://127.0.0.1:8000/a", False),
        ("http://[::1]/a", False),
        ("http://localhost/a", False),
        ("http://mirror.example/a", False),
        ("http://mirror.example:81/a", True),
        ("http://127.0.0.1.example.com/a", True),
        ("ftp://example.com/a", True),
        ("file:///etc/passwd", True),
        ("https:///a", True),
        ("http://[::1/a", True),
    ],
)
def test_addresses_that_may_be_used(url, refused):
    assert bool(why_refused(url, parse_mirror("http://mirror.example/x"))) is refused


def test_passwords_in_addresses_are_never_shown():
    assert shown("https://user:secret@host:1/a?token=x#y") == "https://host:1/a"
    assert "secret" not in shown("http://user:secret@[::1/a")


def test_a_folder_that_cannot_be_written_is_told_with_the_reason(server, tmp_path):
    (tmp_path / "taken").touch()
    server.put("/a", CONTENT)
    with pytest.raises(DownloadError, match=r"can't be written: (File exists|Not a directory)"):
        download(Downloader(tmp_path / "taken" / "downloads"), f"{server.url}/a")
