"""An importer: logs of acme."""

from datetime import UTC, datetime

from orchestrator.errors import UsageError
from orchestrator.plugins import (
    ForeignRun,
    ImportBatch,
    Importer,
    Workspace,
    import_result,
    store_import,
)
from orchestrator.records.case import (
    Build,
    BuildSha,
    Case,
    DelegateName,
    Model,
    ModelSha,
    Serial,
    ToolName,
    content_key,
)
from orchestrator.records.device import DeviceFacts, DeviceKind
from orchestrator.records.run import Attachment, RawOutput


def take_in(settings, request):
    """Store the run of each file."""
    batch = ImportBatch()
    for path in request.files:
        head, _, log = path.read_text("utf-8").partition("\n")
        _, serial, model = head.split(",")
        if not serial.isidentifier():
            raise UsageError(
                f"{path}:1: {serial!r} is no name of a phone", hint="write letters, digits and _"
            )
        phone = DeviceFacts(
            serial=Serial(serial), kind=DeviceKind.ANDROID, is_virtual=False, is_imported=True
        )
        measured = Model(name=model, sha256=ModelSha(content_key({"model": model})), size_bytes=0)
        build = Build(
            name="benchmark_model of acme",
            tool=ToolName.NATIVE,
            sha256=BuildSha(content_key({"build": "acme"})),
            abi="arm64-v8a",
            version="",
        )
        case = Case(
            serial=phone.serial,
            model_sha256=measured.sha256,
            model_name=measured.name,
            delegate=DelegateName.XNNPACK,
            threads=4,
            tool=build.tool,
            build_sha256=build.sha256,
        )
        raw = RawOutput(
            command="",
            exit_code=0,
            timed_out=False,
            started_at=datetime.fromtimestamp(path.stat().st_mtime, UTC),
            duration_s=0.0,
            attachments=(Attachment(name="stdout", data=log.encode()),),
        )
        batch.devices[phone.serial] = phone
        batch.models[measured.sha256] = measured
        batch.builds[build.sha256] = build
        batch.runs.append(ForeignRun(case=case, raw=raw))
    with Workspace(settings) as workspace:
        return import_result([store_import(workspace, batch, request=request)])


LOG = Importer(title="a log of acme", takes=lambda path: path.suffix == ".acme", take_in=take_in)
