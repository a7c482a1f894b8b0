"""The public interface for plugins: what they may add to benchfarm, and use of it.

A plugin is an entry point of an installed distribution, in one of the groups ``benchfarm.GROUP``
below. Those of benchfarm itself are in its pyproject.toml. Nothing is imported before it is used: a
name is known by its entry point.

| group | the entry point's name | what it leads to |
|---|---|---|
| commands | ``SECTION of the help | WORDS | LINE of help`` | a module that declares it with
  :func:`command` |
| delegates | a prefix, a dot and a name: ``acme.npu`` | its :class:`Delegate` |
| passes | the pass; a third party's with a prefix and a dot: ``acme.idle`` | a ``PassSpec`` |
| devices | any | a :class:`DeviceSource` |
| exporters | the format, as ``benchfarm export --format`` takes it | an :class:`Exporter` |
| importers | any | an :class:`Importer` |
| notifiers | the scheme of an address (``https``) | a :class:`Notifier` |
| pages | the page's file without its ending | a :class:`Page` |
| program_sources | any | a :class:`ProgramSource` |
| programs | a prefix, a dot and a name: ``acme.sleep`` | its :class:`Program` |
| queues | any | the :class:`QueueSource` |
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from orchestrator.app.attached import (
        Attached,
        attached_devices,
        check_selection,
        open_devices,
        open_phone,
        with_stored_gpu,
    )
    from orchestrator.app.comparing import pair_comparison
    from orchestrator.app.doctor import HostCheck, ok, problem, run_checks, warning
    from orchestrator.app.exporting import ExportRequest, Redaction, redaction_of
    from orchestrator.app.farm import (
        PHONE_STATES,
        RECENT_HOURS,
        away_since,
        read_farm,
        state_counts,
    )
    from orchestrator.app.importing import Imported, store_import
    from orchestrator.app.measuring import (
        CampaignInterruptedError,
        MeasuredCampaign,
        measure,
        run_plan,
    )
    from orchestrator.app.pairing import prepare_pair, sides_of
    from orchestrator.app.phones import release_phone, restore_phones
    from orchestrator.app.plugin_kinds import (
        DeviceSource,
        Exporter,
        JobOwner,
        Message,
        Notifier,
        Page,
        Queue,
        QueueSource,
        Receiver,
    )
    from orchestrator.app.preparing import (
        Prepared,
        Task,
        find_flag_files,
        identify_models,
        prepare,
        reference_model,
        start,
    )
    from orchestrator.app.requests import ImportRequest, PairLimits
    from orchestrator.app.resuming import close_cancelled, open_cases, reopen
    from orchestrator.app.status import queue_beside, queue_source
    from orchestrator.app.stored import find_campaigns, report_data
    from orchestrator.app.time_limits import age_of, left_out_text, stored_left_out
    from orchestrator.app.workspace import Workspace
    from orchestrator.artifacts.fetch import Downloader, is_loopback
    from orchestrator.cli.campaigns import (
        campaign_result,
        facts_of,
        observer_for_stderr,
        reporting_workspace,
    )
    from orchestrator.cli.commands import (
        DryRun,
        Json,
        Out,
        Reporting,
        Texts,
        command,
        plan_keys,
        share_of,
    )
    from orchestrator.cli.output import (
        CUT_EXIT_CODE,
        CommandResult,
        Streamed,
        format_of,
        room,
        say,
        tables_result,
        tell,
        to_json,
        watched,
    )
    from orchestrator.cli.reports import Importer, import_result
    from orchestrator.config.declarations import (
        MANIFEST_NAME,
        Accuracy,
        LiveInventory,
        ManifestEntry,
        add_to_manifest,
        load_manifest,
    )
    from orchestrator.config.plan import load_plan, plan_from_options
    from orchestrator.config.yaml_file import Faults, checked, read_yaml
    from orchestrator.delegates import Delegate, FlagFamily
    from orchestrator.devices.adb_server import is_tcp
    from orchestrator.devices.check import Found, fails, make_checks, works
    from orchestrator.devices.discovery import PhoneCache
    from orchestrator.devices.host import HostDevice, PlainDevice, check_content
    from orchestrator.devices.quiet import UndoJournal
    from orchestrator.engine.events import DeviceNote
    from orchestrator.engine.reread import ForeignRun, ImportBatch, read_imported, report_identity
    from orchestrator.installation import every, load, plugins
    from orchestrator.models.inspect import identify_model, inspect_model, sample_models
    from orchestrator.passes.specification import (
        Figure,
        PassSpec,
    )
    from orchestrator.planning.expansion import FlagFiles
    from orchestrator.planning.selection import choose, mismatch_reason, tools_for
    from orchestrator.ports import CheckResult, ListedPhone, PhoneCheck
    from orchestrator.program import Option, Program, ProgramSource, program_sources
    from orchestrator.programs import program
    from orchestrator.programs.litert import is_litert_result, litert_report
    from orchestrator.programs.litert_native import LitertNativeTool, litert_flags
    from orchestrator.programs.native import command_line
    from orchestrator.programs.running import (
        ImportedTool,
        benchmark_flags,
        described_build,
        environment,
        foreign_build,
        format_flags,
        library_folders,
        on_cores,
        pass_flags,
        run_and_collect,
        source_attachments,
    )
    from orchestrator.records.case import Pass
    from orchestrator.settings import Settings
    from orchestrator.tables.table import Column, Kind, Table

__all__ = [
    "CUT_EXIT_CODE",
    "MANIFEST_NAME",
    "PHONE_STATES",
    "RECENT_HOURS",
    "Accuracy",
    "Attached",
    "CampaignInterruptedError",
    "CheckResult",
    "Column",
    "CommandResult",
    "Delegate",
    "DeviceNote",
    "DeviceSource",
    "Downloader",
    "DryRun",
    "ExportRequest",
    "Exporter",
    "Faults",
    "Figure",
    "FlagFamily",
    "FlagFiles",
    "ForeignRun",
    "Found",
    "HostCheck",
    "HostDevice",
    "ImportBatch",
    "ImportRequest",
    "Imported",
    "ImportedTool",
    "Importer",
    "JobOwner",
    "Json",
    "Kind",
    "ListedPhone",
    "LitertNativeTool",
    "LiveInventory",
    "ManifestEntry",
    "MeasuredCampaign",
    "Message",
    "Notifier",
    "Option",
    "Out",
    "Page",
    "PairLimits",
    "Pass",
    "PassSpec",
    "PhoneCache",
    "PhoneCheck",
    "PlainDevice",
    "Prepared",
    "Program",
    "ProgramSource",
    "Queue",
    "QueueSource",
    "Receiver",
    "Redaction",
    "Reporting",
    "Settings",
    "Streamed",
    "Table",
    "Task",
    "Texts",
    "UndoJournal",
    "Workspace",
    "add_to_manifest",
    "age_of",
    "attached_devices",
    "away_since",
    "benchmark_flags",
    "campaign_result",
    "check_content",
    "check_selection",
    "checked",
    "choose",
    "close_cancelled",
    "command",
    "command_line",
    "described_build",
    "environment",
    "every",
    "facts_of",
    "fails",
    "find_campaigns",
    "find_flag_files",
    "foreign_build",
    "format_flags",
    "format_of",
    "identify_model",
    "identify_models",
    "import_result",
    "inspect_model",
    "is_litert_result",
    "is_loopback",
    "is_tcp",
    "left_out_text",
    "library_folders",
    "litert_flags",
    "litert_report",
    "load",
    "load_manifest",
    "load_plan",
    "make_checks",
    "measure",
    "mismatch_reason",
    "observer_for_stderr",
    "ok",
    "on_cores",
    "open_cases",
    "open_devices",
    "open_phone",
    "pair_comparison",
    "pass_flags",
    "plan_from_options",
    "plan_keys",
    "plugins",
    "prepare",
    "prepare_pair",
    "problem",
    "program",
    "program_sources",
    "queue_beside",
    "queue_source",
    "read_farm",
    "read_imported",
    "read_yaml",
    "redaction_of",
    "reference_model",
    "release_phone",
    "reopen",
    "report_data",
    "report_identity",
    "reporting_workspace",
    "restore_phones",
    "room",
    "run_and_collect",
    "run_checks",
    "run_plan",
    "sample_models",
    "say",
    "share_of",
    "sides_of",
    "source_attachments",
    "start",
    "state_counts",
    "store_import",
    "stored_left_out",
    "tables_result",
    "tell",
    "to_json",
    "tools_for",
    "warning",
    "watched",
    "with_stored_gpu",
    "works",
]

#: Names that plugins may use, in addition to the records -> their modules, loaded on first use.
_HOMES: Final = {
    name: f"orchestrator.{module}"
    for module, names in {
        "app.attached": "Attached attached_devices check_selection open_devices open_phone"
        " with_stored_gpu",
        "app.comparing": "pair_comparison",
        "app.doctor": "HostCheck ok problem run_checks warning",
        "app.exporting": "ExportRequest Redaction redaction_of",
        "app.farm": "PHONE_STATES RECENT_HOURS away_since read_farm state_counts",
        "app.importing": "Imported store_import",
        "app.measuring": "CampaignInterruptedError MeasuredCampaign measure run_plan",
        "app.pairing": "prepare_pair sides_of",
        "app.phones": "release_phone restore_phones",
        "app.plugin_kinds": "DeviceSource Exporter JobOwner Message Notifier Page Queue QueueSource"
        " Receiver",
        "app.preparing": "Prepared Task find_flag_files identify_models prepare reference_model start",
        "app.requests": "ImportRequest PairLimits",
        "app.resuming": "close_cancelled open_cases reopen",
        "app.status": "queue_beside queue_source",
        "app.stored": "find_campaigns report_data",
        "app.time_limits": "age_of left_out_text stored_left_out",
        "app.workspace": "Workspace",
        "artifacts.fetch": "Downloader is_loopback",
        "cli.campaigns": "campaign_result facts_of observer_for_stderr reporting_workspace",
        "cli.commands": "DryRun Json Out Reporting Texts command plan_keys share_of",
        "cli.output": "CUT_EXIT_CODE CommandResult Streamed format_of room say tables_result tell to_json"
        " watched",
        "cli.reports": "Importer import_result",
        "config.declarations": "Accuracy LiveInventory MANIFEST_NAME ManifestEntry add_to_manifest"
        " load_manifest",
        "config.plan": "load_plan plan_from_options",
        "config.yaml_file": "Faults checked read_yaml",
        "delegates": "Delegate FlagFamily",
        "devices.adb_server": "is_tcp",
        "devices.check": "Found fails make_checks works",
        "devices.discovery": "PhoneCache",
        "devices.host": "PlainDevice HostDevice check_content",
        "devices.quiet": "UndoJournal",
        "engine.events": "DeviceNote",
        "engine.reread": "ForeignRun ImportBatch read_imported report_identity",
        "installation": "every load plugins",
        "models.inspect": "identify_model inspect_model sample_models",
        "passes.specification": "Figure PassSpec",
        "planning.expansion": "FlagFiles",
        "planning.selection": "choose mismatch_reason tools_for",
        "ports": "CheckResult ListedPhone PhoneCheck",
        "program": "Option Program ProgramSource program_sources",
        "programs": "program",
        "programs.litert": "is_litert_result litert_report",
        "programs.litert_native": "LitertNativeTool litert_flags",
        "programs.native": "command_line",
        "programs.running": "ImportedTool benchmark_flags described_build environment foreign_build"
        " format_flags library_folders on_cores pass_flags run_and_collect"
        " source_attachments",
        "records.case": "Pass",
        "settings": "Settings",
        "tables.table": "Column Kind Table",
    }.items()
    for name in names.split()
}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'orchestrator.plugins' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
