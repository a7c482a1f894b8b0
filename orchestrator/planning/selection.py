"""Which of the devices that are there a plan means, and for each of the others why not. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from orchestrator.errors import UsageError, nearest
from orchestrator.predicates import Labels, NoLabels, parse_predicate, value_of
from orchestrator.records.case import Serial
from orchestrator.records.device import DeviceFacts, DeviceKind
from orchestrator.records.plan import DeviceSelection


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """What became of the devices that could be measured on."""

    #: In the order of their serial numbers.
    chosen: tuple[Serial, ...]
    #: Devices that fit and weren't needed, with the reason.
    unneeded: Mapping[Serial, str] = field(default_factory=dict)
    #: Devices that don't fit, with the reason.
    unfit: Mapping[Serial, str] = field(default_factory=dict)
    #: What the plan asks for and isn't there, in words; empty for nothing.
    lacking: str = ""


def check_names(
    selection: DeviceSelection, profiles: Iterable[str], labels: Iterable[Labels]
) -> None:
    """Raise UsageError for a profile, pool or tag that is known of no device: no device would ever
    fit a typo.

    Args:
        selection: What is meant.
        profiles: Profiles that are declared, or that devices have.
        labels: What is said of all devices.
    """
    labels = list(labels)
    for kind, wanted, known in (
        ("device profile", selection.profiles, set(profiles)),
        ("pool", selection.pools, {name for item in labels for name in item.pools}),
        ("tag", selection.tags, {name for item in labels for name in item.tags}),
    ):
        for name in wanted:
            if name not in known:
                there = (
                    f"there are {', '.join(sorted(known))}"
                    if known
                    else f"devices.yaml gives no phone a {kind}"
                )
                raise UsageError(
                    f"there is no {kind} {name!r}", hint=nearest(name, sorted(known)) or there
                )


def choose(
    selection: DeviceSelection,
    devices: Iterable[DeviceFacts],
    labels: Mapping[Serial, Labels],
) -> Choice:
    """Return which devices a selection means; the same devices always give the same choice.

    ``one_of_each`` takes the first device of each group and ``any`` the first N, by serial number.
    """
    known = sorted(devices, key=lambda facts: facts.serial)
    unfit = {
        facts.serial: reason
        for facts in known
        if (reason := misfit(selection, facts, labels.get(facts.serial)))
    }
    chosen: list[DeviceFacts] = []
    unneeded: dict[Serial, str] = {}
    for facts in known:
        if facts.serial in unfit:
            continue
        reason = _unneeded(selection, facts, chosen)
        if reason:
            unneeded[facts.serial] = reason
        else:
            chosen.append(facts)
    lacking = ""
    phones = sum(facts.kind is not DeviceKind.HOST for facts in chosen)
    if selection.any is not None and phones < selection.any:
        each = f" of different {selection.one_of_each}" if selection.one_of_each else ""
        lacking = f"the plan asks for {selection.any} phones{each}, and {phones} fit"
    return Choice(
        chosen=tuple(sorted(facts.serial for facts in chosen)),
        unneeded=unneeded,
        unfit=unfit,
        lacking=lacking,
    )


def missed(
    selection: DeviceSelection,
    left_out: Mapping[str, str],
    here: Collection[str],
    labels: Mapping[Serial, Labels],
    known: Mapping[Serial, DeviceFacts],
) -> dict[str, str]:
    """Return the phones that a selection means and that can't be measured on, with the reason.

    Of those that aren't there at all, the ones that it names, or that are what it wants by the
    inventory and by what was seen of them last. None when any few of several are wanted:
    Choice.lacking tells of that.

    Args:
        selection: What is meant.
        left_out: Phones that are there, may be meant and can't be used, with the reason.
        here: Serial numbers and adb's names of the phones that are there.
        labels: The inventory.
        known: What phones were when they were seen last.
    """
    if selection.any is not None or selection.one_of_each:
        return {}
    expected = selection.serials or (
        labels if selection.pools or selection.tags or selection.where else ()
    )
    reasons = {serial: "is not attached" for serial in expected if serial not in here} | dict(
        left_out
    )
    return {
        name: why
        for name, why in sorted(reasons.items())
        if selection.serials
        or not misfit(
            selection,
            known.get(Serial(name))
            or DeviceFacts(serial=Serial(name), kind=DeviceKind.ANDROID, is_virtual=False),
            labels.get(Serial(name)),
        )
    }


def misfit(selection: DeviceSelection, facts: DeviceFacts, labels: Labels | None) -> str:
    """Return why a device doesn't fit what a selection says of each device by itself, empty when it
    does.
    """
    if selection.profiles and facts.profile not in selection.profiles:
        return f"its profile is {facts.profile or 'unknown'}, not {' or '.join(selection.profiles)}"
    labels = labels or NoLabels()
    if selection.pools and not set(selection.pools) & set(labels.pools):
        return f"it isn't in the pool {' or '.join(selection.pools)}"
    if missing := [tag for tag in selection.tags if tag not in labels.tags]:
        return f"it lacks the tag {', '.join(missing)}"
    wrong = (text for text in selection.where if not parse_predicate(text).holds(facts, labels))
    return next((f"{text!r} doesn't hold" for text in wrong), "")


def _unneeded(selection: DeviceSelection, facts: DeviceFacts, chosen: Sequence[DeviceFacts]) -> str:
    """Return why a device that fits isn't needed beside those chosen before it; this computer is
    never counted.
    """
    phones = [other for other in chosen if other.kind is not DeviceKind.HOST]
    if facts.kind is DeviceKind.HOST:
        return ""
    if selection.one_of_each:
        group = group_of(selection, facts)
        if not group:
            return f"its {selection.one_of_each} isn't known, and one phone of each is wanted"
        for other in phones:
            if group_of(selection, other) == group:
                return f"{other.serial} has the same {selection.one_of_each}, {group}"
    if selection.any is not None and len(phones) >= selection.any:
        return f"{selection.any} {'phone is' if selection.any == 1 else 'phones are'} enough for the plan"
    return ""


def group_of(selection: DeviceSelection, facts: DeviceFacts) -> str:
    """Return the value by which ``one_of_each`` tells devices apart, empty when it isn't known or
    isn't asked for.
    """
    value = value_of(selection.one_of_each, facts) if selection.one_of_each else None
    return "" if value is None else str(value).lower()
