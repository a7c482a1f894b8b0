"""Plan files of tests."""

from pathlib import Path

from orchestrator.config.plan import load_plan
from orchestrator.records.plan import Plan


def read_plan(text: str, folder: Path) -> Plan:
    """Return the plan of a file ``p.yaml`` with this text; raises as load_plan."""
    path = folder / "p.yaml"
    path.write_text(text, "utf-8")
    return load_plan(path)
