"""Imports session folders of LiteRT's device lab, and its leaderboard's files of one JSON object a
line.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, Final

from pydantic import Field

from orchestrator.app.exchange import (
    Imported,
    ImportRequest,
    import_each,
    listed,
    raw_output,
    read_source,
    require_printable,
)
from orchestrator.engine.reread import ForeignRun, ImportBatch
from orchestrator.errors import OutputParseError, UsageError
from orchestrator.extensions.interop.device_lab import (
    LOGCAT,
    METRICS,
    PROGRAM,
    PROVENANCE,
    RECORD,
    RESULTS,
    ROW,
    RUNTIME_INFO,
    STDOUT,
    lines_of_job,
)
from orchestrator.extensions.interop.leaderboard import (
    ACCELERATORS,
    PLATFORMS,
    Few,
    Part,
    Row,
    Text,
    is_row,
    read_part,
    read_row,
)
from orchestrator.extensions.runtimes.litert_lm_output import GPU_API, Process, decode_metrics
from orchestrator.plugins import Workspace
from orchestrator.programs.running import described_build
from orchestrator.records.campaign import Origin
from orchestrator.records.case import BuildSha, Case, Model, ModelSha, Serial, content_key
from orchestrator.records.device import DeviceFacts, DeviceKind
from orchestrator.records.model import (
    FIGURE,
    PHASES,
    SIGNATURE,
    TOKENS,
    chosen_signature,
    is_model_file,
)
from orchestrator.records.run import Attachment, RawOutput

_JOB: Final = re.compile(r"(cpu|gpu|npu)-([A-Za-z0-9][A-Za-z0-9._-]{0,99})")
_FILES: Final = (RESULTS, RUNTIME_INFO, METRICS, PROVENANCE, RECORD, LOGCAT, STDOUT)
_DEVICE_ID: Final = re.compile(r"([a-z][a-z0-9]*)-(\d{2})")
_FLAG: Final = re.compile(r"--(\w+)=(\S+)")
_HINT: Final = (
    "a session's folder has jobs cpu-DEVICE or gpu-DEVICE with results.pb or metrics.pb in them, "
    "a leaderboard's file a JSON object with row_id in each line"
)
#: The flag of an imported case that says whether a process before had filled the caches; and what
#: that one left.
MODEL_CACHES: Final = "model_caches"
#: What stands before the arguments of the process that wrote the results, the first one that is
#: there.
_RAN: Final = ("args", "fallback process", "measured process")
#: How a job says that its second process failed, and that another one then ran without caches.
_WITHOUT_CACHES: Final = "\nrunning once without the cache flags: "
_INPUTS: Final = "input_layer_value_range"
_WARM_UP: Final = "warmup_results.pb"
_SIZE_TOLERANCE: Final = 1e-3


def is_session(path: Path) -> bool:
    """Whether a path is one that is imported here: a folder, or a file of the leaderboard's lines."""
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

    A folder's job that lacks what shows its worth is left out and reported; a wrong line of a file
    is an error.
    """
    from orchestrator.models.inspect import identify_model

    if request.device or request.profile or request.app:
        raise UsageError(
            "a session says itself what it ran on and with", hint="give --model and --name only"
        )
    require_printable(name=request.name)
    known = [identify_model(path) for path in request.models]

    def read(path: Path) -> tuple[ImportBatch, Origin]:
        batch = _Batch(known=known)
        return batch, _folder(path, batch) if path.is_dir() else _file(path, batch)

    each = import_each(workspace, request, read, hint=lambda _: _HINT)
    return [_with_doubts(taken) for taken in each]


def _with_doubts(taken: Imported) -> Imported:
    runs = taken.result.runs
    doubted = sum(run.verdict.quality.value == "suspect" for run in runs)
    told = f"{doubted} of {len(runs)} figures are suspect by their own numbers"
    return replace(taken, notes=[*taken.notes, told]) if doubted else taken


@dataclass(slots=True, kw_only=True)
class _Batch(ImportBatch):
    """The runs of one source with what they are of, and the jobs that were left out."""

    known: Sequence[Model]

    def model(self, repository: str, file: str, size_bytes: int) -> Model:
        """Return the model: a known file of that name and size, else one that is known by its
        description.
        """
        path = Path(file)
        name = path.stem if is_model_file(path) else path.name
        for model in self.known:
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
        self, told: Mapping[str, object], *, name: str, version: str, platform: str
    ) -> BuildSha:
        """Return the program, which is known by its description."""
        abi = "arm64-v8a" if platform == "android" else ""
        build = described_build(PROGRAM, told, name=name, version=version)
        self.builds.setdefault(build.sha256, replace(build, abi=abi))
        return build.sha256

    def device(
        self, device_id: str, said: Row | _Said, *, title: str = "", build: str = ""
    ) -> Serial:
        """Return the device as its session calls it: many phones may have one id, and none is one
        of ours.
        """
        title = said.device or title
        serial = Serial(f"{device_id}@{said.runner or 'device-lab'}")
        named = _DEVICE_ID.fullmatch(device_id)
        release, api = re.search(r"\d+(?:\.\d+)*", said.os), re.search(r"API (\d+)", said.os)
        sdk = api[1] if api is not None else named[2] if named is not None else None
        facts = DeviceFacts(
            serial=serial,
            kind=PLATFORMS.get(said.platform, DeviceKind.HOST),
            is_virtual=False,
            model=title,
            codename=named[1] if named is not None else device_id,
            os_version=release[0] if release is not None else "",
            sdk=int(sdk) if sdk is not None and said.platform == "android" else None,
            fingerprint=build,
            is_imported=True,
        )
        known = self.devices.setdefault(serial, facts)
        if not known.model and title:
            self.devices[serial] = replace(known, model=title)
        return serial

    def add(self, case: Case, raw: RawOutput, *, is_language_model: bool) -> None:
        """Add a run, or a language model's two."""
        flags = (
            [(*case.flags, (FIGURE, phase)) for phase in PHASES]
            if is_language_model
            else [case.flags]
        )
        self.runs += [
            ForeignRun(case=replace(case, flags=tuple(sorted(own))), raw=raw) for own in flags
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
    told: dict[str, object] = {
        "runtime": row.runtime,
        "version": row.runtime_version,
        "binary": row.binary,
        "libraries": libraries,
    }
    if row.runtime_version in {"", "latest"} and not libraries:
        # "latest" may be any version: another session's counts as another program.
        told["session"] = row.session
    name = f"{row.runtime} {row.runtime_version}".strip() or "LiteRT"
    model = batch.model(row.model, row.file, round((row.model_size_mb or 0.0) * 1e6))
    case = Case(
        serial=batch.device(row.device_id, row),
        model_sha256=model.sha256,
        model_name=model.name,
        delegate=row.wanted,
        threads=-1,
        tool=PROGRAM.name,
        build_sha256=batch.build(
            told, name=name, version=row.runtime_version, platform=row.platform
        ),
        flags=row.flags,
        affinity="all",
    )
    raw = raw_output(path, [Attachment(name=ROW, data=line)], at=row.at)
    batch.add(case, raw, is_language_model=row.is_language_model)


def _folder(path: Path, batch: _Batch) -> Origin:
    """Add the jobs of a folder: a job's own, a session's, or one of sessions."""
    sums = hashlib.sha256()
    outer = _below(path)
    for folder in (path, *outer, *(inner for each in outer for inner in _below(each))):
        if (named := _JOB.fullmatch(folder.name)) is None:
            continue
        try:
            files = _files(folder)
            for name, data in sorted(files.items()):
                digest = hashlib.sha256(data).hexdigest()
                sums.update(f"{folder.relative_to(path)}/{name} {digest}\n".encode())
            _add_job(batch, folder, named[1], named[2], files)
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
    found = {}
    for name in _FILES:
        if (folder / name).is_symlink():
            raise OutputParseError(f"{name} is a link, and isn't followed")
        if (data := _content(folder / name)) is not None:
            found[name] = data
    if STDOUT not in found and (console := _content(folder / "console.log")) is not None:
        found[STDOUT] = console
    return found


def _below(path: Path) -> list[Path]:
    try:
        return sorted(item for item in path.iterdir() if item.is_dir() and not item.is_symlink())
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}") from error


