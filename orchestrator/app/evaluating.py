"""How right a model is with each delegate: LiteRT's evaluation programs, run on the device where the delegate runs.

``run_eval`` of image classification, object detection and inference_diff is the user's own build. Each evaluation is a
file of the data folder, and reports show the newest of each configuration beside its latency.
"""

from __future__ import annotations

import hashlib
import shlex
import uuid
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Final

from orchestrator.artifacts import elf
from orchestrator.bootstrap import Farm, Settings
from orchestrator.delegates import DELEGATES, flags_of
from orchestrator.delegates.specification import FlagFamily
from orchestrator.documents import dump_document, load_document
from orchestrator.engine.events import Notice
from orchestrator.engine.invocation import safe_name
from orchestrator.errors import ArtifactError, StoreError, UsageError
from orchestrator.files import sha256_of, write_file
from orchestrator.ports import Device, ProcessResult
from orchestrator.programs.grammar.evaluation import delegates_in, evaluated_in
from orchestrator.records.device import DeviceFacts, DeviceKind
from orchestrator.records.evaluation import Evaluation
from orchestrator.records.identity import RunId, content_key
from orchestrator.records.plan import DeviceSelection
from orchestrator.records.workload import DelegateName

if TYPE_CHECKING:
    from orchestrator.records.workload import Model

_FOLDER: Final = "evaluations"
_METRICS: Final = "metrics"
#: Flags that say where the data is and how much of it counts, and don't change how the model is computed.
_OF_DATA: Final = ("ground_truth_", "model_output_labels", "num_", "debug_mode", "blacklist_", "denylist_")
#: Without one of these that a program has, it computes no accuracy, and some say so only after all images.
_NEEDED: Final = ("ground_truth_images_path", "ground_truth_labels", "ground_truth_proto", "model_output_labels")
#: Follow from the command's own options.
_OWNED: Final = frozenset({"model_file", "num_interpreter_threads", "delegate", "output_file_path"})
_KEPT_CHARS: Final = 20_000


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluateRequest:
    """What is evaluated, with what."""

    model: Path
    program: Path
    serials: tuple[str, ...]
    delegates: tuple[str, ...]
    threads: int
    #: A value ``@PATH`` is a file or a folder of this computer.
    flags: tuple[tuple[str, str], ...]
    timeout_s: float


def evaluate(farm: Farm, request: EvaluateRequest) -> list[Evaluation]:
    """Evaluate a model with each delegate, device by device, and keep what was found.

    Raises UsageError and ArtifactError kinds before anything runs, DeviceError kinds.
    """
    from orchestrator.models.inspect import identify_model

    model = identify_model(request.model)
    delegates = [_delegate(name) for name in dict.fromkeys(request.delegates)]
    program = _Program(request)
    devices = farm.open_devices(DeviceSelection(serials=request.serials)).devices
    for _, facts in devices:
        program.check_for(facts)
    found = []
    for device, facts in devices:
        with farm.lease.acquire(facts.serial):
            run = _Run(farm, request, program, model, device, facts)
            for delegate in delegates:
                found.append(run.with_delegate(delegate))
                _keep(farm.settings, found[-1])
    return found


def _delegate(name: str) -> DelegateName:
    known = [each.value for each, own in DELEGATES.items() if FlagFamily.BENCHMARK_MODEL in own.flags]
    if name not in known:
        raise UsageError(f"an evaluation has no delegate {name!r}", hint=f"there are {', '.join(known)}")
    return DelegateName(name)


