"""What is wrong with files that people write: each mistake with its place and its message.

They stand in tests/golden, each below the text that has it; ``WRITE_GOLDEN=1`` writes the messages
again, also of a new text.
"""

import re
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from orchestrator.config.declarations import load_build, load_inventory, load_profile
from orchestrator.config.plan import load_plan
from orchestrator.errors import PlanError
from tests.conftest import golden_texts

LOADERS: Mapping[str, Callable[[Path], object]] = {
    "plan": load_plan,
    "build": load_build,
    "profile": load_profile,
    "inventory": load_inventory,
}


@pytest.mark.parametrize("kind", LOADERS)
def test_each_mistake_has_its_message(kind: str, tmp_path: Path) -> None:
    for name in ("a.tflite", "b.tflite", "sub/a.tflite"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(name.encode())

    def fault_of(text: str) -> str:
        path = tmp_path / "p.yaml"
        path.write_text(f"{text}\n")
        with pytest.raises(PlanError) as raised:
            LOADERS[kind](path)
        (fault,) = raised.value.faults or (str(raised.value),)
        # Of a long list of what there is, the first.
        fault = re.sub(r"((?:isn't one of|known are) [^,]+), [^;]*", r"\1, ...", fault)
        return fault.replace(f"{tmp_path}/", "").replace(str(tmp_path), "FOLDER")

    golden_texts(f"faults.{kind}.txt", fault_of)
