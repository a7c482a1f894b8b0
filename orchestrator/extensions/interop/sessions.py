"""Imports session folders of LiteRT's device lab, and its leaderboard's files of one JSON object a
line.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, Final

from pydantic import Field

from orchestrator.delegates import ACCELERATORS
from orchestrator.errors import OutputParseError, UsageError
from orchestrator.extensions.interop.device_lab import (
    LOGCAT,
    METRICS,
    PROGRAM,
    PROVENANCE,
    RECORD,
    RESULTS,
    ROW,
    STDOUT,
    language_model_logs,
)
from orchestrator.extensions.interop.importing import import_each, listed, raw_output, read_source
from orchestrator.extensions.interop.leaderboard import (
    PLATFORMS,
    Few,
    Part,
    Row,
    Text,
    is_row,
    read_part,
    read_row,
)
from orchestrator.plugins import (
    ForeignRun,
    ImportBatch,
    Imported,
    ImportRequest,
    Workspace,
    described_build,
)
from orchestrator.reading.litert_lm import GPU_API, Process, decode_metrics
from orchestrator.records.campaign import Origin
from orchestrator.records.case import BuildSha, Case, Model, ModelSha, Serial, content_key
from orchestrator.records.device import DeviceFacts, DeviceKind
from orchestrator.records.model import (
    FIGURE,
    PHASES,
    SIGNATURE,
    TOKENS,
    chosen_signature,
    model_name,
)
from orchestrator.records.run import RUNTIME_INFO_FILE, Attachment, RawOutput

_JOB: Final = re.compile(r"(cpu|gpu|npu)-([A-Za-z0-9][A-Za-z0-9._-]{0,99})")
_FILES: Final = (RESULTS, RUNTIME_INFO_FILE, METRICS, PROVENANCE, RECORD, LOGCAT, STDOUT)
_DEVICE_ID: Final = re.compile(r"([a-z][a-z0-9]*)-(\d{2})")
_FLAG: Final = re.compile(r"--(\w+)=(\S+)")
_HINT: Final = (
    "a session's folder has jobs cpu-DEVICE or gpu-DEVICE with results.pb or metrics.pb in them, "
    "a leaderboard's file a JSON object with row_id in each line"
)
#: The flag of an imported case that says whether an earlier process had filled the caches.
MODEL_CACHES: Final = "model_caches"
#: Keys of the command of the process that wrote the results; the first one that a job has counts.
_COMMAND_KEYS: Final = ("args", "fallback process", "measured process")
#: A job's line about a failed second process and another one that then ran without caches.
_WITHOUT_CACHES: Final = "\nrunning once without the cache flags: "
_INPUTS: Final = "input_layer_value_range"
_WARM_UP: Final = "warmup_results.pb"
_SIZE_TOLERANCE: Final = 1e-3


def is_session(path: Path) -> bool:
    """Whether a path is a folder, or a file of the leaderboard's lines."""
    if path.is_dir() or path.suffix == ".jsonl":
        return True
    try:
        with path.open("rb") as file:
            return is_row(file.read(1 << 16))
    except OSError:
        return False


def import_sessions(workspace: Workspace, request: ImportRequest) -> list[Imported]:
    """Import session folders and leaderboard files, each as a campaign.

    Raises UsageError kinds and stores nothing.

    A folder's job without the required files or lines is left out and reported; a wrong line of a
    file is an error.
    """
    from orchestrator.plugins import identify_model

    if request.device or request.profile or request.app:
        raise UsageError(
            "a session names its device and program itself", hint="give --model and --name only"
        )
    user_models = [identify_model(path) for path in request.models]

    def read(path: Path) -> tuple[ImportBatch, Origin]:
        batch = _Batch(user_models=user_models)
        return batch, _folder(path, batch) if path.is_dir() else _file(path, batch)

    imports = import_each(workspace, request, read, hint=lambda _: _HINT)
    return [_with_suspect_note(taken) for taken in imports]


def _with_suspect_note(imported: Imported) -> Imported:
    runs = imported.result.runs
    suspect_count = sum(run.verdict.quality.value == "suspect" for run in runs)
    note = f"{suspect_count} of {len(runs)} figures are suspect by their own numbers"
    return replace(imported, notes=[*imported.notes, note]) if suspect_count else imported


