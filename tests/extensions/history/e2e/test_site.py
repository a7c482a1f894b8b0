"""``benchfarm history site`` and ``benchfarm serve`` as installed commands, on a store of weeks."""

from __future__ import annotations

import http.client
import http.server
import json
import re
import shutil
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import ClassVar
from urllib.parse import urlsplit

import pytest

from orchestrator.records.case import CampaignId
from orchestrator.records.verdict import Finding, Severity
from orchestrator.store.opening import open_store
from tests.conftest import poll_until
from tests.samples.history_lab import NIGHTS, fill
from tests.samples.places import REPO

TOKEN = "a-token-that-nobody-guesses"


@pytest.fixture(scope="module")
def filled(tmp_path_factory):
    """Weeks of a lab in a store."""
    path = tmp_path_factory.mktemp("filled") / "store.sqlite"
    store = open_store(path)
    fill(store)
    store.close()
    return path


@pytest.fixture
def weeks(cli, filled):
    """The command on a store with weeks of a lab, one of its own."""
    cli.home.mkdir(parents=True, exist_ok=True)
    shutil.copy(filled, cli.home / "store.sqlite")
    return cli


@contextmanager
def served(cli, *options: str, ended_by: int = signal.SIGINT) -> Iterator[tuple[str, int]]:
    """Run ``benchfarm serve`` and give what it told: its address."""
    process = cli.start("serve --port 0", *options)
    try:
        url = process.stderr.readline().strip()
        assert url.startswith("http://"), url + process.stderr.read()
        yield url
    finally:
        process.send_signal(ended_by)
        assert process.wait(timeout=300) == 0
        assert "Traceback" not in process.stderr.read()


def newest_of(cli) -> CampaignId:
    store = open_store(cli.home / "store.sqlite")
    newest = store.campaigns(limit=1)[0].campaign_id
    store.close()
    return newest


def read_again(cli) -> None:
    """Read something else from a run of the newest campaign, though no other latency."""
    store = open_store(cli.home / "store.sqlite")
    run = next(iter(store.runs(campaign_ids=[newest_of(cli)])))
    finding = Finding(
        code="reference-moved", severity=Severity.INFO, message="seen when it was read again"
    )
    report = replace(run.report, overall_memory_mib=1234.5)
    verdict = replace(run.verdict, findings=(finding,))
    store.replace_reading(replace(run, report=report, verdict=verdict))
    store.close()


def ask(url: str, path: str = "/", method: str = "GET", **headers: str):
    """Send one request without following anything; return status, headers and text."""
    parts = urlsplit(url)
    connection = http.client.HTTPConnection("127.0.0.1", parts.port, timeout=60)
    connection.putrequest(method, path, skip_host="Host" in headers)
    for name, value in headers.items():
        connection.putheader(name.replace("_", "-"), value)
    connection.endheaders()
    response = connection.getresponse()
    body = response.read().decode()
    connection.close()
    return response.status, dict(response.headers), body


def without_farm(page: str) -> str:
    """Return a served page without its link to the live page of the farm, which a folder of pages
    doesn't have."""
    text, count = re.subn(r' *<a href="(\.\./)?farm">Farm</a>\n', "", page)
    assert count == 1
    return text


def test_site_is_written_once_and_renewed_when_a_note_is_added_or_a_run_is_read_again(
    weeks, tmp_path
):
    out = tmp_path / "public"

    def written():
        words = ("history", "site", "--out", out, "--since", "2026-04-08", "--json")
        return weeks(*words).ok().json

    first = written()
    assert (first["nights"], first["reports"]) == (2, 2)
    assert first["unchanged"] == first["removed"] == 0
    again = written()
    assert (again["written"], again["unchanged"]) == (0, first["written"])
    weeks("history expect serial=pixel-6-a,delegate=gpu 2026-04-09", "new driver").ok()
    renewed = written()
    assert (renewed["written"], renewed["removed"]) == (2, 0)
    newest = newest_of(weeks)
    read_again(weeks)
    assert written()["written"] == 1
    assert "seen when it was read again" in (out / "campaigns" / f"{newest}.html").read_text()
    refused = weeks("history site --out", tmp_path / "b", "--since", "yesterday")
    assert refused.exit_code == 2
    assert "isn't a date" in refused.stderr


