"""What programs print that can't be read: it is said which one it is, and no run is made up."""

from pathlib import Path

import pytest

from orchestrator.errors import OutputParseError
from orchestrator.programs.grammar.output import parse_text
from tests.samples.beside import OTHER_PROGRAMS

LITERT_LM = sorted((OTHER_PROGRAMS / "litert_lm").glob("*.txt"))
CREATED = "INFO: Created TensorFlow Lite XNNPACK delegate for CPU.\n"
REPLACING = "VERBOSE: Replacing 80 out of 87 node(s) with delegate (TfLiteXNNPackDelegate) node.\n"
RUN = """\
STARTING!
Graph: [a.tflite]
Loaded model a.tflite
INFO: Created TensorFlow Lite XNNPACK delegate for CPU.
Initialized session in 1.5ms.
Inference timings in us: Init: 1500, First inference: 5, Warmup (avg): 5, Inference (avg): 5
"""
INFO = """\
BenchmarkInfo:
  Init Phases (2):
    Total init time: 911.25 ms
--------------------------------------------------
  Prefill Turns (Total 1 turns):
    Prefill Turn 1: Processed 18 tokens in 2.311920273s duration.
      Prefill Speed: 7.79 tokens/sec.
"""
COMMAND = """\
Benchmarking model: tiny.litertlm (/models/tiny.litertlm)
Number of tokens in prefill: 128
"""
RESULTS = """\
----- Results -----
Prefill speed:        30183.56 tokens/s
Decode speed:         900.66 tokens/s
"""


@pytest.mark.parametrize(
    "text",
    [CREATED + INFO, CREATED + REPLACING + INFO, COMMAND + CREATED + REPLACING, COMMAND + RESULTS],
    ids=["info", "info with nodes", "command that failed", "command"],
)
def test_what_litert_lm_printed_is_no_run(text: str) -> None:
    with pytest.raises(OutputParseError, match="the output of LiteRT-LM, a program that can't be read yet"):
        parse_text(text)


@pytest.mark.skipif(not LITERT_LM, reason="the recordings of LiteRT-LM, ../shared/logs/programs, aren't here")
@pytest.mark.parametrize("path", LITERT_LM, ids=lambda path: path.stem)
def test_a_recording_of_litert_lm_is_no_run(path: Path) -> None:
    with pytest.raises(OutputParseError, match="LiteRT-LM"):
        parse_text(path.read_bytes())


@pytest.mark.parametrize("text", [RUN + CREATED + INFO, COMMAND + CREATED + RESULTS + RUN, RUN + RESULTS])
def test_runs_of_other_programs_beside_it_are_read(text: str) -> None:
    assert parse_text(text) == parse_text(RUN)