@dataclass(slots=True, kw_only=True)
class _Batch(ImportBatch):
    """The runs of one source with their models, builds and devices, and the jobs left out."""

    user_models: Sequence[Model]

    def model(self, repository: str, file: str, size_bytes: int) -> Model:
        """Return the user's model of that name and size, else one identified by its description."""
        name = model_name(Path(file))
        for model in self.user_models:
            is_as_large = not size_bytes or abs(model.size_bytes / size_bytes - 1) < _SIZE_TOLERANCE
            if model.name == name and is_as_large:
                break
        else:
            sha256 = ModelSha(
                content_key({"repository": repository, "file": file, "bytes": size_bytes})
            )
            model = Model(name=name, sha256=sha256, size_bytes=size_bytes)
        return self.models.setdefault(model.sha256, model)

    def build(
        self, description: Mapping[str, object], *, name: str, version: str, platform: str
    ) -> BuildSha:
        """Return the program, identified by its description."""
        abi = "arm64-v8a" if platform == "android" else ""
        build = described_build(PROGRAM, description, name=name, version=version)
        self.builds.setdefault(build.sha256, replace(build, abi=abi))
        return build.sha256

    def device(
        self, device_id: str, info: Row | _SessionInfo, *, title: str = "", build: str = ""
    ) -> Serial:
        """Return the device under its name in the session: many phones may share an id, and none is
        one of this lab.
        """
        title = info.device or title
        serial = Serial(f"{device_id}@{info.runner or 'device-lab'}")
        id_parts = _DEVICE_ID.fullmatch(device_id)
        release, api = re.search(r"\d+(?:\.\d+)*", info.os), re.search(r"API (\d+)", info.os)
        sdk = api[1] if api is not None else id_parts[2] if id_parts is not None else None
        facts = DeviceFacts(
            serial=serial,
            kind=PLATFORMS.get(info.platform, DeviceKind.HOST),
            is_virtual=False,
            model=title,
            codename=id_parts[1] if id_parts is not None else device_id,
            os_version=release[0] if release is not None else "",
            sdk=int(sdk) if sdk is not None and info.platform == "android" else None,
            fingerprint=build,
            is_imported=True,
        )
        previous = self.devices.setdefault(serial, facts)
        if not previous.model and title:
            self.devices[serial] = replace(previous, model=title)
        return serial

    def add(self, case: Case, raw: RawOutput, *, is_language_model: bool) -> None:
        """Add a run, or two of a language model."""
        flags = (
            [(*case.flags, (FIGURE, phase)) for phase in PHASES]
            if is_language_model
            else [case.flags]
        )
        self.runs += [
            ForeignRun(case=replace(case, flags=tuple(sorted(case_flags))), raw=raw)
            for case_flags in flags
        ]


def _file(path: Path, batch: _Batch) -> Origin:
    data = read_source(path)
    faults: list[str] = []
    rows: dict[str, tuple[Row, bytes]] = {}
    for number, line in enumerate(data.splitlines(), start=1):
        if not line.strip():
            continue
        try:
            row = read_row(line)
        except OutputParseError as error:
            faults.append(f"{path}:{number}: {error}")
            continue
        # A later line of the same name replaces an earlier one.
        rows[row.row_id] = row, line
    if faults:
        raise UsageError(f"nothing was imported:{listed(faults)}")
    for row, line in rows.values():
        _add_row(batch, row, line, path)
    return Origin(file=path.name, sha256=hashlib.sha256(data).hexdigest())


def _add_row(batch: _Batch, row: Row, line: bytes, path: Path) -> None:
    libraries = [[item.name, item.sha256] for item in row.libs]
    description: dict[str, object] = {
        "runtime": row.runtime,
        "version": row.runtime_version,
        "binary": row.binary,
        "libraries": libraries,
    }
    if row.runtime_version in {"", "latest"} and not libraries:
        # "latest" may be any version: another session's counts as another program.
        description["session"] = row.session
    name = f"{row.runtime} {row.runtime_version}".strip() or "LiteRT"
    model = batch.model(row.model, row.file, round((row.model_size_mb or 0.0) * 1e6))
    case = Case(
        serial=batch.device(row.device_id, row),
        model_sha256=model.sha256,
        model_name=model.name,
        delegate=row.requested,
        threads=-1,
        tool=PROGRAM.name,
        build_sha256=batch.build(
            description, name=name, version=row.runtime_version, platform=row.platform
        ),
        flags=row.flags,
        affinity="all",
    )
    raw = raw_output(path, [Attachment(name=ROW, data=line)], at=row.measured_at)
    batch.add(case, raw, is_language_model=row.is_language_model)


def _folder(path: Path, batch: _Batch) -> Origin:
    """Add the jobs of a folder: a job's own, a session's, or one of sessions."""
    sums = hashlib.sha256()
    outer = _subfolders(path)
    for folder in (path, *outer, *(inner for each in outer for inner in _subfolders(each))):
        if (job := _JOB.fullmatch(folder.name)) is None:
            continue
        try:
            files = _files(folder)
            for name, data in sorted(files.items()):
                digest = hashlib.sha256(data).hexdigest()
                sums.update(f"{folder.relative_to(path)}/{name} {digest}\n".encode())
            _add_job(batch, folder, job[1], job[2], files)
        except OutputParseError as error:
            batch.faults.append(f"{folder}: {error}")
    return Origin(file=path.resolve().name, sha256=sums.hexdigest())