class _Program:
    """The user's ``run_eval`` and the files that its flags name."""

    def __init__(self, request: EvaluateRequest) -> None:
        try:
            content = request.program.read_bytes()
        except OSError as error:
            raise ArtifactError(
                f"{request.program} can't be read: {error.strerror}",
                hint="build it: bazel build -c opt --config=android_arm64 "
                "//tensorflow/lite/tools/evaluation/tasks/inference_diff:run_eval",
            ) from error
        self.path = request.program
        self.sha256 = hashlib.sha256(content).hexdigest()
        self.facts = elf.inspect_elf(request.program) if content.startswith(elf.MAGIC) else None
        self.flags = dict(request.flags)
        if owned := sorted(_OWNED & self.flags.keys()):
            raise UsageError(f"flag {owned[0]} follows from the command's own options and can't be set beside them")
        if self.facts is None or not self.facts.is_fake:
            self._check(content)
        self.files = {name: _files(name, value[1:]) for name, value in request.flags if value.startswith("@")}

    def _check(self, content: bytes) -> None:
        """Refuse what is no evaluation program, and one whose data isn't named."""
        if b"num_interpreter_threads" not in content or b"model_file" not in content:
            raise ArtifactError(
                f"{self.path} isn't one of LiteRT's evaluation programs",
                hint="they are called run_eval: image classification, object detection, inference_diff",
            )
        missing = [name for name in _NEEDED if name.encode() in content and name not in self.flags]
        if missing:
            raise UsageError(
                f"{self.path.name} computes no accuracy without {', '.join(missing)}",
                hint=f"--flag {missing[0]}=@PATH places a file or folder of this computer; "
                "without @ it is a path on the device",
            )

    def check_for(self, facts: DeviceFacts) -> None:
        """Raise ArtifactError for a device that can't run it."""
        if self.facts is None:
            if facts.kind is not DeviceKind.HOST:
                raise ArtifactError(f"{self.path} is no program for {facts.serial}: it is no ELF file")
        elif self.facts.is_fake and not facts.is_virtual:
            raise ArtifactError(f"{self.path} is a fake binary, which only a virtual phone runs")
        elif not self.facts.is_program or (facts.kind is DeviceKind.ANDROID and self.facts.abis[0] not in facts.abis):
            runs = ", ".join(facts.abis) or facts.kind.value
            raise ArtifactError(
                f"{self.path} is built for {self.facts.abis[0]}, {facts.serial} runs {runs}",
                hint="build it with --config=android_arm64 or --config=android_arm",
            )
        elif facts.kind is DeviceKind.IOS:
            raise ArtifactError(f"{facts.serial}: evaluations run on Android phones and on this computer")


def _files(flag: str, path: str) -> list[Path]:
    """Return a file, or a folder's files in the order in which the programs read them."""
    place = Path(path).expanduser()
    files = sorted(item for item in place.iterdir() if item.is_file()) if place.is_dir() else [place]
    for file in files or [place]:
        if not file.is_file():
            raise UsageError(f"{flag}: {place} {'holds no file' if place.is_dir() else 'is no file or folder'}")
        if place.is_dir() and safe_name(file.name) != file.name:
            raise UsageError(
                f"{flag}: {file.name!r} can't be a file name on a phone",
                hint="images are read in the order of their names: rename them all",
            )
    return files


