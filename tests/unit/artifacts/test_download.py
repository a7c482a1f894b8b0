"""Downloads from a web server with faults: whole or not at all, and each fault has its own words."""

import base64
import hashlib
import threading
from pathlib import Path

import pytest

from orchestrator.artifacts.download import Downloader, Validators, parse_mirror, shown, why_refused
from orchestrator.errors import DownloadError, NotThereError, UsageError
from tests.samples.manual_clock import ManualClock

CONTENT = bytes(range(256)) * 2000
DATE = "Fri, 20 Nov 2026 10:00:00 GMT"


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "downloads"


def download(downloader: Downloader, url: str, **options) -> bytes | None:
    with downloader.fetched(url, **options) as got:
        return None if got is None else got.path.read_bytes()


def leftovers(folder: Path) -> list[int]:
    return [path.stat().st_size for path in folder.iterdir() if not path.suffix]


@pytest.mark.parametrize(
    "validators", [{"etag": '"1"'}, {"last_modified": DATE}, {"etag": 'W/"1"', "last_modified": DATE}]
)
def test_cut_off_file_is_gone_on_with_at_once(server, folder, validators):
    server.put("/a", CONTENT, faults=[("cut", 100_000), ("cut", 50_000)], **validators)
    assert download(Downloader(folder), f"{server.url}/a") == CONTENT
    assert server.ranges() == ["", "bytes=100000-", "bytes=150000-"]
    condition = validators.get("last_modified") or validators["etag"]
    assert [headers.get("if-range") for _, headers in server.asked[1:]] == [condition] * 2


def test_download_that_keeps_breaking_off_is_kept_and_gone_on_with_by_the_next_call(server, folder):
    server.put("/a", CONTENT, etag='"1"', faults=[("cut", 10_000), ("cut", 0)])
    with pytest.raises(DownloadError, match=r"was cut off: .*; the 10000 bytes that came are kept") as raised:
        download(Downloader(folder), f"{server.url}/a")
    assert "run the same command again to resume" in raised.value.hint
    assert leftovers(folder) == [10_000]
    assert download(Downloader(folder), f"{server.url}/a") == CONTENT
    assert server.ranges()[-1] == "bytes=10000-"


def test_content_that_changed_between_two_parts_is_fetched_anew_and_never_mixed(server, folder):
    file = server.put("/a", b"x" * 1000, etag='"1"', faults=[("cut", 400), ("cut", 0)])
    with pytest.raises(DownloadError):
        download(Downloader(folder), f"{server.url}/a")
    server.put("/a", b"y" * 900, etag='"2"')
    assert download(Downloader(folder), f"{server.url}/a") == b"y" * 900
    # A server that doesn't understand If-Range and sends the rest of something else.
    server.put("/a", b"x" * 1000, etag='"1"', faults=[("cut", 400), ("cut", 0)])
    with pytest.raises(DownloadError):
        download(Downloader(folder), f"{server.url}/a")
    server.put("/a", b"y" * 900, etag='"2"', faults=[("ignore if-range", 400)])
    assert download(Downloader(folder), f"{server.url}/a") == b"y" * 900
    assert file.faults == []


def test_without_validators_a_cut_off_file_begins_again(server, folder):
    server.put("/a", CONTENT, faults=[("cut", 100_000)])
    assert download(Downloader(folder), f"{server.url}/a") == CONTENT
    assert server.ranges() == ["", ""]


@pytest.mark.parametrize("answer", ["bytes 7-8/9", "items 400-999/1000", "bytes 400-998/1000", ""])
def test_answer_to_another_range_is_not_believed(server, folder, answer):
    server.put("/a", b"x" * 1000, etag='"1"', faults=[("cut", 400), ("range", answer)])
    assert download(Downloader(folder), f"{server.url}/a") == b"x" * 1000


def test_range_beyond_the_end_begins_again(server, folder):
    server.put("/a", b"x" * 1000, etag='"1"', faults=[("cut", 400), 416])
    assert download(Downloader(folder), f"{server.url}/a") == b"x" * 1000


def test_shorter_file_than_announced_is_never_handed_over(server, folder):
    server.put("/a", b"x" * 900, etag='"1"', faults=[("length", 1000)] * 9)
    with pytest.raises(DownloadError, match=r"was cut off: .*900 bytes read, 100 more expected"):
        download(Downloader(folder), f"{server.url}/a")


@pytest.mark.parametrize("size", [0, 70_000, 100_000], ids=["before the first", "in a chunk", "between two"])
def test_answer_in_chunks_that_is_cut_off_is_never_handed_over(server, folder, size):
    server.put("/a", CONTENT, faults=[("chunks", size)] * 9)
    with pytest.raises(DownloadError, match=r"was cut off"):
        download(Downloader(folder), f"{server.url}/a")


def test_answer_whose_end_cannot_be_known_is_refused_unless_its_sum_is_told(server, folder):
    server.put("/a", CONTENT, faults=["no length"])
    with pytest.raises(DownloadError, match=r"the server tells no length, so that a file that was cut off looks whole"):
        download(Downloader(folder), f"{server.url}/a")
    assert leftovers(folder) == []
    digest = base64.b64encode(hashlib.md5(CONTENT).digest()).decode()
    server.put("/b", CONTENT, faults=["no length"], headers={"x-goog-hash": f"md5={digest}"})
    assert download(Downloader(folder), f"{server.url}/b") == CONTENT


