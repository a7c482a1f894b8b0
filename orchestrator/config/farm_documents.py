"""Plans and facts on their way between hosts: JSON documents, every field checked when read."""

from __future__ import annotations

from typing import Any, TypeVar

from pydantic import TypeAdapter, ValidationError

from orchestrator.config.plan import _affinity, _free_flags, _predicate
from orchestrator.errors import PlanError
from orchestrator.records.device import DeviceFacts
from orchestrator.records.plan import Plan

_Record = TypeVar("_Record", Plan, DeviceFacts)


def dump(record: Plan | DeviceFacts) -> str:
    """Return a plan or a device's facts as a JSON document."""
    return TypeAdapter[Any](type(record)).dump_json(record).decode()


def read_plan(document: str) -> Plan:
    """Return the plan of a document; raises PlanError naming what is wrong with it."""
    plan = _read(Plan, document)
    try:
        for flags in plan.matrix.flags:
            _free_flags(dict(flags))
        for text in plan.devices.where:
            _predicate(text)
        _affinity(plan.settings.affinity)
    except ValueError as error:
        raise PlanError(f"a plan from the queue: {error}") from error
    return plan


def read_facts(document: str) -> DeviceFacts:
    """Return the facts of a document; raises PlanError naming what is wrong with them."""
    return _read(DeviceFacts, document)


def _read(kind: type[_Record], document: str) -> _Record:
    try:
        record: _Record = TypeAdapter[Any](kind).validate_json(document)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise PlanError(f"a {kind.__name__} from the queue: {where}: {first['msg']}") from error
    return record
