"""The operator's way from nothing to an alarm: a store, a worker, a night, a stored plan, a
slowdown, a message."""

from __future__ import annotations

import contextlib
import dataclasses
import http.server
import json
import re
import signal
import threading
import urllib.request
import uuid
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from orchestrator.extensions.farm.queue import FarmQueue
from orchestrator.records.campaign import Campaign
from orchestrator.records.case import CampaignId, RunId
from orchestrator.records.run import RunRecord
from orchestrator.store.opening import Store, open_store
from tests.conftest import poll_until
from tests.samples.farm_hosts import Host
from tests.samples.places import MODELS

if TYPE_CHECKING:
    from tests.samples.command import Cli
    from tests.samples.postgresql import Cluster

TOKEN = "a-token-that-nobody-guesses"
NIGHTS, SLOWER = 24, 5
#: What the last nights take longer.
PLANTED = 1.05


class Hook(http.server.BaseHTTPRequestHandler):
    """A webhook that keeps what it gets."""

    got: list[tuple[str, str, str]]

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"])).decode()
        self.got.append((self.path, self.headers["content-type"], body))
        # This one is busy at first: the message comes again.
        self.send_response(503 if len(self.got) == 1 else 200)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture
def hook() -> Iterator[tuple[str, list[tuple[str, str, str]]]]:
    handler = type("OwnHook", (Hook,), {"got": []})
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}/hooks/secret", handler.got
        server.shutdown()


@pytest.fixture
def host(postgresql: Cluster, make_cli: Callable[[Path], Cli], tmp_path: Path) -> Iterator[Host]:
    """One computer with a phone and a worker, and a new database."""
    cli = make_cli(tmp_path / "home")
    up = cli("virtual", "up", "pixel-3", "--speed", 40, "--json").ok().json
    host = Host(
        name="lab-1",
        cli=cli,
        url=postgresql.url(postgresql.create()),
        serial=up["phones"][0]["serial"],
    )
    try:
        _ = host.worker
        with FarmQueue(host.url) as queue:
            poll_until(
                lambda: any(row["facts"] for row in queue.phones()), "the phone is announced", 300
            )
        yield host
    finally:
        host.rest()
        cli("virtual", "down")


def earlier_nights(store: Store, campaign: Campaign, run: RunRecord) -> None:
    """Store the nights before a campaign, of whose run the newest ones are like, and the older ones
    faster."""
    assert run.report is not None
    assert run.report.inference is not None
    for night in range(1, NIGHTS):
        at = campaign.created_at - timedelta(days=night)
        factor = 1.0 if night < SLOWER else 1 / PLANTED
        noise = np.random.default_rng(night).normal(0, 0.004)
        assert run.report.inference.median_us is not None
        inference = dataclasses.replace(
            run.report.inference,
            median_us=float(run.report.inference.median_us * factor * np.exp(noise)),
        )
        name = CampaignId(f"{at:%Y%m%d}-{uuid.uuid4().hex[:6]}")
        store.begin_campaign(
            dataclasses.replace(campaign, campaign_id=name, created_at=at, finished_at=at + timedelta(hours=1)),
            devices=store.devices().values(), models=store.models().values(), builds=store.builds().values(),
        )  # fmt: skip
        kept = dataclasses.replace(
            run, run_id=RunId(uuid.uuid4().hex), campaign_id=name, started_at=at,
            report=dataclasses.replace(run.report, inference=inference),
        )  # fmt: skip
        assert store.append_run(kept)


def test_from_nothing_to_an_alarm(
    host: Host, tmp_path: Path, hook: tuple[str, list[tuple[str, str, str]]]
) -> None:
    plan = tmp_path / "nightly.yaml"
    plan.write_text(
        f"models: ['{min(MODELS.glob('*float*.tflite'))}']\nmatrix: {{delegates: [xnnpack], threads: 4}}\n"
        "settings: {min_secs: 0.2, warmup_min_secs: 0.1}\ninvocations: 1\n"
    )
    done = host("farm", "submit", plan, "--name", "first")
    watched = host.cli("farm", "status", "first", "--watch", **host.environ()).ok()
    assert re.search(rf"first\s+{host.serial}\s+done", watched.stdout)
    with served(host) as url:
        host("farm", "submit", plan, "--name", "second")
        host.cli("farm", "status", "second", "--watch", **host.environ()).ok()
        farm = asked_of(url, "GET", "/farm")
        assert (farm["night"]["stored"] > 1, farm["night"]["left"]) == (True, 0)
        assert [item["doing"][:5] for item in farm["devices"]] == ["last:"]
    # Weeks go by; then it is slower.
    with contextlib.closing(open_store(host.url)) as store:
        campaign = store.campaign(CampaignId(done["jobs"][0]["campaign_id"]))
        assert campaign is not None
        earlier_nights(store, campaign, next(iter(store.runs(campaign_ids=[campaign.campaign_id]))))
    address, got = hook
    (tmp_path / "hook").write_text(f"{address}\n")
    told = host.cli("history", "changes", "--notify", f"@{tmp_path / 'hook'}", **host.environ())
    assert (told.exit_code, told.stderr) == (1, "")
    path, media_type, body = got[-1]
    assert (len(got), path, media_type) == (2, "/hooks/secret", "application/json")
    message = json.loads(body)
    (group,) = message["report"]["groups"]
    assert group["changes"][0]["low"] < PLANTED < group["changes"][0]["high"]
    assert host.serial in message["text"]
    assert message["text"] in told.stdout
    # Where nobody listens, that is said, without the address; the exit code stays.
    lost = host.cli(
        "history", "changes", "--notify", "http://127.0.0.1:1/hooks/secret", **host.environ()
    )
    assert lost.exit_code == 1
    assert "the message to 127.0.0.1:1 wasn't delivered" in lost.stderr
    assert "secret" not in lost.said
    # Somebody knows the reason: no alarm, and no message.
    changed = group["changes"][0]
    host("history", "expect", changed["series_key"], changed["night"], "a new driver")
    count = len(got)
    host.cli("history", "changes", "--notify", address, **host.environ()).ok()
    assert len(got) == count


@contextlib.contextmanager
def served(host: Host) -> Iterator[str]:
    process = host.cli.start("serve", "--port", "0", "--token", TOKEN, **host.environ())
    try:
        yield process.stderr.readline().strip()
    finally:
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=60) == 0


def asked_of(url: str, method: str, path: str, body: object = None) -> Any:
    request = urllib.request.Request(
        f"{url}api/v1{path}",
        method=method,
        data=json.dumps(body).encode() if body is not None else None,
        headers={"Authorization": f"Bearer {TOKEN}", "Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.load(answer)