@dataclass(frozen=True, slots=True)
class _Run:
    """The evaluations of one device."""

    farm: Farm
    request: EvaluateRequest
    program: _Program
    model: Model
    device: Device
    facts: DeviceFacts

    def with_delegate(self, delegate: DelegateName) -> Evaluation:
        """Run one process to its end and read it; raises DeviceError kinds."""
        own, command, text, found, is_shown = DELEGATES[delegate], "", "", None, False
        skip = own.skip(self.facts) if self.facts.kind is DeviceKind.ANDROID else None
        if skip is not None:
            reason = skip.reason
        else:
            serial, told = self.facts.serial, f"{self.model.name} is evaluated with {delegate.value}"
            keys = {"serial": str(serial)}
            self.farm.observer.on_event(Notice(event="evaluating", text=f"{serial}: {told}", keys=keys))
            command, result = self._run(delegate)
            text = _text_of(result)
            read = evaluated_in(text)
            found, reason = (None, read) if isinstance(read, str) else (read, "")
            if result.timed_out:
                found, reason = None, f"no end after {self.request.timeout_s:g} s: --timeout, or fewer images"
            elif result.exit_code:
                found, reason = None, f"exit code {result.exit_code}: {reason or text.strip().rpartition(chr(10))[2]}"
            is_shown = own.is_builtin or bool(delegates_in(text) & own.called.keys())
            if found is not None and not is_shown:
                reason = f"nothing that it printed shows that {own.label} took an operator: the figure may be the CPU's"
        is_fake = self.program.facts is not None and self.program.facts.is_fake
        return Evaluation(
            model_sha256=self.model.sha256,
            model_name=self.model.name,
            serial=self.facts.serial,
            is_virtual=self.facts.is_virtual or is_fake,
            delegate=delegate.value,
            threads=self.request.threads,
            flags=tuple(sorted(flag for flag in self.request.flags if not flag[0].startswith(_OF_DATA))),
            program_sha256=self.program.sha256,
            evaluated_at=self.farm.clock.now(),
            found=found,
            reason=reason,
            is_shown=is_shown or own.is_builtin,
            command=command,
            output=text[-_KEPT_CHARS:],
        )

    def _run(self, delegate: DelegateName) -> tuple[str, ProcessResult]:
        """Run the program; return its command line and what it left."""
        run_id = RunId(uuid.uuid4().hex)
        program = self._place([self.program.path], kind="programs", name="run_eval", executable=True)
        files = self.program.files
        values = {
            name: self._place(files[name], kind="inputs", is_folder=Path(value[1:]).expanduser().is_dir())
            if name in files
            else value
            for name, value in self.program.flags.items()
        }
        given = {
            "model_file": self._place([self.request.model], kind="models"),
            "num_interpreter_threads": str(self.request.threads),
            "output_file_path": f"{self.device.run_folder(run_id)}/{_METRICS}",
            # Programs before the delegates' own flags know the first; later ones take both.
            **({} if DELEGATES[delegate].is_builtin else {"delegate": delegate.value}),
            **flags_of(delegate, FlagFamily.BENCHMARK_MODEL),
            **values,
        }
        words = shlex.join([program, *(f"--{name}={value}" for name, value in given.items())])
        command = f"LD_LIBRARY_PATH={shlex.quote(str(PurePosixPath(program).parent))} {words} < /dev/null"
        try:
            return command, self.device.run_detached(
                command,
                run_id=run_id,
                timeout_s=self.request.timeout_s,
                files=(_METRICS,),
                cancelled=self.farm.cancelled,
            )
        finally:
            self.device.discard_run(run_id)

    def _place(
        self, files: Sequence[Path], *, kind: str, name: str = "", executable: bool = False, is_folder: bool = False
    ) -> str:
        """Place files side by side; return the path of the first, or of their folder."""
        known = [(file, sha256_of(file)) for file in files]
        together = content_key([[file.name, sha256] for file, sha256 in known]) if is_folder else ""
        paths = [
            self.device.place(
                file, kind=kind, sha256=sha256, name=name or safe_name(file.name), executable=executable,
                set_sha256=together,
            ).path
            for file, sha256 in known
        ]  # fmt: skip
        return str(PurePosixPath(paths[0]).parent) if is_folder else paths[0]


def _text_of(result: ProcessResult) -> str:
    """Return what was printed, and what an older program wrote as text; a newer one's file is binary."""
    parts = [result.stdout.decode("utf-8", "replace"), result.stderr.decode("utf-8", "replace")]
    try:
        written = result.files.get(_METRICS, b"").decode("utf-8")
    except UnicodeDecodeError:
        written = ""
    return "\n".join([*parts, written] if "num_runs:" in written else parts)


def _keep(settings: Settings, evaluation: Evaluation) -> None:
    """Keep an evaluation in the place of an older one of the same configuration; a failed one replaces none."""
    what = (
        evaluation.model_sha256, evaluation.serial, evaluation.delegate, evaluation.threads, evaluation.flags,
        evaluation.found.metric if evaluation.found is not None else "failed",
    )  # fmt: skip
    write_file(settings.data_folder / _FOLDER / f"{content_key(list(what))[:32]}.json", dump_document(evaluation))


def kept_evaluations(settings: Settings, models: Iterable[str]) -> Iterator[Evaluation]:
    """Yield what was found of some models, by their sha256, oldest first; a damaged file is left out."""
    wanted = frozenset(models)
    found = []
    for path in sorted((settings.data_folder / _FOLDER).glob("*.json")):
        try:
            each = load_document(Evaluation, path.read_text("utf-8"), where=str(path))
        except (OSError, StoreError, UnicodeDecodeError):
            continue
        if each.found is not None and each.model_sha256 in wanted:
            found.append(each)
    yield from sorted(found, key=lambda each: each.evaluated_at)
