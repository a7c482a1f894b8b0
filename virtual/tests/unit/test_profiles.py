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


def test_the_shelf_of_profiles_covers_the_kinds_of_phones_that_differ():
    profiles = [load_profile(name) for name in profile_names()]
    assert any(p.abis == ("arm64-v8a",) for p in profiles)
    assert any("arm64-v8a" not in p.abis for p in profiles)
    assert any(int(p.props["ro.build.version.sdk"]) >= 35 for p in profiles)
    assert any(p.hexagon for p in profiles)
    assert any(p.gpu and "cl" not in p.gpu.backends for p in profiles)
    assert {len(p.clusters) for p in profiles} == {1, 2, 3}