def _add_job(
    batch: _Batch, folder: Path, accelerator: str, device_id: str, files: Mapping[str, bytes]
) -> None:
    """Add a job; raises OutputParseError for one that lacks what shows its worth."""
    said = _said(folder)
    config = _job_config(said, folder.name)
    if said.device_id not in {"", device_id}:
        # What the file states of the session's one device doesn't hold for another.
        said = said.model_copy(update={"device": "", "os": "", "platform": "android"})
    told = b"\n".join(files.get(name, b"")[: 1 << 20] for name in (PROVENANCE, RECORD))
    provenance = told.decode("utf-8", "replace")
    arguments = " ".join(map(str, config.action.program.args))
    ran = next(filter(None, (_line_of(provenance, key) for key in _RAN)), "")
    flags = dict(_FLAG.findall(f"{ran} {arguments}"))
    is_lm = METRICS in files
    if not is_lm and RESULTS not in files:
        raise OutputParseError(
            f"has neither {RESULTS} nor {METRICS}: the job failed, or its files weren't downloaded"
        )
    own = "\n".join(itertools.chain(*lines_of_job(files.get(LOGCAT, b"")))) if is_lm else ""
    # Another app of the phone may have loaded a model, or used the GPU.
    logs = {**files, LOGCAT: own.encode()} if is_lm else files
    tokens = _tokens(decode_metrics(files[METRICS]), provenance, flags) if is_lm else {}
    named = config.labels.model or said.model or flags.get("model_path") or flags.get("graph")
    file = (named or _logged(logs, rb"(?:Loading model from: |Graph: \[)")).rpartition("/")[2]
    if not file and len(batch.known) != 1:
        raise OutputParseError("nothing says which model it is of: name its file with --model")
    if is_lm and accelerator == "gpu" and GPU_API.search(own) is None:
        raise OutputParseError(f"its {LOGCAT} names no GPU API: nothing shows that the GPU ran it")
    product = re.fullmatch(r"(.*) \(([\w.-]{1,60})\)", _line_of(provenance, "product"))
    sums = sorted(
        (digest, name)
        for digest, name in re.findall(
            r"^([0-9a-f]{64})  (?:\./)?([\w.+-]{1,100})$", provenance, re.MULTILINE
        )
        if name != file
    )
    # Without a sum the program is unknown: another session's counts as another one.
    known_by = {"sums": sums} if sums else {"session": folder.parent.name}
    model = (
        batch.model("", file, 0)
        if file
        else batch.models.setdefault(batch.known[0].sha256, batch.known[0])
    )
    is_filled = "\nwarm-up process: exit 0" in provenance or _content(folder / _WARM_UP) is not None
    caches = config.labels.model_caches or ("on" if is_filled else "")
    caches = "off" if _WITHOUT_CACHES in provenance else caches
    threads = flags.get("num_threads") or flags.get("num_cpu_threads") or ""
    case = Case(
        serial=batch.device(
            device_id,
            said,
            title=product[1] if product is not None else "",
            build=_line_of(provenance, "build"),
        ),
        model_sha256=model.sha256,
        model_name=model.name,
        delegate=ACCELERATORS[accelerator],
        threads=int(threads) if re.fullmatch(r"0*[1-9]\d?", threads) and int(threads) <= 64 else -1,
        tool=PROGRAM.name,
        build_sha256=batch.build(
            {"version": said.runtime_version, **known_by},
            name=f"{'LiteRT-LM' if is_lm else 'LiteRT'} {said.runtime_version}".rstrip(),
            version=said.runtime_version,
            platform=said.platform,
        ),
        flags=tuple(sorted(_parting(tokens, flags, logs, caches=caches).items())),
        affinity="all",
    )
    raw = raw_output(
        folder / (METRICS if is_lm else RESULTS),
        [Attachment(name=key, data=data) for key, data in files.items()],
        command=" ".join(f"--{key}={value}" for key, value in flags.items())[:2000],
        at=_moment(said.created),
    )
    batch.add(case, raw, is_language_model=is_lm)


