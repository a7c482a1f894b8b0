"""The references for parity: inputs from a seed or a folder, and the outputs of each of LiteRT's
kernels for them.

The kernels are the builtin ones, XNNPACK and the plain reference kernels, with one thread, each in
a process of its own. Their outputs are kept by the contents of model and inputs and the runtime's
version, because they are slow.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Final

from orchestrator.errors import BenchfarmError, InterruptedByUserError, ModelError
from orchestrator.files import make_private, write_whole
from orchestrator.models.inspect import inspect_model
from orchestrator.ports import ParityBasis
from orchestrator.processes import child_environment, hold_slot
from orchestrator.records.case import Model
from orchestrator.records.model import ModelFacts, TensorFacts
from orchestrator.records.run import Attachment
from orchestrator.records.verdict import (
    BASIS_FILE,
    CONTRAST_FILE,
    Kernels,
    ParityInput,
    reference_file,
)

SEED: Final = 20
#: Of the inputs that show whether the outputs depend on them.
_OTHER_SEED: Final = 21
_TIMEOUT_S: Final = 900.0
#: The plain kernels are some 40 times as slow as the others, and one reference among three.
_PLAIN_TIMEOUT_S: Final = 60.0
#: Larger inputs aren't made: something is wrong with such a shape.
_INPUT_BYTES_MAX: Final = 1 << 30
_FLOATS: Final = ("float16", "float32", "float64")
_INTEGERS: Final = ("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64")
#: Plain whole numbers are places in a table more often than not; small ones are in every table.
_INDEX_MAX: Final = 10


#: A model may fill this computer's memory, so one reference at a time is computed: one semaphore
#: for the process, in which each of a farm's jobs has a HostReference.
_COMPUTING: Final = threading.BoundedSemaphore(1)
#: Key of a reference that couldn't be computed -> time of the failure (monotonic), and the reason.
_FAILED: Final[dict[str, tuple[float, str]]] = {}


class HostReference:
    """Computes references with the LiteRT runtime of this computer. See ports.ParityReference."""

    def __init__(self, folder: Path, cancelled: threading.Event | None = None) -> None:
        """``folder`` keeps inputs and outputs; ``cancelled`` ends all waiting."""
        self._folder = folder
        self._cancelled = cancelled or threading.Event()
        self._created_s = time.monotonic()
        #: A large model is copied to be read: once, however many phones and cases ask.
        self._reading = threading.Lock()

    def reason_against(self, model: Model) -> str:
        """See ports.ParityReference.reason_against."""
        try:
            self._checked_facts(model)
        except BenchfarmError as error:
            return str(error)
        return ""

    def basis(self, model: Model, input_folder: str = "") -> ParityBasis:
        """See ports.ParityReference.basis."""
        tensors = self._checked_facts(model).inputs
        origin, inputs = self._inputs(model, tensors, Path(input_folder) if input_folder else None)
        contrast = [
            self._store_input(_values(tensor, _OTHER_SEED, place))
            for place, tensor in enumerate(tensors)
        ]
        folder = self._reference_folder(
            model, [_shape(tensor) for tensor in tensors], inputs, contrast
        )
        references = [kernels for kernels in Kernels if (folder / f"{kernels}-0").is_file()]
        described = {
            "runtime": f"LiteRT {version('ai-edge-litert')}",
            "references": references,
            "inputs": origin,
            "input_sha256": [path.name for path in inputs],
            "outputs": json.loads((folder / "done.json").read_text("utf-8")),
        }
        return ParityBasis(
            inputs=tuple(
                ParityInput(name=tensor.name, shape=_shape(tensor), path=path, sha256=path.name)
                for tensor, path in zip(tensors, inputs, strict=True)
            ),
            attachments=(
                Attachment(name=BASIS_FILE, data=json.dumps(described, sort_keys=True).encode()),
                *(
                    Attachment(
                        name=reference_file(kernel), data=(folder / f"{kernel}-0").read_bytes()
                    )
                    for kernel in references
                ),
                Attachment(name=CONTRAST_FILE, data=(folder / f"{Kernels.BUILTIN}-1").read_bytes()),
            ),
        )

    def _checked_facts(self, model: Model) -> ModelFacts:
        """Return a model's facts; raises ModelError where its outputs can't be compared, saying why."""
        if model.path is None or not model.path.is_file():
            raise ModelError(
                f"{model.name}: its file isn't here, so there is no reference for its outputs"
            )
        with self._reading:
            facts = inspect_model(model.path)
        _check(model, facts)
        return facts

    def _inputs(
        self, model: Model, tensors: Sequence[TensorFacts], input_folder: Path | None
    ) -> tuple[str, list[Path]]:
        """Return the origin of the inputs, and their stored files."""
        paths = (
            [input_folder / f"{model.name}.{place}.bin" for place in range(len(tensors))]
            if input_folder is not None
            else []
        )
        provided = [path for path in paths if path.is_file()]
        if not provided:
            return f"seed {SEED}", [
                self._store_input(_values(tensor, SEED, place))
                for place, tensor in enumerate(tensors)
            ]
        files = []
        for path, tensor in zip(paths, tensors, strict=True):
            if not path.is_file():
                raise ModelError(f"{model.name}: {path} is missing; give every input or none")
            data, size = path.read_bytes(), _bytes_of(tensor)
            if len(data) != size:
                raise ModelError(
                    f"{path} has {len(data)} bytes; the input {tensor.name!r} has {size}"
                )
            files.append(self._store_input(data))
        return "given", files

    def _store_input(self, data: bytes) -> Path:
        """Return the file with these bytes, named by their hash."""
        path = self._folder / "inputs" / hashlib.sha256(data).hexdigest()
        if not path.is_file():
            write_whole(path, data)
        return path

    def _reference_folder(
        self,
        model: Model,
        shapes: Sequence[tuple[int, ...]],
        inputs: Sequence[Path],
        contrast: Sequence[Path],
    ) -> Path:
        """Return the folder with each kernels' outputs for the inputs, and the builtin ones' for
        the contrast inputs.

        Computes missing outputs, unless that has failed since this object was created. Raises
        ModelError where the builtin kernels can't compute the model; the other kernels, which end
        the process on some models, may be missing.
        """
        sets = [[str(path) for path in inputs], [str(path) for path in contrast]]
        names = [[path.name for path in inputs], [path.name for path in contrast]]
        key = hashlib.sha256(
            json.dumps([model.sha256, names, shapes, version("ai-edge-litert"), *Kernels]).encode()
        ).hexdigest()[:40]
        folder = self._folder / "outputs" / key
        if (folder / "done.json").is_file():
            return folder
        with hold_slot(_COMPUTING, self._cancelled):
            self._check_cancelled()
            failed_s, reason = _FAILED.get(key, (-math.inf, ""))
            if failed_s >= self._created_s:
                raise ModelError(reason)
            if not (folder / "done.json").is_file():
                try:
                    self._compute(model, shapes, sets, folder)
                except ModelError as error:
                    # Ctrl-C in a terminal ends its process, too.
                    self._check_cancelled()
                    _FAILED[key] = time.monotonic(), str(error)
                    raise
        return folder

    def _check_cancelled(self) -> None:
        if self._cancelled.is_set():
            raise InterruptedByUserError

    def _compute(
        self, model: Model, shapes: Sequence[tuple[int, ...]], sets: list[list[str]], folder: Path
    ) -> None:
        make_private(folder.parent)
        draft = Path(tempfile.mkdtemp(dir=folder.parent))
        try:
            job = {"model": str(model.path), "shapes": shapes}
            _run(model, draft, {**job, "sets": sets, "kernels": Kernels.BUILTIN}, _TIMEOUT_S)
            for kernels, timeout_s in (
                (Kernels.XNNPACK, _TIMEOUT_S),
                (Kernels.PLAIN, _PLAIN_TIMEOUT_S),
            ):
                with contextlib.suppress(ModelError):
                    _run(model, draft, {**job, "sets": sets[:1], "kernels": kernels}, timeout_s)
            # After an interruption some kernels' outputs are missing.
            self._check_cancelled()
            with contextlib.suppress(OSError):
                # Another process may have stored the same outputs first.
                draft.rename(folder)
        finally:
            shutil.rmtree(draft, ignore_errors=True)


def _check(model: Model, facts: ModelFacts) -> None:
    """Raise ModelError where a model's outputs can't be compared, saying why."""
    if outside := [*facts.custom_operators, *facts.flex_operators]:
        raise ModelError(
            f"{model.name} needs {', '.join(outside)}; the reference here has builtin operators only, "
            "so outputs of custom and Flex operators can't be compared"
        )
    if not facts.inputs:
        raise ModelError(f"{model.name} has no inputs, so its outputs are constants")
    for tensor in facts.inputs:
        if tensor.dtype == "string":
            raise ModelError(
                f"{model.name}: its input {tensor.name!r} is text; only models of numbers can be compared"
            )
        if tensor.dtype not in {*_FLOATS, *_INTEGERS, "bool"}:
            raise ModelError(
                f"{model.name}: an input of type {tensor.dtype} ({tensor.name!r}) can't be made from a seed"
            )
        if "," in tensor.name or not tensor.name:
            raise ModelError(
                f"{model.name}: the programs' flags can't name the input {tensor.name!r}"
            )
        if _bytes_of(tensor) > _INPUT_BYTES_MAX:
            raise ModelError(f"{model.name}: the input {tensor.name!r} is larger than a gigabyte")


def _shape(tensor: TensorFacts) -> tuple[int, ...]:
    """Return a shape with 1 for each dynamic size."""
    return tuple(max(1, size) for size in tensor.shape)


def _bytes_of(tensor: TensorFacts) -> int:
    import numpy as np

    return math.prod(_shape(tensor)) * np.dtype(tensor.dtype).itemsize


def _values(tensor: TensorFacts, seed: int, place: int) -> bytes:
    """Return an input's raw bytes, the same for the same seed on every computer."""
    import numpy as np

    # PCG64's raw stream is fixed by its definition; numpy's distributions over it may change
    # between versions.
    count = math.prod(_shape(tensor))
    draws = np.random.PCG64([seed, place]).random_raw(count)
    kind = np.dtype(tensor.dtype)
    if kind.kind == "f":
        return ((draws >> np.uint64(11)).astype(np.float64) / 2.0**52 - 1.0).astype(kind).tobytes()
    if kind.kind == "b":
        return (draws & np.uint64(1)).astype(kind).tobytes()
    if tensor.scale is not None:
        return draws.astype(f"u{kind.itemsize}").astype(kind).tobytes()
    return (draws % np.uint64(_INDEX_MAX)).astype(kind).tobytes()


def _run(model: Model, folder: Path, job: Mapping[str, object], timeout_s: float) -> None:
    """Compute the outputs of one kind of kernels into ``folder``.

    Raises ModelError.
    """
    (folder / "job.json").write_text(json.dumps(job), "utf-8")
    command = [sys.executable, "-m", "orchestrator.models.reference_run", str(folder)]
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=timeout_s,
            check=False,
            env=child_environment(),
        )
    except subprocess.TimeoutExpired as error:
        raise ModelError(
            f"{model.name}: the reference took over {timeout_s:g} s on this computer"
        ) from error
    if done.returncode:
        errors = done.stderr.decode("utf-8", "replace").strip().splitlines()
        exit_text = (
            f"signal {-done.returncode}" if done.returncode < 0 else f"exit code {done.returncode}"
        )
        raise ModelError(
            f"{model.name}: the reference can't compute it ({exit_text}): {errors[-1] if errors else 'no message'}"
        )