def test_site_of_an_empty_store_says_that_there_is_nothing(cli, tmp_path):
    cli("history site --out", tmp_path / "out").ok()
    assert "Nothing was measured in this time." in (tmp_path / "out" / "index.html").read_text()


def test_served_pages_are_those_of_the_site(weeks, tmp_path):
    weeks("history site --out", tmp_path / "out").ok()
    with served(weeks) as url:
        assert without_farm(ask(url)[2]) == (tmp_path / "out" / "index.html").read_text()
        series = sorted((tmp_path / "out" / "series").iterdir())[0]
        status, headers, body = ask(url, f"/series/{series.name}")
        assert (status, without_farm(body)) == (200, series.read_text())
        assert "script-src 'self';" in headers["content-security-policy"]
        assert "default-src 'none'" in headers["content-security-policy"]
        assert ask(url, f"/series/{series.name}", If_None_Match=headers["etag"])[0] == 304
        for asset in (tmp_path / "out" / "assets").iterdir():
            assert ask(url, f"/assets/{asset.name}")[2] == asset.read_text()
        report = next(
            path for path in (tmp_path / "out" / "campaigns").iterdir() if path.name != "index.html"
        )
        status, headers, body = ask(url, f"/campaigns/{report.name}")
        assert (status, body) == (200, report.read_text())
        assert "'sha256-" in headers["content-security-policy"]
        assert "script-src 'self' 'unsafe-inline'" not in headers["content-security-policy"]


def test_served_pages_follow_the_store(weeks):
    with served(weeks) as url:
        assert "a note of today" not in ask(url)[2]
        weeks("history expect serial=pixel-4-a,delegate=gpu 2026-03-31", "a note of today").ok()
        # They are gathered again when a time has passed that depends on how long gathering takes.
        poll_until(lambda: "a note of today" in ask(url)[2], "the note is shown", 120)
        page = f"/campaigns/{newest_of(weeks)}.html"
        assert "seen when it was read again" not in ask(url, page)[2]
        read_again(weeks)
        poll_until(
            lambda: "seen when it was read again" in ask(url, page)[2],
            "the new reading is shown",
            120,
        )


@pytest.mark.parametrize(
    "path",
    ["/../store.sqlite", "/series/..%2f..%2fstore.sqlite", "/assets/../index.html", "/campaigns/none.html", "/docs",
     "/openapi.json", "//etc/passwd", "/series/%00.html"],
)  # fmt: skip
def test_only_pages_are_served(live, path):
    assert ask(live, path)[0] == 404


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS", "PATCH"])
def test_nothing_can_be_changed(live, method):
    assert ask(live, "/", method)[0] == 405


def test_the_api_names_the_methods_of_a_path(live):
    status, headers, body = ask(live, "/api/v1/pauses")
    assert (status, headers["allow"]) == (405, "POST")
    assert '"error":"Method Not Allowed"' in body


@pytest.mark.parametrize(
    "host",
    ["evil.example", "127.0.0.1.evil.example", "", "10.0.0.1", "[::1]evil.example", "localhost:80:80",
     "[::1]:80.evil.example", "localhost@evil.example", "[localhost", "localhost:evil.example"],
)  # fmt: skip
def test_a_request_for_another_host_gets_nothing(live, host):
    status, _, body = ask(live, Host=host)
    assert status in {400, 421}
    assert "mobilenet" not in body


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:8080", "127.0.0.1:1", "[::1]:80"])
def test_loopback_is_known_by_its_names(live, host):
    assert ask(live, Host=host)[0] == 200


@pytest.fixture(scope="module")
def live(tmp_path_factory, make_cli, filled):
    """A server on a store of weeks, for the tests that change nothing."""
    cli = make_cli(tmp_path_factory.mktemp("home"))
    shutil.copy(filled, cli.home / "store.sqlite")
    with served(cli) as url:
        yield url


