"""What may lie beside the repository and is no part of it: other people's texts, to be read in
place."""

import pytest

from tests.samples.places import REPO

SHARED = REPO.parent / "shared"
WILD = SHARED / "logs" / "wild"
FRESH = SHARED / "logs" / "fresh"
OTHER_PROGRAMS = SHARED / "logs" / "programs"
#: Nobody has to have them, so that their absence fails no test, also where CI is set.
needs_wild = pytest.mark.skipif(
    not (WILD / "expected.json").exists(),
    reason="the collection of public outputs, ../shared/logs/wild, isn't here",
)
needs_fresh = pytest.mark.skipif(
    not FRESH.is_dir(), reason="the outputs collected later, ../shared/logs/fresh, aren't here"
)
needs_other_programs = pytest.mark.skipif(
    not OTHER_PROGRAMS.is_dir(),
    reason="the outputs of other runtimes' programs, ../shared/logs/programs, aren't here",
)
