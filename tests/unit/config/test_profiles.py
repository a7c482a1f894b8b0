"""Device profiles: those that ship, and those that people write."""

from pathlib import Path

import pytest

from benchfarm_virtual.profiles import load_profile as load_virtual
from benchfarm_virtual.profiles import profile_names
from orchestrator.config.declarations import load_profiles, match_profile
from orchestrator.errors import PlanError
from orchestrator.installation import data_folder

MINIMAL = "title: T\nkind: android\nsoc: S\ncluster_cores: [4, 4]\ndelegates: cpu\n"


def write(folder: Path, name: str, match: str, extra: str = "") -> Path:
    folder.mkdir(exist_ok=True)
    path = folder / f"{name}.yaml"
    path.write_text(f"name: {name}\n{MINIMAL}match: {match}\n{extra}")
    return path


@pytest.mark.parametrize("name", profile_names())
def test_virtual_phone_fits_the_profile_of_the_phone_that_it_plays(name):
    virtual = load_virtual(name)
    properties = virtual.system_props("X")
    profile = match_profile(load_profiles([data_folder("device_profiles")]), properties)
    assert properties["ro.benchfarm.virtual"] == "1"
    assert profile is not None
    assert profile.name == name
    assert sorted(profile.cluster_cores) == sorted(
        len(cluster.cpus) for cluster in virtual.clusters
    )


def test_phones_whose_npu_litert_drives_may_be_asked_for_it():
    driven = {"SM8350", "SM8550", "Tensor G3", "Tensor G4"}
    for profile in load_profiles([data_folder("device_profiles")]):
        assert ("npu" in profile.delegates) == (profile.soc in driven), profile.name


def test_most_specific_profile_wins_and_no_profile_is_none(tmp_path):
    write(tmp_path, "any-moto", "{ro.product.manufacturer: motorola}")
    write(
        tmp_path,
        "one-moto",
        "{ro.product.manufacturer: [Motorola, Lenovo], ro.product.device: james}",
    )
    profiles = load_profiles([tmp_path])
    assert (
        match_profile(
            profiles, {"ro.product.manufacturer": "motorola", "ro.product.device": "james"}
        ).name
        == "one-moto"
    )
    assert (
        match_profile(
            profiles, {"ro.product.manufacturer": "MOTOROLA", "ro.product.device": "x"}
        ).name
        == "any-moto"
    )
    assert match_profile(profiles, {"ro.product.device": "james"}) is None
    assert match_profile(profiles, {}) is None


def test_faults_of_all_files_are_told_at_once(tmp_path):
    write(tmp_path, "a", "{x: y}")
    write(tmp_path, "b", "{x: [Y, z]}")
    (tmp_path / "c.yaml").write_text("name: c\n")
    (tmp_path / "d.yaml").write_bytes(b"\xff")
    with pytest.raises(PlanError) as raised:
        load_profiles([tmp_path])
    text = str(raised.value)
    for part in (
        "c.yaml:1:1: title is missing",
        "d.yaml: isn't UTF-8",
    ):
        assert part in text
