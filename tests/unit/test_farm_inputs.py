"""The inputs of a farm host's jobs: deleted with the job, or at the next start when its process was killed."""

import subprocess
import sys
from pathlib import Path
from urllib.parse import quote

from orchestrator.app.farm_worker import _inputs, forget_inputs
from orchestrator.bootstrap import Settings

LIFE = "from orchestrator.devices.lease import own_life; print(own_life())"


def test_a_start_deletes_the_inputs_of_processes_that_are_gone_and_no_others(tmp_path: Path) -> None:
    settings = Settings.from_environment({}, home=tmp_path)
    killed = subprocess.run([sys.executable, "-c", LIFE], capture_output=True, text=True, check=True).stdout.strip()
    gone = [settings.state_folder / "farm-inputs" / quote(life, safe="") for life in (killed, "a-boot pid:[1] 7 9")]
    for folder in gone:
        (folder / "job").mkdir(parents=True)

    with _inputs(settings) as own:
        forget_inputs(settings)

        assert Path(own).is_dir()
        assert not any(folder.exists() for folder in gone)
    assert not Path(own).exists()
