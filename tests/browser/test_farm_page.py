"""The live page of the farm in a real browser, on a real PostgreSQL server, as ``benchfarm serve``
serves it."""

import json
import re
import signal
import urllib.error
import urllib.request

import pytest

from orchestrator.extensions.farm.queue import FarmQueue
from orchestrator.store.opening import open_store
from tests.browser.conftest import PHONE, serious_faults
from tests.conftest import installed, poll_until
from tests.samples import live_farm
from tests.samples.command import Cli
from tests.samples.history_lab import fill
from tests.samples.postgresql import private_cluster

expect = installed("playwright.sync_api").expect
TOKEN = "a-token-that-nobody-guesses"


@pytest.fixture
def database(postgresql, postgresql_template):
    return postgresql.url(postgresql.create(postgresql_template))


@pytest.fixture
def queue(database):
    with FarmQueue(database) as opened:
        live_farm.fill_queue(opened)
        yield opened


@pytest.fixture
def store(database):
    opened = open_store(database)
    fill(opened, nights=3)
    yield opened
    opened.close()


@pytest.fixture
def left(store):
    """The runs of tonight that aren't stored yet."""
    return live_farm.begin_tonight(store)


@pytest.fixture
def address(queue, left, database, tmp_path):
    """The server's address; its token is needed for actions only."""
    cli = Cli(home=tmp_path / "home")
    words = ("serve --port 0 --anyone-reads", "--token", TOKEN)
    process = cli.start(*words, BENCHFARM_STORE=database)
    try:
        yield process.stderr.readline().strip()
    finally:
        process.send_signal(signal.SIGINT)
        # Also while a page is open, which it keeps up to date.
        assert process.wait(timeout=60) == 0
        assert "Traceback" not in process.stderr.read()


@pytest.fixture
def open_workspace(open_address, address):
    def open_one():
        page = open_address(f"{address}farm", within=address)
        expect(page.locator("#live-state")).to_have_text("live")
        return page

    return open_one


def opened(url):
    """The answer of a server, also one that refuses."""
    try:
        return urllib.request.urlopen(url, timeout=60)
    except urllib.error.HTTPError as error:
        return error


def row(page, serial):
    return page.locator("#devices tbody tr").filter(has_text=serial)


def test_the_api_takes_no_text_that_is_none_and_lists_jobs_by_pages(address):
    def asked(path, *, body=None, method="GET"):
        request = urllib.request.Request(f"{address}api/v1/{path}", data=body, method=method)
        request.add_header("Authorization", f"Bearer {TOKEN}")
        request.add_header("Content-Type", "application/json")
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return answer.status, json.load(answer)
        except urllib.error.HTTPError as error:
            return error.code, json.load(error)

    for escape in (r"\ud800", r"\u0000"):
        status, answer = asked("pauses", method="POST", body=f'{{"scope": "{escape}"}}'.encode())
        assert (status, "no text" in answer["error"]) == (422, True)
    assert asked("pauses", method="POST", body=rb'{"scope": "phone:\ud83d\ude00"}')[0] != 422
    status, answer = asked("submissions/gone", method="DELETE")
    assert (status, answer["error"]) == (404, "there is no submission 'gone'")
    _, jobs = asked("jobs")
    assert len(jobs) == 2
    assert asked("jobs?limit=1") == (200, jobs[:1])
    assert asked("jobs?offset=1") == (200, jobs[1:])
    assert asked("jobs?offset=2") == (200, [])


