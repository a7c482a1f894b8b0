"""Types of fields that several kinds of file share, and single words of plan files."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from typing import Annotated, Any, Final, TypeVar

from pydantic import BeforeValidator, GetCoreSchemaHandler, GetJsonSchemaHandler, WithJsonSchema
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, core_schema

from orchestrator.config.faults import not_one_of
from orchestrator.errors import UsageError
from orchestrator.plugins import plugins
from orchestrator.predicates import FIELDS, parse_predicate
from orchestrator.quantities import parse_celsius, parse_percent, parse_seconds
from orchestrator.records.build_spec import OWNED_FLAGS
from orchestrator.records.plan import DelegateChoice
from orchestrator.records.workload import DelegateName

ItemT = TypeVar("ItemT")


class Short:
    """Lets a value be written in a shorter form, which the schema for editors has too."""

    def __init__(
        self, lengthened: Callable[[Any], object], schema: Callable[[JsonSchemaValue], JsonSchemaValue]
    ) -> None:
        """``lengthened`` returns the full form; ``schema`` returns the short form's schema for the full one's."""
        self._lengthened = lengthened
        self._schema = schema

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:  # noqa: ANN401
        return core_schema.no_info_before_validator_function(self._lengthened, handler(source))

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        full = handler(schema)
        return {"anyOf": [self._schema(full), full]}


def _read(parse: Callable[[str], Any]) -> BeforeValidator:
    """Return what reads a value from its text."""

    def read(value: object) -> object:
        if not isinstance(value, str):
            what = "a list" if isinstance(value, list) else "keys and values"
            raise ValueError(f"must be a single value, but is {what}")
        return parse(value)

    return BeforeValidator(read)


def _filled(value: str) -> str:
    if not value.strip():
        raise ValueError("must not be empty")
    return value


def _sha256(value: str) -> str:
    if not re.fullmatch(r"[0-9a-f]{64}", value.lower()):
        raise ValueError(f"{value!r} isn't a sha256 (64 hexadecimal digits)")
    return value.lower()


_ANY: Final = WithJsonSchema({"type": ["string", "number", "boolean"]})
_NUMBER: Final = WithJsonSchema({"type": ["number", "string"]})

#: ``OneOrMany[tuple[str, ...]]``: a list, or a single item without its brackets.
OneOrMany = Annotated[
    ItemT, Short(lambda value: value if isinstance(value, list) else [value], lambda full: full["items"])
]
#: Text that isn't empty, as it is written, also when it looks like a number or a truth value.
Text = Annotated[str, _read(_filled), _ANY]
#: The same, where an empty text means something.
AnyText = Annotated[str, _read(str), _ANY]
Sha256 = Annotated[str, _read(_sha256), WithJsonSchema({"type": ["string"]})]
Seconds = Annotated[float, _read(parse_seconds), _NUMBER]
Percent = Annotated[float, _read(parse_percent), _NUMBER]
#: The same, under a key that says that it is a percentage.
NamedPercent = Annotated[float, _read(partial(parse_percent, is_named=True)), _NUMBER]
Celsius = Annotated[float, _read(parse_celsius), _NUMBER]


def unique(values: tuple[ItemT, ...]) -> tuple[ItemT, ...]:
    """Refuse a list that names something twice."""
    for number, value in enumerate(values):
        if value in values[:number]:
            raise ValueError(f"names {str(value)!r} twice")
    return values


#: PowerManager's words for its thermal status.
THERMAL_STATUS: Final = ("none", "light", "moderate", "severe", "critical", "emergency", "shutdown")
#: Characters of a campaign's name.
_NAME_MAX: Final = 100
_FLAG_NAME: Final = re.compile(r"[A-Za-z][A-Za-z0-9_-]*")


def free_flags(flags: dict[str, str]) -> dict[str, str]:
    """Return flags that a plan may set; raises ValueError."""
    for name, value in flags.items():
        if not _FLAG_NAME.fullmatch(name):
            bare = name.lstrip("-")
            hint = f"; write {bare}" if bare != name and _FLAG_NAME.fullmatch(bare) else ""
            raise ValueError(f"{name!r} isn't the name of a flag{hint}")
        if name in OWNED_FLAGS:
            raise ValueError(f"the flag {name} can't be set here: {OWNED_FLAGS[name]}")
        if "\0" in value or "\n" in value:
            raise ValueError(f"the value of {name} must not hold line ends or NUL")
    return flags


def delegate_word(value: object) -> DelegateName | DelegateChoice:
    """Return a delegate, or the word for several, in whatever case it is written; raises ValueError."""
    word = str(value).strip().lower()
    known: dict[str, DelegateName | DelegateChoice] = {
        name.value: name for name in (*DelegateName, *map(DelegateName, plugins("delegates")), *DelegateChoice)
    }
    if word not in known:
        raise ValueError(not_one_of(str(value), known))
    return known[word]


def delegate_words(
    words: tuple[DelegateName | DelegateChoice, ...],
) -> tuple[DelegateName | DelegateChoice, ...]:
    """Return delegates, or one word for several; raises ValueError for both."""
    choice = next((word for word in words if isinstance(word, DelegateChoice)), None)
    if choice is not None and len(words) > 1:
        raise ValueError(f"{choice.value!r} stands for several delegates; leave out the other names")
    return unique(words)


def predicate_text(text: str) -> str:
    """Return a claim about a device that can be read; raises ValueError."""
    try:
        parse_predicate(text)
    except UsageError as error:
        raise ValueError(str(error)) from error
    return text


def fact_name(text: str) -> str:
    """Return the name of a fact or of a system property; raises ValueError."""
    name = text if "." in text else text.lower()
    if "." not in name and name not in FIELDS:
        raise ValueError(f"{text!r} isn't a fact of phones such as profile, model or soc, nor a system property")
    return name


def campaign_name(text: str) -> str:
    """Return a campaign's name; raises ValueError for one that no table or message can show."""
    if len(text) > _NAME_MAX:
        raise ValueError(f"has {len(text)} characters; at most {_NAME_MAX} are possible")
    if not text.isprintable():
        raise ValueError("must be of printable characters")
    return text


def affinity_word(text: str) -> str:
    """Return ``big``, ``all`` or a mask in hexadecimal digits; raises ValueError."""
    if text in {"big", "all"}:
        return text
    mask = text.lower().removeprefix("0x")
    if not re.fullmatch(r"[0-9a-f]{1,32}", mask) or int(mask, 16) == 0:
        raise ValueError(f"{text!r} isn't big, all or a mask of cores in hexadecimal digits such as f0")
    return f"{int(mask, 16):x}"


def thermal_status_number(value: object) -> object:
    """Return the number of a thermal status that is given by its name."""
    return THERMAL_STATUS.index(value) if value in THERMAL_STATUS else value


def screen_word(value: object) -> object:
    """Return what the screen is to be, as it is called."""
    # YAML's own words for true and false are read as they are written; people mean these.
    return {"true": "on", "false": "off"}.get(value, value) if isinstance(value, str) else value