def test_the_api_answers_what_its_description_says(live):
    described = json.loads(ask(live, "/api/v1/openapi.json")[2])
    known = described["components"]["schemas"]
    seen = set()
    newest = json.loads(ask(live, "/api/v1/campaigns?limit=1")[2])[0]["campaign_id"]
    key = json.loads(ask(live, "/api/v1/series?limit=1")[2])[0]["series_key"]
    asked = {
        "/farm": "", "/devices": "", "/jobs": "", "/campaigns": "?limit=2&offset=1", "/series": "?limit=5",
        "/runs": f"?campaign={newest}&limit=3", "/series/{series_key}": "", "/changes": "",
        "/submissions/{submission}/left_out": "",
    }  # fmt: skip
    for path, query in asked.items():
        schema = described["paths"][path]["get"]["responses"]["200"]["content"]["application/json"][
            "schema"
        ]
        status, headers, body = ask(live, f"/api/v1{path.replace('{series_key}', key)}{query}")
        assert (status, headers["content-type"]) == (200, "application/json")
        answer = json.loads(body)
        name = (schema.get("items") or schema)["$ref"].rpartition("/")[2]
        for item in answer if isinstance(answer, list) else [answer]:
            assert set(item) == set(known[name]["properties"])
            seen.add(name)
    # Phones without a figure in the last hours, and a queue's jobs, aren't there to be described.
    assert seen == {
        "FarmAnswer",
        "CampaignAnswer",
        "RunAnswer",
        "SeriesAnswer",
        "OneSeriesAnswer",
        "ChangeAnswer",
    }
    page = (REPO / "docs" / "reference" / "monitoring.md").read_text("utf-8")
    assert all(f"/api/v1{path.partition('{')[0]}" in page for path in described["paths"])
    reads = {path for path, item in described["paths"].items() if "get" in item}
    assert reads == {*asked, "/access"}


def test_the_api_gives_a_campaign_s_runs_page_by_page(live):
    newest = json.loads(ask(live, "/api/v1/campaigns?limit=1")[2])[0]["campaign_id"]

    def runs(query):
        return json.loads(ask(live, f"/api/v1/runs?campaign={newest}&{query}")[2])

    whole = runs("limit=100")
    assert 4 < len(whole) < 100
    assert runs("limit=2&offset=3") == whole[3:5]
    assert runs(f"offset={len(whole) - 1}") == whole[-1:]
    assert runs(f"offset={len(whole)}") == []


def test_the_api_tells_of_the_changes_that_the_history_has(live):
    found = json.loads(ask(live, "/api/v1/changes")[2])
    slow = [item for item in found if "pixel-4-a" in item["label"]]
    assert {item["state"] for item in slow} == {"not confirmed yet"}
    assert all(item["low"] < 1.2 < item["high"] and item["is_recent"] for item in slow)
    assert len(slow) == 2
    assert {item["state"] for item in found if not item["is_recent"]} == {"expected"}
    status, _, body = ask(live, f"/api/v1/series/{slow[0]['series_key']}")
    assert (status, len(json.loads(body)["nights"])) == (200, NIGHTS)
    assert ask(live, f"/{slow[0]['page']}")[0] == 200


@pytest.mark.parametrize(
    ("path", "status", "said"),
    [("/runs?campaign=none", 404, "no campaign 'none'"), ("/runs?campaign=x&limit=0", 422, "limit"),
     (f"/runs?campaign=x&offset={2**63 - 1}", 422, "offset"), (f"/jobs?offset={2**63 - 1}", 422, "offset"),
     ("/runs?campaign=%00", 422, "no text"), ("/series/%00", 422, "no text"),
     ("/series/none", 404, "no series"), ("/nothing", 404, '"error":"Not Found"')],
)  # fmt: skip
def test_the_api_says_what_is_wrong_with_a_question(live, path, status, said):
    found, _, body = ask(live, f"/api/v1{path}")
    assert found == status
    assert said in body


