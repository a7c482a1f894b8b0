"""How language models are measured: by tokens of a prompt and of an answer."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

#: What is measured where a plan names nothing else, as the published leaderboard is.
TOKENS: Final[Mapping[str, str]] = {
    "decode_tokens": "256",
    "max_num_tokens": "1280",
    "prefill_tokens": "1024",
}
#: The flag by which the two cases of a process differ, and its values.
FIGURE: Final = "figure"
PHASES: Final = ("prefill", "decode")
#: Further flags: how often a phone's process repeats, and whether compiled parts are kept.
REPETITIONS: Final = "num_iterations"
CACHE: Final = "cache"
#: ``no``: nothing is kept; ``cold``: kept, and none there before; ``disk``: a process before has
#: filled it.
CACHES: Final = ("cold", "disk", "memory", "no")
#: Whether a phone's program may raise its own priority and choose its cores, which no app gets.
BOOST: Final = "boost"
BOOSTS: Final = ("default", "disabled", "enabled")
_WORDS: Final[Mapping[str, tuple[str, ...]]] = {CACHE: CACHES, BOOST: BOOSTS}
_COUNTS: Final = frozenset({*TOKENS, REPETITIONS})
_MOST: Final = 1_000_000
#: How the files of language models' bundles end.
_BUNDLES: Final = (".litertlm", ".task")


def is_language_model(path: Path | None) -> bool:
    """Whether a file's name is that of a language model's bundle; no other model's ends so."""
    return path is not None and path.suffix in _BUNDLES


#: How the files of other runtimes' models end, which only declared programs run; their files may
#: name more.
FOREIGN: Final = {".gguf", ".pte", ".param", ".mnn", ".onnx", ".ort"}


def is_foreign(path: Path | None) -> bool:
    """Whether a file's name is of another runtime's model, which only a declared program may run."""
    return path is not None and path.suffix in FOREIGN


def model_ending(path: Path | None) -> str:
    """Return how a model's file is to end wherever it lies, by which its program is chosen; one of
    the known kinds.
    """
    return (
        path.suffix
        if path is not None and (is_language_model(path) or is_foreign(path))
        else ".tflite"
    )


def worded(flags: Mapping[str, str]) -> str:
    """Return a case's flags as people say them: ``decode 256 after 1024, context 1280, per token``."""
    prompt, answer = flags.get("prefill_tokens", "?"), flags.get("decode_tokens", "?")
    what = (
        f"prefill {prompt}" if flags.get(FIGURE) == PHASES[0] else f"decode {answer} after {prompt}"
    )
    known = {FIGURE, *TOKENS}
    further = "".join(f", {name}={value}" for name, value in flags.items() if name not in known)
    return f"{what}, context {flags.get('max_num_tokens', '?')}{further}, per token"


def flag_faults(flags: Mapping[str, str]) -> list[tuple[str, str]]:
    """Return what is wrong with a case's flags for a language model: the flag, and a sentence."""
    known = sorted({*_COUNTS, CACHE, BOOST})
    faults = []
    for name, value in flags.items():
        if name in _COUNTS and not (
            value.isascii() and value.isdigit() and 0 < int(value) <= _MOST
        ):
            faults.append(
                (name, f"--{name} must be a whole number from 1 to {_MOST}, not {value!r}")
            )
        elif value not in (words := _WORDS.get(name, (value,))):
            faults.append((name, f"--{name} must be one of {', '.join(words)}, not {value!r}"))
        elif name not in (*known, FIGURE):
            faults.append((name, f"LiteRT-LM has no flag --{name} here; it has {', '.join(known)}"))
    return faults