def test_phones_queue_and_tonight_are_shown_and_follow_without_a_reload(
    open_workspace, queue, store, left
):
    page = open_workspace()
    expect(page.locator("#devices tbody tr")).to_have_count(len(live_farm.TITLES))
    working = row(page, live_farm.WORKING)
    for text in ("Google Pixel 4", "measuring", "mobilenet", "4 of 6", "lab-1"):
        expect(working).to_contain_text(text)
    expect(working.locator('[data-label="heat °C"]')).to_have_text("31")
    expect(working.locator('[data-label="battery %"]')).to_have_text("83")
    expect(row(page, live_farm.KEPT_OUT)).to_contain_text("quarantined")
    expect(row(page, live_farm.KEPT_OUT)).to_contain_text("its reference workload moved by 12.0 %")
    expect(row(page, live_farm.BROKEN)).to_contain_text("accept this computer's key")
    expect(row(page, live_farm.AWAY)).to_contain_text("away")
    expect(row(page, live_farm.VIRTUAL).locator(".badge.virtual")).to_have_text("virtual")
    expect(page.locator("#night")).to_contain_text(
        re.compile(r"4\s*invocations with a result of 6|invocations with a result of 6\s*4")
    )
    expect(page.locator("#night-title")).to_have_text(f"Since noon of {live_farm.tonight()}")
    expect(page.locator("#jobs tbody tr")).to_have_count(2)
    page.evaluate("window.isTheSame = true")
    store.append_run(left[0])
    expect(working).to_contain_text("5 of 6")
    queue.pause("phone:pixel-6-a")
    expect(row(page, live_farm.FREE)).to_contain_text("paused: phone:pixel-6-a")
    expect(row(page, live_farm.FREE).locator(".badge.v-warning")).to_have_text("paused")
    assert page.evaluate("window.isTheSame")
    # Nobody who hasn't shown the token is offered anything.
    assert page.locator("[data-act]").filter(visible=True).count() == 0
    # It is read on a telephone, and by everybody.
    page.set_viewport_size(PHONE)
    assert page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]
    assert serious_faults(page) == []


def test_while_the_database_is_away_pages_say_so_and_continue_by_themselves(open_address, tmp_path):
    with private_cluster() as cluster:
        database = cluster.url(cluster.create())
        with FarmQueue(database) as queue:
            live_farm.fill_queue(queue)
        open_store(database).close()
        cli = Cli(home=tmp_path / "home")
        process = cli.start("serve --port 0", BENCHFARM_STORE=database)
        try:
            url = process.stderr.readline().strip()
            page = open_address(f"{url}farm", within=url)
            expect(page.locator("#live-state")).to_have_text("live")
            cluster.stop()
            expect(page.locator("#fault")).to_contain_text("is read again by itself")
            expect(page.locator("#live-state")).to_have_text("not up to date")
            expect(row(page, live_farm.WORKING)).to_be_visible()
            # A page that was made a moment ago is good for that moment.
            poll_until(lambda: opened(url).status == 503, "the page to be refused", 60.0)
            refused = opened(url)
            assert refused.headers["Retry-After"] == "5"
            assert "can't be read now" in refused.read().decode()
            cluster.start()
            expect(page.locator("#live-state")).to_have_text("live")
            expect(page.locator("#fault")).to_have_count(0)
            assert opened(url).status == 200
        finally:
            process.send_signal(signal.SIGINT)
            assert process.wait(timeout=60) == 0
        assert "Traceback" not in process.stderr.read()


def test_who_has_the_token_steers_the_farm(open_workspace, queue, address):
    page = open_workspace()
    page.on("dialog", lambda dialog: dialog.accept())
    page.get_by_label("Token").fill(TOKEN)
    page.get_by_role("button", name="Show the buttons").click()
    row(page, live_farm.FREE).get_by_role("button", name="Pause phone").click()
    expect(row(page, live_farm.FREE)).to_contain_text("paused")
    assert queue.pauses() == [f"phone:{live_farm.FREE}"]
    row(page, live_farm.FREE).get_by_role("button", name="Resume phone").click()
    expect(row(page, live_farm.FREE)).to_contain_text("free")
    row(page, live_farm.KEPT_OUT).get_by_role("button", name="Release").click()
    expect(page.locator("#told")).to_contain_text("its host lab-1 releases it")
    assert queue.take_releases("lab-1") == [live_farm.KEPT_OUT]
    page.get_by_role("button", name=f"Cancel {live_farm.SUBMISSION}").click()
    expect(page.locator("#told")).to_contain_text("1 job cancelled, 1 being stopped")
    assert {job["status"] for job in queue.jobs(live_farm.SUBMISSION)} == {"runs", "cancelled"}
    # Neither the address nor what the browser keeps has it.
    assert TOKEN not in page.url
    assert TOKEN not in page.evaluate(
        "JSON.stringify([localStorage, sessionStorage, document.cookie])"
    )