def _content(path: Path) -> bytes | None:
    """Return a file's bytes; None where there is none, or a link.

    Raises UsageError for one that is too large.
    """
    return read_source(path) if path.is_file() and not path.is_symlink() else None


def _files(folder: Path) -> dict[str, bytes]:
    """Return a job's files; raises OutputParseError for a link to elsewhere."""
    files = {}
    for name in _FILES:
        if (folder / name).is_symlink():
            raise OutputParseError(f"{name} is a link, and isn't followed")
        if (data := _content(folder / name)) is not None:
            files[name] = data
    if STDOUT not in files and (console := _content(folder / "console.log")) is not None:
        files[STDOUT] = console
    return files


def _subfolders(path: Path) -> list[Path]:
    try:
        return sorted(item for item in path.iterdir() if item.is_dir() and not item.is_symlink())
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}") from error


def _add_job(
    batch: _Batch, folder: Path, accelerator: str, device_id: str, files: Mapping[str, bytes]
) -> None:
    """Add a job; raises OutputParseError for one without its required files or lines."""
    info = _read_session_info(folder)
    config = _job_config(info, folder.name)
    if info.device_id not in {"", device_id}:
        # The file describes the session's one device, not this one.
        info = info.model_copy(update={"device": "", "os": "", "platform": "android"})
    record = b"\n".join(files.get(name, b"")[: 1 << 20] for name in (PROVENANCE, RECORD))
    provenance = record.decode("utf-8", "replace")
    arguments = " ".join(map(str, config.action.program.args))
    command = next(filter(None, (_field_value(provenance, key) for key in _COMMAND_KEYS)), "")
    flags = dict(_FLAG.findall(f"{command} {arguments}"))
    is_lm = METRICS in files
    if not is_lm and RESULTS not in files:
        raise OutputParseError(
            f"has neither {RESULTS} nor {METRICS}: the job failed, or its files weren't downloaded"
        )
    lm_log = (
        "\n".join(
            line.raw for lines in language_model_logs(files.get(LOGCAT, b"")) for line in lines
        )
        if is_lm
        else ""
    )
    # Another app of the phone may have loaded a model, or used the GPU.
    logs = {**files, LOGCAT: lm_log.encode()} if is_lm else files
    tokens = _tokens(decode_metrics(files[METRICS]), provenance, flags) if is_lm else {}
    model_path = config.labels.model or info.model or flags.get("model_path") or flags.get("graph")
    file = (model_path or _logged_word(logs, rb"(?:Loading model from: |Graph: \[)")).rpartition(
        "/"
    )[2]
    if not file and len(batch.user_models) != 1:
        raise OutputParseError("its model is unknown: name the model file with --model")
    if is_lm and accelerator == "gpu" and GPU_API.search(lm_log) is None:
        raise OutputParseError(f"its {LOGCAT} names no GPU API: nothing shows that the GPU ran it")
    product = re.fullmatch(r"(.*) \(([\w.-]{1,60})\)", _field_value(provenance, "product"))
    sums = sorted(
        (digest, name)
        for digest, name in re.findall(
            r"^([0-9a-f]{64})  (?:\./)?([\w.+-]{1,100})$", provenance, re.MULTILINE
        )
        if name != file
    )
    # Without a sum the program is unknown: another session's counts as another one.
    identity = {"sums": sums} if sums else {"session": folder.parent.name}
    model = (
        batch.model("", file, 0)
        if file
        else batch.models.setdefault(batch.user_models[0].sha256, batch.user_models[0])
    )
    is_filled = "\nwarm-up process: exit 0" in provenance or _content(folder / _WARM_UP) is not None
    caches = config.labels.model_caches or ("on" if is_filled else "")
    caches = "off" if _WITHOUT_CACHES in provenance else caches
    threads = flags.get("num_threads") or flags.get("num_cpu_threads") or ""
    case = Case(
        serial=batch.device(
            device_id,
            info,
            title=product[1] if product is not None else "",
            build=_field_value(provenance, "build"),
        ),
        model_sha256=model.sha256,
        model_name=model.name,
        delegate=ACCELERATORS[accelerator],
        threads=int(threads) if re.fullmatch(r"0*[1-9]\d?", threads) and int(threads) <= 64 else -1,
        tool=PROGRAM.name,
        build_sha256=batch.build(
            {"version": info.runtime_version, **identity},
            name=f"{'LiteRT-LM' if is_lm else 'LiteRT'} {info.runtime_version}".rstrip(),
            version=info.runtime_version,
            platform=info.platform,
        ),
        flags=tuple(sorted(_job_flags(tokens, flags, logs, caches=caches).items())),
        affinity="all",
    )
    raw = raw_output(
        folder / (METRICS if is_lm else RESULTS),
        [Attachment(name=key, data=data) for key, data in files.items()],
        command=" ".join(f"--{key}={value}" for key, value in flags.items())[:2000],
        at=_moment(info.created),
    )
    batch.add(case, raw, is_language_model=is_lm)


