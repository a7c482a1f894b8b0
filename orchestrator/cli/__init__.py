"""The command line. Nothing else in benchfarm prints or exits."""

from __future__ import annotations


def main() -> None:
    """Run ``benchfarm``; the entry point of the installed command."""
    import gc
    import signal

    # A start makes some 300,000 objects that stay: looking through them again and again takes a
    # tenth of it.
    gc.set_threshold(50_000, 10, 10)
    # Ctrl-C while modules are imported waits until run() can report it.
    signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGINT, signal.SIGTERM, signal.SIGHUP))
    from orchestrator.cli.app import run

    run()
