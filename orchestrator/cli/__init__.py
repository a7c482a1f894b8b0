"""The command line. Nothing else in benchfarm prints or exits."""

from __future__ import annotations


def main() -> None:
    """Run ``benchfarm``; the entry point of the installed command."""
    from orchestrator.cli.app import run

    run()