def test_md5_that_the_server_tells_is_compared(server, folder):
    digest = base64.b64encode(hashlib.md5(CONTENT).digest()).decode()
    server.put("/good", CONTENT, headers={"x-goog-hash": f"crc32c=AAAAAA==, md5={digest}"})
    assert download(Downloader(folder), f"{server.url}/good") == CONTENT
    server.put("/bad", CONTENT[::-1], headers={"x-goog-hash": f"crc32c=AAAAAA==, md5={digest}"})
    with pytest.raises(DownloadError, match=r"MD5 differs"):
        download(Downloader(folder), f"{server.url}/bad")
    assert leftovers(folder) == []


def test_answer_in_chunks_is_read_to_its_end_and_an_empty_one_refused(server, folder):
    server.put("/a", CONTENT, faults=["chunked"])
    assert download(Downloader(folder), f"{server.url}/a") == CONTENT
    server.put("/b", b"")
    with pytest.raises(DownloadError, match="has the wrong length: 0 bytes came"):
        download(Downloader(folder), f"{server.url}/b")


@pytest.mark.parametrize(
    ("status", "message"),
    [(404, r"isn't there \(HTTP 404\)"), (410, "isn't there"), (403, "needs a permission"), (500, "answers HTTP 500")],
)
def test_each_refusal_of_a_server_has_its_words(server, folder, status, message):
    server.put("/a", CONTENT, faults=[status])
    with pytest.raises(DownloadError, match=message):
        download(Downloader(folder), f"{server.url}/a")
    assert leftovers(folder) == []
    with pytest.raises(NotThereError):
        download(Downloader(folder), f"{server.url}/none")


@pytest.mark.slow
def test_silent_server_is_abandoned(server, folder):
    server.put("/a", CONTENT, etag='"1"', faults=["hang", ("hang after", 5000)])
    with pytest.raises(DownloadError, match=r"no answer for 0\.2 s"):
        download(Downloader(folder, stall_s=0.2), f"{server.url}/a")
    # Long enough for what comes before the silence, however busy this computer is.
    with pytest.raises(DownloadError, match="no answer for 3 s"):
        download(Downloader(folder, stall_s=3.0), f"{server.url}/a")
    assert leftovers(folder) == [5000]


def test_download_that_takes_too_long_is_ended_and_kept(server, folder):
    server.put("/a", CONTENT, etag='"1"')
    clock = ManualClock()
    with pytest.raises(DownloadError, match=r"wasn't whole after 60 s, \d+ bytes came and are kept") as raised:
        download(
            Downloader(folder, deadline_s=60, clock=clock), f"{server.url}/a", on_progress=lambda *_: clock.wait(61)
        )
    assert "--timeout" in raised.value.hint
    assert leftovers(folder)[0] > 0
    assert download(Downloader(folder), f"{server.url}/a") == CONTENT


def test_redirects_are_followed_within_their_scheme_only(server, folder):
    server.put("/a", CONTENT)
    server.put("/near", b"", faults=[("to", "/a")])
    assert download(Downloader(folder), f"{server.url}/near") == CONTENT
    for target in ("https://example.com/a", "ftp://127.0.0.1/a", "file:///etc/passwd"):
        server.put("/far", b"", faults=[("to", target)])
        with pytest.raises(DownloadError, match=r"redirects to another scheme, .*: refused"):
            download(Downloader(folder), f"{server.url}/far")
    server.put("/far", b"", faults=[("to", "http://example.com/a")])
    with pytest.raises(DownloadError, match=r"http://example\.com/a isn't used: plain http is taken from a mirror"):
        download(Downloader(folder), f"{server.url}/far")
    server.put("/round", b"", faults=[("to", "/round")] * 9)
    with pytest.raises(DownloadError, match="more than 5 redirects"):
        download(Downloader(folder), f"{server.url}/round")


def test_content_that_is_known_is_not_sent_again(server, folder):
    server.put("/a", CONTENT, etag='"1"', last_modified=DATE)
    downloader, url = Downloader(folder), f"{server.url}/a"
    assert download(downloader, url, known=Validators(etag='"1"')) is None
    assert download(downloader, url, known=Validators(last_modified=DATE)) is None
    assert download(downloader, url, known=Validators(etag='"0"')) == CONTENT
    assert downloader.has_still(url, Validators(etag='"1"'))
    assert not downloader.has_still(url, Validators(etag='"0"'))


def test_one_file_is_downloaded_by_one_process_at_a_time(server, folder):
    server.put("/a", CONTENT, faults=["hang"])
    url = f"{server.url}/a"

    def first() -> None:
        with pytest.raises(DownloadError):
            download(Downloader(folder), url)

    thread = threading.Thread(target=first)
    thread.start()
    assert server.hanging.wait(60)
    with pytest.raises(DownloadError, match="is being downloaded by another benchfarm"):
        download(Downloader(folder), url)
    server.released.set()
    thread.join(timeout=60)
    assert not thread.is_alive()


def test_compressed_answer_is_refused(server, folder):
    server.put("/a", CONTENT, headers={"Content-Encoding": "gzip"})
    with pytest.raises(DownloadError, match="sends it compressed"):
        download(Downloader(folder), f"{server.url}/a")


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
