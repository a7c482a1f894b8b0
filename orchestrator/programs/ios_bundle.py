"""The folder that is carried to a Mac: for each case of an iPhone the files of its app bundle, and a manifest.

manifest.json                                what was exported; the import reads it
README.md                                    what to do, step by step
01-mobilenet-gpu-4t/benchmark_data/          the files to put into the app's bundle
01-mobilenet-gpu-4t/results/                 where the app's output is put for the import
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from orchestrator.errors import UsageError
from orchestrator.programs.ios_app import benchmark_params, case_mark
from orchestrator.records.campaign import Invocation
from orchestrator.records.device import CpuCluster, DeviceFacts, DeviceKind, DeviceProfile
from orchestrator.records.identity import BuildSha, ModelSha, Serial
from orchestrator.records.workload import Build, Case, DelegateName, Model, Pass, SkippedCase, ToolName

MANIFEST: Final = "manifest.json"
PARAMS: Final = "benchmark_params.json"
DATA_FOLDER: Final = "benchmark_data"
RESULTS_FOLDER: Final = "results"
_SCHEMA: Final = "benchfarm-ios-export"
_SCHEMA_VERSION: Final = 1
_MANIFEST_FAULT: Final = "export the plan again; what was measured with the old folder's files belongs to that folder"
_README: Final = """\
# What to measure on the iPhone

| folder | model | delegate | threads | pass | how often |
|---|---|---|---:|---|---:|
{rows}

For each row, with the iOS benchmark app of TensorFlow Lite (TFLiteBenchmark.xcodeproj) in Xcode:

1. Replace the content of the app's `{data}` folder by that of the row's own `{data}` folder, and see that both files
   are listed under Build Phases, Copy Bundle Resources. Change nothing in the files.
2. Choose the Release configuration for the scheme's Run action, without the debugger, GPU frame capture and Metal
   validation. The delegates `gpu` (Metal) and `coreml` need an app that is linked with them, and a real iPhone.
3. Let the phone cool, keep it awake, and start the app with its console:
   `xcrun devicectl device process launch --console --device PHONE BUNDLE_IDENTIFIER`, or in Xcode.
4. Tap the button and wait for the figures.
5. Save the console's text as `{results}/1.txt` in the row's folder. The text of the result view does where there is no
   console; it shows neither model, threads nor delegate, so that its figures count as doubtful. A BenchmarkResult proto
   of a run may lie beside its console text as `1.pb`, or alone.
6. End the app, and repeat from step 3 as often as the table says: `2.txt`, `3.txt` ...

To see each operator's time in Instruments instead (a traced run's figures are no result; don't import them):

1. Edit the scheme's Profile action: under Arguments clear "Use the Run action's arguments and environment variables",
   and add the environment variable `debug.tflite.trace` with the value `1`.
2. Product, Profile; choose the template Blank and add the instrument os_signpost.
3. Record, tap the button, and stop when the figures are shown.
4. The intervals stand under the subsystem `org.tensorflow.lite`, category `Tracing`, as "operator invoke" with the
   message `OPERATOR@node/subgraph`; "Summary: Intervals" shows how often and how long.

Then, where benchfarm is: `benchfarm ios import FOLDER`, with the folder in which this file lies. A text that can't be
of its row is refused, with the line that shows it.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportedCase:
    """One case in one pass: a bundle of its own."""

    folder: str
    case: Case
    run_pass: Pass
    #: How often it is to be measured.
    invocations: int

    @property
    def mark(self) -> str:
        """The name that the app echoes for this case and pass."""
        return case_mark(self.case, self.run_pass)

    @property
    def resource(self) -> str:
        """The model's file name in the bundle."""
        return f"{_safe(self.case.model_name)}.tflite"

    @property
    def params(self) -> dict[str, str]:
        """What ``benchmark_params.json`` holds."""
        return benchmark_params(self.case, self.run_pass, resource=self.resource)