def _parting(
    tokens: Mapping[str, str], arguments: Mapping[str, str], files: Mapping[str, bytes], caches: str
) -> dict[str, str]:
    """Return what parts a job from others of its model, device and accelerator; where no argument
    names the signature, its program does.
    """
    signature = arguments.get(SIGNATURE) or _logged(files, rb"Signature name: +")
    told = {
        **tokens,
        SIGNATURE: chosen_signature(signature),
        _INPUTS: arguments.get(_INPUTS, ""),
        # An engine that finds its caches starts another way than one that writes them.
        MODEL_CACHES: caches,
    }
    return {name: value for name, value in told.items() if value}


def _tokens(process: Process, provenance: str, flags: Mapping[str, str]) -> dict[str, str]:
    """Return how many tokens were asked for; raises OutputParseError where nothing says it."""
    tokens = {name: str(count) for name, count in process.asked.items()}
    for name in TOKENS:
        told = re.search(rf"\b{name}: (\d{{1,7}})\b", provenance)
        value = (
            flags.get(f"benchmark_{name}")
            or flags.get(name)
            or (told[1] if told is not None else "")
        )
        if value.isdecimal() and len(value) <= 7 and int(value):
            tokens[name] = value
    if not {"prefill_tokens", "decode_tokens"} <= tokens.keys():
        raise OutputParseError("nothing says how many tokens were asked for")
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
    #: Each is read where its job is: what is odd in one is no fault of another.
    jobs: Few[Any] = Field(alias="jobConfigs", default_factory=list)