def _job_flags(
    tokens: Mapping[str, str], arguments: Mapping[str, str], files: Mapping[str, bytes], caches: str
) -> dict[str, str]:
    """Return the flags of a job's case; where no argument names the signature, its program does."""
    signature = arguments.get(SIGNATURE) or _logged_word(files, rb"Signature name: +")
    flags = {
        **tokens,
        SIGNATURE: chosen_signature(signature),
        _INPUTS: arguments.get(_INPUTS, ""),
        # An engine starts differently when its caches exist.
        MODEL_CACHES: caches,
    }
    return {name: value for name, value in flags.items() if value}


def _tokens(process: Process, provenance: str, flags: Mapping[str, str]) -> dict[str, str]:
    """Return the requested numbers of tokens; raises OutputParseError if they are unknown."""
    tokens = {name: str(count) for name, count in process.asked.items()}
    for name in TOKENS:
        match = re.search(rf"\b{name}: (\d{{1,7}})\b", provenance)
        value = (
            flags.get(f"benchmark_{name}")
            or flags.get(name)
            or (match[1] if match is not None else "")
        )
        if value.isdecimal() and len(value) <= 7 and int(value):
            tokens[name] = value
    if not {"prefill_tokens", "decode_tokens"} <= tokens.keys():
        raise OutputParseError("the requested number of tokens is unknown")
    if len(process.repetitions) < 2:
        raise OutputParseError("no repetition is left after the warm-up")
    return tokens


class _Labels(Part):
    model: Text = ""
    model_caches: Text = ""


class _Program(Part):
    args: Few[Any] = Field(default_factory=list)


class _Action(Part):
    program: Annotated[_Program, Field(alias="androidNativeBinary")] = _Program()


class _JobConfig(Part):
    labels: _Labels = _Labels()
    action: _Action = _Action()


class _Config(Part):
    #: Each is read with its job: a wrong entry doesn't affect another job.
    jobs: Few[Any] = Field(alias="jobConfigs", default_factory=list)


class _SessionInfo(Part):
    """The description of a session in its files."""

    platform: Text = "android"
    runner: Text = ""
    device_id: Text = ""
    device: Text = ""
    os: Text = ""
    runtime_version: Text = ""
    model: Text = ""
    created: Text = ""
    config: Annotated[_Config, Field(alias="sessionConfig")] = _Config()


def _read_session_info(folder: Path) -> _SessionInfo:
    """Return the description of a job in ``session.json`` and ``ddp_session.json``.

    Raises OutputParseError for content that no runner writes.
    """
    info = _SessionInfo()
    for name in ("ddp_session.json", "session.json"):
        for place in (folder.parent, folder):
            if (data := _content(place / name)) is not None:
                part = read_part(_SessionInfo, data, f"{name} is wrong")
                fields = {key: getattr(part, key) for key in part.model_fields_set}
                info = info.model_copy(update=fields)
    return info


def _job_config(info: _SessionInfo, name: str) -> _JobConfig:
    """Return the options of a job in a session; raises OutputParseError for an odd entry."""
    for item in info.config.jobs:
        if isinstance(item, dict) and item.get("displayName") == name:
            return read_part(
                _JobConfig, json.dumps(item).encode(), f"jobConfigs of {name} is wrong"
            )
    return _JobConfig()


def _moment(text: str) -> datetime | None:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)


def _field_value(text: str, key: str) -> str:
    """Return the value of a ``key: value`` line, "" for an absent or unprintable one."""
    match = re.search(rf"^{key}: (.*)$", text, re.MULTILINE)
    value = match[1].strip()[:2000] if match is not None else ""
    return value if value.isprintable() else ""


def _logged_word(files: Mapping[str, bytes], words: bytes) -> str:
    """Return the word that follows others in a job's log, "" where they aren't there."""
    for name in (STDOUT, LOGCAT):
        match = re.search(rb"%b([\w./+-]{1,300})" % words, files.get(name, b""))
        if match is not None:
            return match[1].decode()
    return ""