@dataclass(frozen=True, slots=True, kw_only=True)
class IosExport:
    """A plan's cases for one iPhone."""

    name: str
    plan_text: str
    seed: int
    serial: Serial
    #: Name of the device profile.
    profile: str
    #: iOS version as the user says, empty when not told.
    os_version: str
    build: Build
    models: tuple[Model, ...]
    cases: tuple[ExportedCase, ...]
    skipped: tuple[SkippedCase, ...] = field(default=())

    def model_of(self, exported: ExportedCase) -> Model:
        """Return the model of one of its cases."""
        return next(model for model in self.models if model.sha256 == exported.case.model_sha256)


def iphone_facts(profile: DeviceProfile, *, serial: str, os_version: str) -> DeviceFacts:
    """Return the facts of an iPhone that nothing was probed of: what its profile declares and its owner says."""
    clusters, first = [], 0
    for cores in profile.cluster_cores:
        clusters.append(CpuCluster(cpus=tuple(range(first, first + cores)), min_khz=None, max_khz=None))
        first += cores
    product = next(iter(profile.match.get("ProductType", ())), "")
    return DeviceFacts(
        serial=Serial(serial),
        kind=DeviceKind.IOS,
        is_virtual=False,
        manufacturer="Apple",
        model=profile.title,
        codename=product,
        os_version=os_version,
        soc=profile.soc,
        clusters=tuple(clusters),
        profile=profile.name,
        properties={"ProductType": product} if product else {},
    )


def exported_cases(invocations: tuple[Invocation, ...]) -> tuple[ExportedCase, ...]:
    """Return each case and pass once with its number of invocations, in a folder of its own, sorted for people."""
    counts: dict[tuple[str, Pass], int] = {}
    cases: dict[tuple[str, Pass], Case] = {}
    for item in invocations:
        key = (item.case.case_key, item.run_pass)
        counts[key] = counts.get(key, 0) + 1
        cases[key] = item.case
    passes, delegates = list(Pass), list(DelegateName)
    order = sorted(
        cases,
        key=lambda key: (
            cases[key].model_name,
            delegates.index(cases[key].delegate),
            cases[key].threads,
            cases[key].flags,
            passes.index(key[1]),
            key[0],
        ),
    )
    digits = max(2, len(str(len(order))))
    return tuple(
        ExportedCase(
            folder=f"{number:0{digits}d}-{_safe(cases[key].model_name)[:40]}-{cases[key].delegate}-"
            f"{cases[key].threads}t" + ("" if key[1] is Pass.TIMING else f"-{key[1]}"),
            case=cases[key],
            run_pass=key[1],
            invocations=counts[key],
        )
        for number, key in enumerate(order, start=1)
    )


def text_files(export: IosExport) -> Iterator[tuple[str, str]]:
    """Yield the path and content of every file of the folder but the models."""
    yield MANIFEST, dump_manifest(export)
    yield "README.md", _readme(export)
    for exported in export.cases:
        yield f"{exported.folder}/{DATA_FOLDER}/{PARAMS}", json.dumps(exported.params, indent=4) + "\n"


def dump_manifest(export: IosExport) -> str:
    """Return the manifest as JSON."""
    document = {
        "schema": _SCHEMA,
        "schema_version": _SCHEMA_VERSION,
        "name": export.name,
        "plan_text": export.plan_text,
        "seed": export.seed,
        "device": {"serial": export.serial, "profile": export.profile, "os_version": export.os_version},
        "build": {"name": export.build.name, "sha256": export.build.sha256, "version": export.build.version},
        "models": [
            {"name": model.name, "sha256": model.sha256, "size_bytes": model.size_bytes} for model in export.models
        ],
        "cases": [
            {
                "folder": exported.folder,
                "case_key": exported.case.case_key,
                "case": exported.case.to_row(),
                "pass": exported.run_pass.value,
                "invocations": exported.invocations,
                "params": exported.params,
            }
            for exported in export.cases
        ],
        "skipped": [
            {
                "serial": skip.serial,
                "model_name": skip.model_name,
                "delegate": skip.delegate.value,
                "threads": skip.threads,
                "tool": skip.tool.value,
                "reason_code": skip.reason_code,
                "reason": skip.reason,
            }
            for skip in export.skipped
        ],
    }
    return json.dumps(document, indent=1) + "\n"


