"""The guide pages on files that people write: every example loads, every key is described."""

import re

import pytest

from orchestrator.config.declarations import load_build, load_inventory, load_profile
from orchestrator.config.plan import load_plan
from orchestrator.documents import plain_adapter_of
from orchestrator.records.build_spec import BuildSpec
from orchestrator.records.device import FIELDS, DeviceProfile
from orchestrator.records.plan import Plan, keys_of
from tests.samples.extensions import needs_extension
from tests.samples.places import REPO
from tests.samples.plan_files import read_plan


def yaml_blocks(page: str) -> list[str]:
    return re.findall(r"```yaml\n(.*?)```", (REPO / "docs" / page).read_text(), flags=re.DOTALL)


def words(page: str) -> set[str]:
    return {
        word
        for code in re.findall(r"`([^`\n]+)`", (REPO / "docs" / page).read_text())
        for word in code.split()
    }


@needs_extension("energy")
def test_plans_page_names_the_example_and_shows_the_smallest_plan(tmp_path):
    smallest, inventory = yaml_blocks("reference/plans.md")
    assert "(../../examples/plan.yaml)" in (REPO / "docs" / "reference" / "plans.md").read_text()
    assert load_plan(REPO / "examples" / "plan.yaml").models
    (tmp_path / "mobilenet.tflite").touch()
    assert read_plan(smallest, tmp_path).models[0].name == "mobilenet"
    (tmp_path / "devices.yaml").write_text(inventory)
    (labels,) = load_inventory(tmp_path / "devices.yaml").values()
    assert (labels.pools, labels.tags) == (("nightly", "release"), ("rooted", "new-battery"))
    assert load_inventory(tmp_path / "none.yaml") == {}


def test_plans_page_describes_every_key_and_every_fact():
    described = words("reference/plans.md")
    assert {".".join(key.at) for key in keys_of(Plan)} <= described
    assert set(FIELDS) <= described


@pytest.mark.parametrize(
    ("page", "load"),
    [("reference/profiles.md", load_profile), ("reference/models-and-builds.md", load_build)],
)
def test_example_on_the_page_loads(tmp_path, page, load):
    block = yaml_blocks(page)[0]
    name = re.match(r"name: (\S+)", block)[1]
    path = tmp_path / f"{name}.yaml"
    path.write_text(block)
    assert load(path)


def test_profiles_and_builds_pages_describe_every_key():
    assert set(plain_adapter_of(DeviceProfile).json_schema()["properties"]) <= words(
        "reference/profiles.md"
    )
    block = yaml_blocks("reference/models-and-builds.md")[0]
    for key in plain_adapter_of(BuildSpec).json_schema()["properties"]:
        assert f"{key}:" in block