@pytest.mark.parametrize(
    ("method", "path"),
    [("POST", "/pauses"), ("DELETE", "/pauses?scope=farm"), ("DELETE", "/submissions/nightly"),
     ("DELETE", "/quarantine/pixel-4-a")],
)  # fmt: skip
def test_nothing_is_steered_without_the_token(live, method, path):
    """Which is every path that the description has beside those that read."""
    status, _, body = ask(live, f"/api/v1{path}", method)
    assert status == 403
    assert "started without a token" in body
    whole = json.loads(ask(live, "/api/v1/openapi.json")[2])
    described = whole["paths"]
    assert sum(name != "get" for item in described.values() for name in item) == 4
    scheme = {"type": "http", "scheme": "bearer"}
    assert whole["components"]["securitySchemes"] == {"token": scheme}
    needs = {
        (path, name)
        for path, item in described.items()
        for name, known in item.items()
        if known.get("security") == [{"token": []}]
    }
    changing = {(path, name) for path, item in described.items() for name in item if name != "get"}
    assert needs == {*changing, ("/access", "get")}


def test_the_farm_s_page_is_drawn_by_the_server_and_its_part_is_sent_again_only_when_it_changed(
    live,
):
    status, headers, page = ask(live, "/farm")
    assert (status, "connect-src 'self'" in headers["content-security-policy"]) == (200, True)
    assert "not confirmed yet" in page
    status, headers, part = ask(live, "/farm/now")
    assert (status, part in page) == (200, True)
    assert ask(live, "/farm/now", If_None_Match=headers["etag"])[0] == 304


def test_a_token_is_asked_for_and_leaves_the_address_and_a_cookie_or_a_large_request_steers_nothing(
    weeks,
):
    with served(
        weeks, "--host", "0.0.0.0", "--token", TOKEN, "--allow-host", "farm.example"
    ) as url:
        # What it was given stays out of the log.
        assert TOKEN not in url
        assert ask(url)[0] == ask(url, "/api/v1/farm")[0] == 401
        assert ask(url, "/?token=wrong")[0] == 401
        assert ask(url, Authorization="Bearer wrong")[0] == 401
        assert ask(url, Authorization=f"Basic {TOKEN}")[0] == 401
        bearer = {"Authorization": f"Bearer {TOKEN}"}
        assert ask(url, **bearer)[0] == 200
        assert ask(url, **bearer, Host="farm.example")[0] == 200
        assert ask(url, **bearer, Host="evil.example")[0] == 421
        status, headers, _ = ask(url, f"/campaigns/?token={TOKEN}")
        assert (status, headers["location"]) == (303, "./")
        assert "HttpOnly" in headers["set-cookie"]
        assert "SameSite=strict" in headers["set-cookie"]
        cookie = headers["set-cookie"].partition(";")[0]
        assert ask(url, Cookie=cookie)[0] == ask(url, "/api/v1/farm", Cookie=cookie)[0] == 200
        # What a browser keeps only reads, and isn't the token.
        key = cookie.partition("=")[2]
        assert TOKEN not in cookie
        assert ask(url, Cookie=f"benchfarm-token={TOKEN}")[0] == 401
        assert ask(url, Authorization=f"Bearer {key}")[0] == 401
        assert ask(url, "/metrics")[0] == 401
        status, headers, numbers = ask(url, "/metrics", **bearer)
        assert (status, headers["content-type"][:25]) == (200, "text/plain; version=0.0.4")
        assert 'benchfarm_up{source="store"} 1.0' in numbers.splitlines()
        assert ask(url, f"/%5cevil.example?token={TOKEN}")[1]["location"] == "./%5Cevil.example"
        assert ask(url, "/api/v1/pauses?scope=farm", "DELETE", Cookie=cookie)[0] == 401
        assert ask(url, "/api/v1/access", Cookie=cookie)[0] == 401
        assert (
            ask(url, "/api/v1/pauses?scope=farm", "DELETE", Authorization="Bearer wrong")[0] == 401
        )
        # It is let in, and there is no farm behind this store.
        status, _, body = ask(url, "/api/v1/pauses?scope=farm", "DELETE", **bearer)
        assert (status, "no farm's queue" in body) == (409, True)
        assert ask(url, "/api/v1/pauses", "POST", **bearer, Content_Length="1000000000")[0] == 413