class _Said(Part):
    """What a session's files state of it."""

    platform: Text = "android"
    runner: Text = ""
    device_id: Text = ""
    device: Text = ""
    os: Text = ""
    runtime_version: Text = ""
    model: Text = ""
    created: Text = ""
    config: Annotated[_Config, Field(alias="sessionConfig")] = _Config()


def _said(folder: Path) -> _Said:
    """Return the statements of ``session.json`` and ``ddp_session.json`` about a job.

    Raises OutputParseError for what no runner writes.
    """
    said = _Said()
    for name in ("ddp_session.json", "session.json"):
        for place in (folder.parent, folder):
            if (data := _content(place / name)) is not None:
                own = read_part(_Said, data, f"{name} is wrong")
                told = {key: getattr(own, key) for key in own.model_fields_set}
                said = said.model_copy(update=told)
    return said


def _job_config(said: _Said, name: str) -> _JobConfig:
    """Return the options of a job in a session; raises OutputParseError for an odd entry."""
    for item in said.config.jobs:
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


def _line_of(text: str, key: str) -> str:
    """Return what a ``key: value`` line says, in one line that can be shown."""
    found = re.search(rf"^{key}: (.*)$", text, re.MULTILINE)
    told = found[1].strip()[:2000] if found is not None else ""
    return told if told.isprintable() else ""


def _logged(files: Mapping[str, bytes], words: bytes) -> str:
    """Return the word that follows others in what a job logged, "" where they aren't there."""
    for name in (STDOUT, LOGCAT):
        found = re.search(rb"%b([\w./+-]{1,300})" % words, files.get(name, b""))
        if found is not None:
            return found[1].decode()
    return ""
