"""Installing, logs and benchmark programs, by the plain adb command: what needs transport and userland together."""

import pytest

from benchfarm_lab.faults import parse_fault
from benchfarm_lab.samples import BENCHMARK_PACKAGE, write_benchmark_apk

TMP = "/data/local/tmp"


@pytest.fixture
def apk(tmp_path):
    return write_benchmark_apk(tmp_path / "benchmark app.apk")


@pytest.mark.parametrize(
    "options", [(), ("--no-streaming",), ("-r", "-d", "-g")], ids=["streamed", "pushed", "replace"]
)
def test_apk_is_installed(link, apk, options):
    result = link.adb("install", *options, apk)
    assert result.returncode == 0, result
    assert b"Success" in result.stdout + result.stderr
    assert link.shell(f"pm path {BENCHMARK_PACKAGE}").startswith("package:")
    assert link.adb("uninstall", BENCHMARK_PACKAGE).returncode == 0
    assert link.shell(f"pm path {BENCHMARK_PACKAGE} || echo gone") == "gone\n"


@pytest.mark.parametrize("option", ["--streaming", "--no-streaming"])
def test_file_that_is_no_apk_is_refused_with_its_code(link, tmp_path, option):
    (tmp_path / "x.apk").write_bytes(b"no apk at all")
    result = link.adb("install", option, tmp_path / "x.apk")
    assert result.returncode != 0
    assert b"INSTALL_" in result.stdout + result.stderr


def test_logcat_is_followed_as_it_grows(link):
    following = link.popen("logcat", "-T", "1")
    try:
        for number in range(3):
            link.shell(f"log -t probe line {number}")
            line = following.stdout.readline()
            while b"probe" not in line:
                line = following.stdout.readline()
            assert line.rstrip().endswith(f"line {number}".encode())
    finally:
        following.kill()
        following.communicate()


def test_reboot_from_a_shell_restarts_the_phone(link, wait_until):
    before = link.phone.userland.boot_id
    link.adb("shell", "reboot")
    wait_until(lambda: link.phone.listening and link.phone.userland.boot_id != before, "another boot")


def test_background_program_outlives_its_connection(link, wait_until):
    link.shell(f"(trap '' HUP; sleep 2; echo done > {TMP}/flag) > /dev/null 2>&1 < /dev/null &")
    link.phone.faults.add(parse_fault("cut"))
    link.server.run("disconnect", link.phone.address)
    link.connect()
    wait_until(lambda: link.adb("shell", f"cat {TMP}/flag").stdout == b"done\n", "it has finished")


def test_screen_lock_shows_in_dumpsys(link):
    assert "mWakefulness=Awake" in link.shell("dumpsys power")
    link.phone.faults.add(parse_fault("screen-lock"))
    assert "mWakefulness=Awake" not in link.shell("dumpsys power")


def test_heat_and_battery_can_be_forced(link):
    link.phone.faults.add(parse_fault("battery-low", ["percent=3"]))
    assert "level: 3\n" in link.shell("dumpsys battery")
    # Looked at from here: it cools down ten times as fast as this computer's clock runs.
    link.phone.faults.add(parse_fault("overheat", ["heat_c=90"]))
    assert max(zone.heat_c for zone in link.phone.hardware.zones()) > 60


@pytest.mark.parametrize(("kind", "marker"), [("log-garbage", b"\xff\xfe"), ("log-utf8", "\U0001f525".encode())])
def test_odd_bytes_come_into_logcat(link, kind, marker):
    link.phone.faults.add(parse_fault(kind))
    link.shell("log -t probe before; log -t probe after")
    assert marker in link.adb("exec-out", "logcat -d").stdout


def test_every_phone_says_that_it_is_virtual(make_link):
    for profile in ("pixel-3", "pixel-4"):
        assert make_link(profile).shell("getprop ro.benchfarm.virtual") == "1\n"


def test_differences_from_the_profile_show_in_the_properties(make_link):
    link = make_link(android="13", abis=("x86_64", "arm64-v8a", "armeabi-v7a"), serial="OTHER01")
    names = ("ro.build.version.release", "ro.build.version.sdk", "ro.product.cpu.abi", "ro.product.cpu.abilist32",
             "ro.serialno")  # fmt: skip
    values = link.shell("; ".join(f"getprop {name}" for name in names)).split()
    assert values == ["13", "33", "x86_64", "armeabi-v7a", "OTHER01"]
