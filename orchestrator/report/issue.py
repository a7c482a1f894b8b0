"""A run as a text for the issue tracker of a program: what its maintainers ask for, and nothing
private.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Final

from orchestrator.delegates import place_of
from orchestrator.programs import program
from orchestrator.records.case import Build, Model
from orchestrator.records.device import DeviceFacts, DeviceKind
from orchestrator.records.run import Attachment, Outcome, RunRecord
from orchestrator.tables.escapes import one_line, visible_block
from orchestrator.units import format_bytes, format_figure

#: Lines of each stream that are shown: of its beginning and of its end.
_FIRST_LINES: Final = 20
_LAST_LINES: Final = 40
_LONGEST_LINE: Final = 400
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
    what = run.reason_code or (run.verdict.findings[0].code if run.verdict.findings else "")
    result = (
        ""
        if run.latency_us is None
        else format_figure(run.latency_us, is_per_token=case.is_per_token)
    )
    title = f"{case.model_name} with {case.delegate} ({case.tool}): {what or result or run.outcome}"
    parts = [
        f"# {title}",
        "## What happens",
        *_bullets(_happened(run, result)),
        "## Where",
        *_bullets(_where(reported)),
        "## Where the operators ran",
        *_bullets(_evidence(run)),
        "## Command",
        _block([run.command]),
        "## Output",
        *(
            f"`{item.name}`:\n\n{_block(_excerpt(item.data))}"
            for item in reported.attachments
            if item.name in {"stdout", "stderr", "logcat"} and item.data.strip()
        ),
    ]
    shown = without_private("\n\n".join(parts), reported.private)
    # Whose folders are no private ones.
    steps = _without_words(
        "\n\n".join(["## To reproduce", _block(_steps(reported))]), reported.private
    )
    return f"{shown}\n\n{steps}\n"


def without_private(text: str, private: Iterable[str]) -> str:
    """Return a text without these words, without folders in front of files, and without addresses."""
    text = _without_words(_PATH.sub(r"./\1", text), private)
    for pattern, instead in _ADDRESSES:
        text = pattern.sub(instead, text)
    return text


def _without_words(text: str, private: Iterable[str]) -> str:
    for word in sorted(
        {word for word in private if len(word) >= _SHORTEST_PRIVATE}, key=len, reverse=True
    ):
        text = re.sub(rf"(?<!\w){re.escape(word)}(?!\w)", "PRIVATE", text, flags=re.IGNORECASE)
    return text


def _bullets(rows: Iterable[tuple[str, str]]) -> list[str]:
    return ["\n".join(f"- {name}: {one_line(value)}" for name, value in rows if value)]


def _block(lines: Iterable[str]) -> str:
    text = visible_block("\n".join(lines))
    fence = "`" * max(3, 1 + max((len(found) for found in re.findall(r"`+", text)), default=0))
    return f"{fence}text\n{text}\n{fence}"


def _happened(run: RunRecord, result: str) -> list[tuple[str, str]]:
    rows = [
        ("outcome", f"{run.outcome}" + (f" ({run.reason_code})" if run.reason_code else "")),
        ("what was printed", run.reason if run.outcome is not Outcome.COMPLETED else ""),
        ("exit code", "" if run.exit_code is None else str(run.exit_code)),
        ("figure", result),
        ("pass", str(run.run_pass)),
    ]
    return rows + [
        (finding.code, finding.message)
        for finding in run.verdict.findings
        if finding.code != "virtual-device"
    ]


def _where(reported: Reported) -> list[tuple[str, str]]:
    facts, build, model, case = reported.facts, reported.build, reported.model, reported.run.case
    rows: list[tuple[str, str]] = []
    if reported.run.is_virtual:
        rows.append(("NOTE", "measured on a virtual phone, which no maintainer can help with"))
    if facts is not None:
        system = facts.kind.system
        rows += [
            # A computer's model is its name.
            (
                "device",
                " ".join(dict.fromkeys(filter(None, (facts.manufacturer, facts.model))))
                if system
                else "a computer",
            ),
            (
                "system",
                f"{system} {facts.os_version}".strip()
                + (f" (API {facts.sdk})" if facts.sdk else ""),
            ),
            ("build", facts.fingerprint if facts.kind is DeviceKind.ANDROID else ""),
            ("chip", facts.soc),
            ("GPU", " ".join(filter(None, (facts.gpu, facts.gpu_driver)))),
            ("ABIs", ", ".join(facts.abis)),
            ("rooted", "yes" if facts.is_rooted else ""),
        ]
    if build is not None:
        rows += [
            ("program", " ".join(dict.fromkeys(f"{build.name} {build.version}".split()))),
            ("program's sha256", str(build.sha256)),
        ]
    else:
        rows.append(("program's sha256", str(case.build_sha256)))
    extra = reported.run.report.extra if reported.run.report is not None else {}
    rows.append(("program's commit", str(extra.get("build_commit", ""))))
    rows += [(f"beside it: {name}", sha256) for name, sha256 in case.files]
    rows.append(("model", f"{case.model_name}, sha256 {case.model_sha256}"))
    if model is not None:
        rows.append(("model's size", format_bytes(model.size_bytes)))
    rows += [
        ("delegate asked for", str(case.delegate)),
        ("threads", str(case.threads)),
        ("flags", " ".join(f"--{name}={value}" for name, value in case.flags)),
        ("measured with", f"benchfarm {reported.benchfarm_version}"),
    ]
    return rows


def _evidence(run: RunRecord) -> list[tuple[str, str]]:
    if run.report is None:
        return [("evidence", "none, nothing was read")]
    delegate = run.report.delegate
    nodes = (
        ""
        if delegate.delegated_nodes is None
        else f"{delegate.delegated_nodes} of {delegate.total_nodes}"
    )
    rows = [
        ("ran on", f"{place_of(delegate) or 'unknown'} ({delegate.truth})"),
        ("operators taken", nodes),
        ("partitions", "" if delegate.partitions is None else str(delegate.partitions)),
    ]
    rows += [
        (f"left to the CPU: {name}", reason or "no reason printed")
        for name, reason in delegate.cpu_operators[:10]
    ]
    return rows + [("printed", line) for line in delegate.lines[:10]]


def _steps(reported: Reported) -> list[str]:
    run = reported.run
    usual = program(run.case.tool).file_name
    called = (
        usual if (usual and usual in run.command) or reported.build is None else reported.build.name
    )
    if (
        reported.facts is not None
        and reported.facts.kind is DeviceKind.ANDROID
        and not run.case.tool.is_app
    ):
        model = PurePosixPath(
            next((word for word in shlex.split(run.command) if run.case.model_name in word), "")
        )
        files = [called, model.name or run.case.model_name, *(name for name, _ in run.case.files)]
        return [
            "adb shell mkdir -p /data/local/tmp/issue",
            f"adb push {shlex.join(files)} /data/local/tmp/issue/",
            f"adb shell chmod +x /data/local/tmp/issue/{shlex.quote(called)}",
            "adb shell, cd /data/local/tmp/issue, then the command above",
        ]
    return ["the command above, where the program and the model lie"]


def _excerpt(data: bytes) -> list[str]:
    lines = [line[:_LONGEST_LINE] for line in data.decode("utf-8", "replace").splitlines()]
    left_out = len(lines) - _FIRST_LINES - _LAST_LINES
    if left_out <= 0:
        return lines
    return [*lines[:_FIRST_LINES], f"[{left_out} lines left out]", *lines[-_LAST_LINES:]]
