"""What the phone says of itself: properties, settings, dumpsys, sysfs, procfs, processes."""

from __future__ import annotations

import re

import pytest

from benchfarm_virtual.faults import Fault, FaultKind


@pytest.mark.parametrize(
    ("key", "allowed"),
    [("debug.mark", True), ("log.tag.x", True), ("ro.serialno", False), ("sys.x", False)],
)
def test_setprop_is_refused_where_the_system_refuses(phone, key, allowed):
    status, _, err = phone.run(f"setprop {key} value")
    assert (status == 0) is allowed
    assert bool(err) is not allowed
    assert (phone.out(f"getprop {key}") == "value\n") is allowed


def test_settings_are_kept_by_table(phone):
    assert phone.out("settings get global stay_on_while_plugged_in") == "0\n"
    phone.run(
        "settings put system screen_off_timeout 1800000; settings put global name 'two words'"
    )
    assert phone.out("settings get system screen_off_timeout") == "1800000\n"
    assert "name=two words\n" in phone.out("settings list global")
    assert (
        phone.out("settings delete global name; settings get global name")
        == "Deleted 1 rows\nnull\n"
    )
    assert phone.run("settings get nowhere x")[0] == 255


def test_df_counts_real_bytes(phone):
    before = int(phone.out("df -k /data/local/tmp | tail -n 1").split()[3])
    phone.put("/data/local/tmp/f", bytes(10 << 20))
    assert before - int(phone.out("df /data | tail -n 1").split()[3]) == 10 << 10


def test_date_follows_the_phones_clock(phone):
    phone.time.jump(86400 * 365)
    before_s = int(phone.time.wall_s())
    assert before_s <= int(phone.out("date +%s")) <= int(phone.time.wall_s())
    assert phone.run("date 010112002020")[0] == 1


def test_screen_and_keyguard_follow_keys_and_faults(phone):
    assert "mWakefulness=Awake" in phone.out("dumpsys power")
    phone.faults.add(Fault(kind=FaultKind.SCREEN_LOCK))
    assert "mWakefulness=Asleep" in phone.out("dumpsys power")
    assert "mShowingLockscreen=true" in phone.out("dumpsys window policy")
    phone.run("input keyevent KEYCODE_WAKEUP; input keyevent 82")
    assert "mWakefulness=Awake" in phone.out("dumpsys power")
    assert "mShowingLockscreen=false" in phone.out("dumpsys window policy")
    phone.run("input keyevent KEYCODE_SLEEP")
    assert "mWakefulness=Asleep" in phone.out("dumpsys power")


def test_services_take_what_a_benchmark_host_tells_them(phone):
    assert phone.run("cmd power set-fixed-performance-mode-enabled true")[0] == 0
    assert phone.run("cmd power set-fixed-performance-mode-enabled false")[0] == 0
    phone.run("cmd connectivity airplane-mode enable")
    assert phone.out("settings get global airplane_mode_on") == "1\n"
    assert phone.run("svc wifi disable")[0] == 0
    assert phone.out("settings get global wifi_on") == "0\n"
    phone.run("cmd connectivity airplane-mode disable")
    assert phone.run("svc data disable")[0] == 0
    assert phone.run("svc wifi enable")[0] == 0
    assert phone.run("cmd nope")[0] == 20


CPU = "/sys/devices/system/cpu"


@pytest.mark.parametrize(
    ("path", "figure"),
    [
        (f"{CPU}/present", lambda h: "0-7"),
        (f"{CPU}/online", lambda h: "0-7"),
        (f"{CPU}/cpu5/cpufreq/cpuinfo_max_freq", lambda h: h.clusters()[1].max_khz),
        (f"{CPU}/cpu5/cpufreq/related_cpus", lambda h: "4 5 6 7"),
        (f"{CPU}/cpu0/cpufreq/scaling_cur_freq", lambda h: h.clusters()[0].current_khz),
        (f"{CPU}/cpufreq/policy4/scaling_governor", lambda h: h.clusters()[1].governor),
        (
            f"{CPU}/cpu0/cpufreq/stats/time_in_state",
            lambda h: "\n".join(f"{k} {t}" for k, t in h.clusters()[0].ticks.items()),
        ),
        ("/sys/class/thermal/thermal_zone0/type", lambda h: h.zones()[0].name),
        ("/sys/class/thermal/thermal_zone0/temp", lambda h: round(h.zones()[0].heat_c * 1000)),
        ("/sys/class/kgsl/kgsl-3d0/gpuclk", lambda h: h.gpu_khz()[0] * 1000),
        ("/sys/class/kgsl/kgsl-3d0/devfreq/cur_freq", lambda h: h.gpu_khz()[0] * 1000),
        ("/sys/class/power_supply/battery/capacity", lambda h: h.battery().level_percent),
        ("/sys/class/power_supply/battery/temp", lambda h: round(h.battery().heat_c * 10)),
    ],
)
def test_sysfs_shows_the_hardware(phone, path, figure):
    assert phone.out(f"cat {path}") == f"{figure(phone.hardware)}\n"


def test_only_root_changes_clocks(phone, make_phone):
    node = f"{CPU}/cpufreq/policy4/scaling_max_freq"
    assert phone.run(f"echo 1612800 > {node}")[2].endswith("Permission denied\n")
    assert phone.run("su -c id")[0] == 127
    rooted = make_phone(rooted=True)
    assert rooted.out("su -c 'id -u'") == "0\n"
    assert rooted.run(f"su -c 'echo 1612800 > {node}'") == (0, "", "")
    assert (
        rooted.run(f"su 0 sh -c 'echo performance > {CPU}/cpu4/cpufreq/scaling_governor'")[0] == 0
    )
    big = rooted.hardware.clusters()[1]
    assert (big.limit_khz, big.governor) == (1612800, "performance")
    assert rooted.run(f"su -c 'echo fast > {node}'")[0] == 1


def test_proc_shows_the_phone(phone):
    assert phone.out("grep -c ^processor /proc/cpuinfo") == "8\n"
    assert int(phone.out("cat /proc/meminfo | grep MemTotal").split()[1]) == 4 << 20
    assert re.fullmatch(r"\d+\.\d\d \d+\.\d\d\n", phone.out("cat /proc/uptime"))
    assert re.fullmatch(
        r"\d+\.\d\d \d+\.\d\d \d+\.\d\d \d+/\d+ \d+\n", phone.out("cat /proc/loadavg")
    )
    assert re.fullmatch(
        r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\n",
        phone.out("cat /proc/sys/kernel/random/boot_id"),
    )
    assert phone.out("head -n 1 /proc/stat").startswith("cpu ")
    assert phone.out("cat /proc/version").startswith("Linux version ")
    assert phone.out("cat /proc/$$/comm; :") == "sh\n"
    assert phone.out("cat /proc/self/comm") == "cat\n"
