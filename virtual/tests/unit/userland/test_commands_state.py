"""What the phone says of itself: properties, settings, dumpsys, sysfs, procfs, processes."""

from __future__ import annotations

import pytest

from benchfarm_virtual.faults import Fault, FaultKind


def test_setprop_sets_what_is_not_read_only(phone):
    assert phone.run("setprop debug.mark value; getprop debug.mark") == (0, "value\n", "")
    assert phone.run("setprop ro.serialno value")[0] == 1
    assert phone.out("getprop ro.serialno") == "VP0001\n"


def test_screen_and_keyguard_follow_keys_and_faults(phone):
    assert "mWakefulness=Awake" in phone.out("dumpsys power")
    phone.faults.add(Fault(kind=FaultKind.SCREEN_LOCK))
    assert "mWakefulness=Asleep" in phone.out("dumpsys power")
    assert "mCurrentFocus=Window{a1b2c3 u0 StatusBar}" in phone.out("dumpsys window policy")
    phone.run("input keyevent KEYCODE_WAKEUP")
    assert "mWakefulness=Awake" in phone.out("dumpsys power")
    assert phone.run("input keyevent 82") == (1, "", "a virtual phone has no key 82\n")
    phone.run("input keyevent KEYCODE_SLEEP")
    assert "mWakefulness=Asleep" in phone.out("dumpsys power")


@pytest.mark.parametrize(
    "command",
    [
        "printf %d 1",
        r"printf '\101'",
        "sed s/a/b/ /system/bin/sh",
        "wc /system/bin/sh",
    ],
)
def test_forms_that_are_not_known_are_refused(phone, command):
    status, out, err = phone.run(command)
    assert status != 0
    assert out == ""
    assert "a virtual phone knows" in err


@pytest.mark.parametrize(
    "command",
    ["stat -c %F /data", "grep '[' /proc/uptime", "kill nope", "trap x NOPE", "exit nope"],
)
def test_a_wrong_argument_is_told_and_the_phone_continues(phone, command):
    status, out, err = phone.run(f"{command} || echo on")
    assert (status, out) == (0, "on\n")
    assert ": bad argument: " in err


CPU = "/sys/devices/system/cpu"


@pytest.mark.parametrize(
    ("path", "figure"),
    [
        (f"{CPU}/cpu5/cpufreq/cpuinfo_max_freq", lambda h: h.clusters()[1].max_khz),
        (f"{CPU}/cpu5/cpufreq/related_cpus", lambda h: "4 5 6 7"),
        (f"{CPU}/cpu0/cpufreq/scaling_cur_freq", lambda h: h.clusters()[0].current_khz),
        (f"{CPU}/cpufreq/policy4/scaling_governor", lambda h: h.clusters()[1].governor),
        (
            f"{CPU}/cpu0/cpufreq/stats/time_in_state",
            lambda h: "\n".join(f"{k} {int(100 * s)}" for k, s in h.clusters()[0].held_s.items()),
        ),
        ("/sys/class/thermal/thermal_zone0/type", lambda h: h.profile.thermal.zones[0].name),
        (
            "/sys/class/thermal/thermal_zone0/temp",
            lambda h: round(next(iter(h.zones().values())) * 1000),
        ),
        ("/sys/class/kgsl/kgsl-3d0/gpuclk", lambda h: h.gpu().current_khz * 1000),
        ("/sys/class/kgsl/kgsl-3d0/devfreq/cur_freq", lambda h: h.gpu().current_khz * 1000),
    ],
)
def test_sysfs_shows_the_hardware(phone, path, figure):
    assert phone.out(f"cat {path}") == f"{figure(phone.hardware)}\n"


def test_only_root_changes_clocks(phone, make_phone):
    node = f"{CPU}/cpufreq/policy4/scaling_max_freq"
    assert phone.run(f"echo 1612800 > {node}")[2].endswith("Permission denied\n")
    assert phone.run("command -v su || su -c id")[0] == 127
    rooted = make_phone(rooted=True)
    assert rooted.out("command -v su; su -c 'id -u'") == "/system/bin/su\n0\n"
    assert rooted.run(f"su -c 'echo 1612800 > {node}'") == (0, "", "")
    assert (
        rooted.run(f"su 0 sh -c 'echo performance > {CPU}/cpu4/cpufreq/scaling_governor'")[0] == 0
    )
    big = rooted.hardware.clusters()[1]
    assert (big.limit_khz, big.governor) == (1612800, "performance")
    assert rooted.run(f"su -c 'echo fast > {node}'")[0] == 1
