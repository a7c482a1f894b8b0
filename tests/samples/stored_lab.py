"""A sample lab in a real SQLite store, where the command line finds it."""

from pathlib import Path

from orchestrator.store.opening import open_store
from tests.samples.sample_lab import Lab


def stored(home: Path, lab: Lab) -> Path:
    """Store what a lab holds in a new home and return it."""
    home.mkdir(parents=True)
    store = open_store(home / "store.sqlite")
    for campaign in lab.campaigns:
        store.begin_campaign(
            campaign,
            devices=lab.devices.values(),
            models=lab.models.values(),
            builds=lab.builds.values(),
        )
    for run in lab.runs:
        store.append_run(run)
    store.close()
    return home
