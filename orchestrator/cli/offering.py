"""What commands that measure have in common: progress on standard error, and the offer to get a missing program."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence

from orchestrator.bootstrap import Farm, Settings
from orchestrator.cli.download_progress import downloads_on_stderr
from orchestrator.cli.progress import observer_for_stderr
from orchestrator.cli.terminal import say
from orchestrator.records.build_spec import BuildSpec
from orchestrator.report.escapes import one_line


def farm_telling(settings: Settings, *, makes_store: bool = True) -> Farm:
    """Return a farm of which standard error tells what is done with it, and that offers to get a missing program."""
    farm = Farm(settings, makes_store=makes_store, observer=observer_for_stderr(settings.log_format))
    farm.on_missing = download_offer(farm)
    return farm


def download_offer(farm: Farm) -> Callable[[Sequence[BuildSpec]], None]:
    """Return what asks for each missing program whether to download it, and does so."""
    #: Whoever said no isn't asked again.
    asked: set[BuildSpec] = set()

    def offer(specs: Sequence[BuildSpec]) -> None:
        if not (farm.settings.may_ask and sys.stdin.isatty() and sys.stderr.isatty()):
            return
        for spec in [spec for spec in dict.fromkeys(specs) if spec not in asked]:
            asked.add(spec)
            # What has to be built, or lies somewhere, nobody can download; the error that follows says what to do.
            if spec.url and _is_wanted(spec):
                with downloads_on_stderr(farm.settings.log_format) as downloads:
                    farm.build_fetcher().fetch(spec, on_progress=downloads.on_progress)

    return offer


def _is_wanted(spec: BuildSpec) -> bool:
    say(one_line(f"{spec.name} for {spec.abi} is not on this computer; it comes from {spec.url}"), err=True)
    say("Download it now? [Y/n] ", err=True, end="")
    # An empty line is the default; the end of the input is no answer.
    return sys.stdin.readline().lower() in {"\n", "y\n", "yes\n"}