def test_a_token_can_be_made_up_and_a_port_that_is_taken_is_told(weeks):
    with served(weeks, "--token", "new", ended_by=signal.SIGTERM) as url:
        token = url.partition("?token=")[2]
        assert len(token) >= 32
        assert ask(url)[0] == 401
        assert ask(url, f"/?token={token}")[0] == 303
        refused = weeks("serve --port", str(urlsplit(url).port))
    assert refused.exit_code == 2
    assert "can't listen" in refused.stderr


class Hook(http.server.BaseHTTPRequestHandler):
    """A webhook that keeps what it gets."""

    got: ClassVar[list] = []

    def do_POST(self):
        self.got.append(
            (self.path, self.headers, self.rfile.read(int(self.headers["content-length"])))
        )
        # This one is busy at first: the message comes again.
        self.send_response(503 if len(self.got) == 1 else 200)
        self.end_headers()

    def log_message(self, *_):
        """Say nothing."""


def test_a_slowdown_is_sent_to_a_webhook_until_somebody_expects_it(weeks, tmp_path):
    Hook.got.clear()
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Hook) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        address = f"http://127.0.0.1:{server.server_address[1]}/hooks/secret"
        (tmp_path / "hook").write_text(f"{address}\n")
        told = weeks("history changes --notify", f"@{tmp_path / 'hook'}")
        assert (told.exit_code, told.stderr) == (1, "")
        path, headers, body = Hook.got[-1]
        assert (len(Hook.got), path) == (2, "/hooks/secret")
        assert headers["content-type"] == "application/json"
        message = json.loads(body)
        assert message["text"] in told.stdout
        changes = [item for group in message["report"]["groups"] for item in group["changes"]]
        slower = [item for item in changes if item["case"]["serial"] == "pixel-4-a"]
        assert [item["low"] < 1.2 < item["high"] for item in slower] == [True, True]
        # Where nobody listens, that is said, without the address; the exit code stays.
        lost = weeks("history changes --notify http://127.0.0.1:1/hooks/secret")
        assert lost.exit_code == 1
        assert "the message to 127.0.0.1:1 wasn't delivered" in lost.stderr
        assert "secret" not in lost.said
        # Somebody knows the reason: no alarm, and no message.
        night = slower[0]["night"]
        weeks("history expect serial=pixel-4-a,delegate=gpu", night, "a new driver").ok()
        weeks("history changes --notify", address).ok()
        assert len(Hook.got) == 2
        server.shutdown()


def test_what_isnt_installed_is_told(weeks, tmp_path):
    (tmp_path / "fastapi.py").write_text(
        "raise ModuleNotFoundError(\"No module named 'fastapi'\", name='fastapi')"
    )
    # What starts others has fastapi already.
    refused = replace(weeks, is_cold=True)("serve", "--port", "0", PYTHONPATH=str(tmp_path))
    assert refused.exit_code == 2
    assert "pip install 'benchfarm[serve]'" in refused.stderr


def test_a_report_of_several_campaigns_shows_the_newest_figures_and_says_so(weeks, tmp_path):
    newest, older = (weeks.json("results list")[place]["campaign_id"] for place in (0, 1))
    both = weeks("report --format json", newest, older, "--out", tmp_path / "both.json")
    alone = weeks("report --format json", newest, "--out", tmp_path / "alone.json")
    both.ok(), alone.ok()
    figures = {}
    for name in ("both", "alone"):
        found = json.loads((tmp_path / f"{name}.json").read_text())
        figures[name] = [
            (row["case_key"], row["invocations_used"], row["median_us"]) for row in found["results"]
        ]
    assert len(figures["alone"]) == 8
    assert figures["both"] == figures["alone"]
    weeks("report", newest, older, "--out", tmp_path / "both.html").ok()
    assert "8 cases ran in several of these campaigns" in (tmp_path / "both.html").read_text()
