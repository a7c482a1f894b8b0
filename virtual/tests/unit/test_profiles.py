"""Virtual phone profiles: all load, and have what hosts ask for."""

from __future__ import annotations

import pytest

from benchfarm_virtual.profiles import load_profile, profile_names

ASKED = (
    "ro.product.model", "ro.product.manufacturer", "ro.product.brand", "ro.product.device", "ro.product.name",
    "ro.build.fingerprint", "ro.build.version.release", "ro.build.version.sdk", "ro.build.version.security_patch",
    "ro.board.platform", "ro.hardware", "ro.product.cpu.abi", "ro.product.cpu.abilist", "sys.boot_completed",
)  # fmt: skip


@pytest.mark.parametrize("name", profile_names())
def test_every_profile_answers_what_a_benchmark_host_asks(name):
    profile = load_profile(name)
    props = profile.system_props("SERIAL1")
    assert all(props.get(key) for key in ASKED)
    assert props["ro.serialno"] == "SERIAL1"
    assert props["ro.benchfarm.virtual"] == "1"
    assert props["ro.product.cpu.abi"] == profile.abis[0]
    assert all(list(c.available_khz) == sorted(set(c.available_khz)) for c in profile.clusters)
    assert [cpu for c in profile.clusters for cpu in c.cpus] == list(range(profile.cpu_count))
    assert [z for z in profile.thermal.zones if z.follows == "battery"]
