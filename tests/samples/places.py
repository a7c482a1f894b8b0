"""Where the things are that tests use."""

import sys
from pathlib import Path

REPO = Path(__file__).resolve().parents[2]
#: The installed command.
BENCHFARM = Path(sys.executable).with_name("benchfarm")
#: The small models that come with benchfarm.
MODELS = REPO / "orchestrator" / "models" / "samples"
#: What programs and phones printed, as tests read it.
DATA = REPO / "tests" / "data"
NATIVE = DATA / "native"
