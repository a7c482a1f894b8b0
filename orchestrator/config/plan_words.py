"""Single values of plan files: what each word may be, and the fault that says why it isn't one."""

from __future__ import annotations

import re
from typing import Final

from orchestrator.config.faults import not_one_of
from orchestrator.config.fields import unique
from orchestrator.errors import UsageError
from orchestrator.predicates import FIELDS, parse_predicate
from orchestrator.records.flag import OWNED_FLAGS
from orchestrator.records.plan import DelegateChoice
from orchestrator.records.workload import DelegateName

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
    known: dict[str, DelegateName | DelegateChoice] = {name.value: name for name in (*DelegateName, *DelegateChoice)}
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