def load_manifest(text: str, *, where: str) -> IosExport:
    """Read a manifest back; raises UsageError when it isn't one, or was changed by hand."""
    try:
        document = json.loads(text)
        if document["schema"] != _SCHEMA or document["schema_version"] != _SCHEMA_VERSION:
            raise UsageError(f"{where}: not a manifest that this version of benchfarm reads", hint=_MANIFEST_FAULT)
        # Text that no store takes: half a character, written as an escape.
        json.dumps(document, ensure_ascii=False).encode()
        export = _export(document)
        for exported, entry in zip(export.cases, document["cases"], strict=True):
            if exported.case.case_key != entry["case_key"] or exported.params != entry["params"]:
                raise UsageError(f"{where}: the case {exported.folder} was changed by hand", hint=_MANIFEST_FAULT)
            if exported.folder in {"", ".", ".."} or _safe(exported.folder) != exported.folder:
                raise UsageError(f"{where}: {exported.folder!r} isn't the name of a folder beside it")
            export.model_of(exported)
    except (ValueError, KeyError, TypeError, AttributeError, AssertionError, StopIteration, RecursionError) as error:
        raise UsageError(f"{where}: not a manifest of 'benchfarm ios export' ({error!r})") from error
    return export


def _export(document: Mapping[str, object]) -> IosExport:
    def part(name: str) -> Mapping[str, object]:
        value = document[name]
        if not isinstance(value, dict):
            raise TypeError(f"{name} isn't an object")
        return value

    def parts(name: str) -> list[Mapping[str, object]]:
        value = document[name]
        if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
            raise TypeError(f"{name} isn't a list of objects")
        return value

    device, build = part("device"), part("build")
    return IosExport(
        name=str(document["name"]),
        plan_text=str(document["plan_text"]),
        seed=int(str(document["seed"])),
        serial=Serial(str(device["serial"])),
        profile=str(device["profile"]),
        os_version=str(device["os_version"]),
        build=Build(
            name=str(build["name"]),
            tool=ToolName.IOS_APP,
            sha256=BuildSha(str(build["sha256"])),
            abi="",
            version=str(build["version"]),
        ),
        models=tuple(
            Model(name=str(item["name"]), sha256=ModelSha(str(item["sha256"])), size_bytes=int(str(item["size_bytes"])))
            for item in parts("models")
        ),
        cases=tuple(_exported_case(item) for item in parts("cases")),
        skipped=tuple(
            SkippedCase(
                serial=Serial(str(item["serial"])),
                model_name=str(item["model_name"]),
                delegate=DelegateName(str(item["delegate"])),
                threads=int(str(item["threads"])),
                tool=ToolName(str(item["tool"])),
                reason_code=str(item["reason_code"]),
                reason=str(item["reason"]),
            )
            for item in parts("skipped")
        ),
    )


def _exported_case(item: Mapping[str, object]) -> ExportedCase:
    row = item["case"]
    if not isinstance(row, dict):
        raise TypeError("a case isn't an object")
    return ExportedCase(
        folder=str(item["folder"]),
        case=Case.from_row(row),
        run_pass=Pass(str(item["pass"])),
        invocations=int(str(item["invocations"])),
    )


def _safe(name: str) -> str:
    """Return a name for a file of the bundle and for any file system."""
    kept = "".join(letter if letter.isascii() and (letter.isalnum() or letter in "._-") else "_" for letter in name)
    return kept.lstrip("-.")[-80:].lstrip("-.") or "model"


def _readme(export: IosExport) -> str:
    rows = [
        f"| `{exported.folder}` | `{exported.resource}` | {exported.case.delegate} | {exported.case.threads} "
        f"| {exported.run_pass} | {exported.invocations} |"
        for exported in export.cases
    ]
    return _README.format(rows="\n".join(rows), data=DATA_FOLDER, results=RESULTS_FOLDER)
