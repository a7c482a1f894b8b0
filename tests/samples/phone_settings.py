"""What a phone's settings are, to be compared before and after."""

from collections.abc import Callable

from orchestrator.devices.quiet import SNAPSHOT_COMMANDS, differences, parse_snapshot
from orchestrator.ports import ShellResult
from orchestrator.scripts import run_scripts


def settings_of(shell: Callable[[str], ShellResult]) -> dict[str, str]:
    """Return name -> value of what preparing a phone may change."""
    return parse_snapshot(run_scripts(shell, SNAPSHOT_COMMANDS).texts())


def changed(before: dict[str, str], after: dict[str, str]) -> set[str]:
    """Return the names of what differs."""
    return {text.partition(" was ")[0] for text in differences(before, after)}
