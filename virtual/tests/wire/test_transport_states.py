"""What a phone's state is to the adb server: authorized or not, away and back."""

import pytest
from cryptography.hazmat.primitives.asymmetric import rsa

from benchfarm_virtual.auth import load_public_keys
from benchfarm_virtual.errors import UsageError
from benchfarm_virtual.faults import parse_fault


@pytest.fixture(scope="module")
def foreign_key(tmp_path_factory, encode_public_key):
    path = tmp_path_factory.mktemp("keys") / "adbkey.pub"
    path.write_text(
        encode_public_key(rsa.generate_private_key(public_exponent=65537, key_size=2048))
    )
    return path


def test_server_whose_key_is_not_allowed_stays_unauthorized(server, make_lab, foreign_key):
    phone = make_lab(keys=[foreign_key]).add("pixel-3")
    server.connect(phone.address, "unauthorized")
    result = server.run("-s", phone.address, "shell", "echo in")
    assert result.returncode != 0
    assert b"unauthorized" in result.stderr
    server.run("disconnect", phone.address)


def test_unauthorized_in_mid_session_closes_the_connection(link):
    sleeping = link.popen("shell", "echo begun; sleep 1000")
    assert sleeping.stdout.readline() == b"begun\n"
    link.phone.faults.add(parse_fault("unauthorized"))
    sleeping.communicate(timeout=60)
    link.server.run("disconnect", link.phone.address)
    link.connect("unauthorized")


def test_rebooted_phone_answers_before_its_system_is_up(make_link, wait_until):
    link = make_link(time_factor=1.0)
    link.phone.reboot(away_s=0.0)
    wait_until(lambda: link.phone.listening, "it listens")
    link.server.run("disconnect", link.phone.address)
    link.connect()
    wait_until(lambda: link.shell("getprop sys.boot_completed") == "1\n", "the system is up")
    assert link.phone.time.uptime_s() >= 1.0


def test_allowed_key_that_is_none_is_refused_with_the_files_name(tmp_path):
    path = tmp_path / "adbkey.pub"
    for text in ("", "not a key", "\u00e9"):
        path.write_text(text)
        with pytest.raises(UsageError, match=r"adbkey\.pub"):
            load_public_keys([path])
    with pytest.raises(UsageError, match="missing"):
        load_public_keys([tmp_path / "missing"])
