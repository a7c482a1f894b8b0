"""Programs that are started see what they need, and nothing that lets them in elsewhere."""

from pathlib import Path

import pytest

from orchestrator.devices.host import HostDevice
from orchestrator.errors import UsageError
from orchestrator.ports import DetachedCommand
from orchestrator.processes import child_environment
from orchestrator.records.case import RunId

SECRETS = {
    "BENCHFARM_TOKEN": "secret-1",
    "BENCHFARM_STORE": "postgresql://user:secret-2@db/x",
    "PGPASSWORD": "secret-3",
    "AWS_SECRET_ACCESS_KEY": "secret-4",
    "GITHUB_TOKEN": "secret-5",
    "HTTPS_PROXY": "http://user:secret-6@proxy:1",
    "ANDROID_KEYSTORE_PASSWORD": "secret-7",
}
NEEDED = {
    "LC_ALL": "C.UTF-8",
    "TZ": "UTC",
    "ADB_TRACE": "1",
    "ANDROID_SERIAL": "S1",
    "LD_LIBRARY_PATH": "/opt/lib",
}


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> HostDevice:
    for name, value in {
        **SECRETS,
        **NEEDED,
        "MINE": "passed on",
        "BENCHFARM_PASS_ENV": "MINE, ABSENT",
    }.items():
        monkeypatch.setenv(name, value)
    return HostDevice(tmp_path)


def test_programs_on_this_computer_see_no_secret_of_ours(host: HostDevice) -> None:
    shown = host.shell("env").text
    measured = host.run_detached(
        DetachedCommand(line="env", run_id=RunId("r1"), timeout_s=60.0)
    ).stdout.decode()
    for text in (shown, measured):
        assert "secret" not in text
        for name, value in {**NEEDED, "MINE": "passed on"}.items():
            assert f"{name}={value}\n" in text


def test_what_is_passed_on_is_a_list_of_names() -> None:
    with pytest.raises(UsageError, match="'A=1' isn't the name of a variable"):
        child_environment({"BENCHFARM_PASS_ENV": "A=1"})
