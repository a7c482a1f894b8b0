"""A run as a text for the issue tracker of a program: what its maintainers ask for, and nothing
private.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from orchestrator.delegates import place_of
from orchestrator.records.case import Build, Model
from orchestrator.records.device import DeviceFacts
from orchestrator.records.run import Attachment, RunRecord
from orchestrator.tables.escapes import one_line, visible_block
from orchestrator.tables.evidence import excerpt
from orchestrator.units import counted, format_bytes, format_figure

_LOG_CHARACTERS: Final = 12_000
#: A path of this computer or of a phone's folder of ours; its last part is what anybody needs.
_PATH: Final = re.compile(
    r"(?<![\w./-])(?:/(?!(?:system|vendor|apex|odm|product|proc|sys|dev)/)[\w.@%+,~-]+)+/([\w.@%+,~-]+)"
)
_ADDRESSES: Final = (
    (re.compile(r"\b(?:\d{1,3}\.){3}\d{1,3}(?::\d{2,5})?\b"), "ADDRESS"),
    (re.compile(r"\b(?:[0-9a-fA-F]{2}:){5}[0-9a-fA-F]{2}\b"), "ADDRESS"),
    (re.compile(r"\b[\w.+-]+@[\w-]+\.[\w.-]+\b"), "MAIL"),
)
_SHORTEST_PRIVATE: Final = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Reported:
    """A run and what is known around it."""

    run: RunRecord
    facts: DeviceFacts | None
    model: Model | None
    build: Build | None
    attachments: Sequence[Attachment]
    benchfarm_version: str
    #: Words that must not be shown: serial numbers, names of users and computers, home folders.
    private: Sequence[str]


def issue_text(reported: Reported) -> str:
    """Return the issue as Markdown, its title first.

    No serial number, path, user or computer is named; names of models and files are, since the
    model is part of the question.
    """
    run, case = reported.run, reported.run.case
    figure = ""
    if run.latency_us is not None:
        figure = format_figure(run.latency_us, is_per_token=case.is_per_token)
    findings = [(item.code, item.message) for item in run.verdict.findings]
    what = run.reason_code or (findings[0][0] if findings else "") or figure or run.outcome
    parts = [
        f"# {case.model_name} with {case.delegate} ({case.tool}): {what}",
        "## What happens",
        _bullets(
            [
                ("outcome", f"{run.outcome} {run.reason_code}"),
                ("reason", run.reason),
                ("exit code", "" if run.exit_code is None else f"{run.exit_code}"),
                ("figure", figure),
                *findings,
            ]
        ),
        "## Where",
        _bullets(_where(reported).items()),
        "## Where the operators ran",
        _bullets(_operators(run)),
        "## Command",
        _block([run.command]),
        "## Output",
    ]
    for stream in reported.attachments:
        log = excerpt([stream], _LOG_CHARACTERS) if stream.data.strip() else None
        if log is not None:
            parts += [f"{stream.name}:", _block([log.text])]
    return without_private("\n\n".join(parts), reported.private) + "\n"


def _where(reported: Reported) -> dict[str, str]:
    facts, build, model, case = reported.facts, reported.build, reported.model, reported.run.case
    rows = {}
    if reported.run.is_virtual:
        rows["NOTE"] = "measured on a virtual phone, which no maintainer can help with"
    if facts is not None:
        # A computer's model is its name.
        is_phone = bool(facts.kind.system)
        rows |= {
            "device": f"{facts.manufacturer} {facts.model}" if is_phone else "a computer",
            "system": f"{facts.kind.system} {facts.os_version} {facts.fingerprint}",
            "chip": f"{facts.soc} {facts.gpu} {facts.gpu_driver}",
        }
    if build is not None:
        rows["program"] = f"{build.name} {build.version}"
    size = f", {format_bytes(model.size_bytes)}" if model is not None else ""
    return rows | {
        "program's sha256": case.build_sha256,
        **{f"beside it: {name}": sha256 for name, sha256 in case.files},
        "model": f"{case.model_name}{size}, sha256 {case.model_sha256}",
        "delegate asked for": case.delegate,
        "threads": f"{case.threads}",
        "flags": " ".join(f"--{name}={value}" for name, value in case.flags),
        "measured with": f"benchfarm {reported.benchfarm_version}",
    }


def _operators(run: RunRecord) -> list[tuple[str, str]]:
    if run.report is None:
        return [("evidence", "none, nothing was read")]
    found = run.report.delegate
    taken = ""
    if found.delegated_nodes is not None:
        parts = counted(found.partitions or 0, "partition")
        taken = f"{found.delegated_nodes} of {found.total_nodes}, in {parts}"
    return [
        ("ran on", f"{place_of(found) or 'unknown'} ({found.truth})"),
        ("operators taken", taken),
        # One operator may be left for several reasons.
        *(
            (f"left to the CPU: {name}", reason or "no reason printed")
            for name, reason in found.cpu_operators[:10]
        ),
        *((f"printed ({place})", line) for place, line in enumerate(found.lines[:10], start=1)),
    ]


def without_private(text: str, private: Iterable[str]) -> str:
    """Return a text without these words, without folders in front of files, and without addresses."""
    text = _PATH.sub(r"./\1", text)
    for word in sorted(set(private), key=len, reverse=True):
        if len(word) >= _SHORTEST_PRIVATE:
            whole = rf"(?<!\w){re.escape(word)}(?!\w)"
            text = re.sub(whole, "PRIVATE", text, flags=re.IGNORECASE)
    for pattern, instead in _ADDRESSES:
        text = pattern.sub(instead, text)
    return text


def _bullets(rows: Iterable[tuple[str, str]]) -> str:
    told = ((name, " ".join(one_line(value).split())) for name, value in rows)
    return "\n".join(f"- {name}: {value}" for name, value in told if value)


def _block(lines: Iterable[str]) -> str:
    text = visible_block("\n".join(lines))
    fence = "`" * max(3, 1 + max((len(found) for found in re.findall(r"`+", text)), default=0))
    return f"{fence}text\n{text}\n{fence}"
