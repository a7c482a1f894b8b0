"""The sections of a plan file, as they are written and checked; ``docs/reference/plans.md`` describes each key."""

from __future__ import annotations

import glob
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Final

from pydantic import AfterValidator, BeforeValidator, Field, ValidationInfo, WithJsonSchema, model_validator

from orchestrator.config.faults import Section
from orchestrator.config.fields import (
    THERMAL_STATUS,
    AnyText,
    Celsius,
    OneOrMany,
    Percent,
    Seconds,
    Sha256,
    Short,
    Text,
    affinity_word,
    campaign_name,
    delegate_word,
    delegate_words,
    fact_name,
    free_flags,
    predicate_text,
    screen_word,
    thermal_status_number,
    unique,
)
from orchestrator.config.model_manifest import MANIFEST_NAME
from orchestrator.config.tool_words import ToolWord
from orchestrator.passes import known_hint, pass_names, pass_of, passes
from orchestrator.records.contention import USUAL_LOADS, load_of
from orchestrator.records.model import ManifestEntry
from orchestrator.records.plan import (
    DelegateChoice,
    FitLimits,
    Order,
    Quiet,
    RunSettings,
    Screen,
    StoppingRule,
)
from orchestrator.records.workload import FIGURE_PASS, USUAL_DELEGATE, DelegateName, Pass, ProcessMode

#: The context under which validators find the folder that paths start from, and the models that manifests name.
FOLDER: Final = "folder"
NAMED: Final = "named"


def _model_files(pattern: object, info: ValidationInfo) -> tuple[Path, ...]:
    """Return the files that a model's path means; a path with * ? or [ may mean several."""
    if not isinstance(pattern, str) or not pattern.strip():
        raise ValueError("must be the path of a .tflite file")
    folder: Path = (info.context or {}).get(FOLDER, Path())
    try:
        path = folder / Path(pattern).expanduser()
        if path.is_dir():
            raise ValueError(f"{str(path)!r} is a folder; for all models in it write {pattern.rstrip('/')}/*.tflite")
        files = [path] if path.exists() else []
        if not files and glob.has_magic(pattern):
            found = (Path(name) for name in glob.glob(str(path), recursive=True))  # noqa: PTH207 - Path.glob refuses absolute ones
            files = sorted(file for file in found if file.is_file())
            if not files:
                raise ValueError(f"no file matches {str(path)!r}")
    except (OSError, RuntimeError) as error:
        raise ValueError(f"{pattern!r} can't be looked up: {error}") from error
    named: Mapping[str, ManifestEntry] = (info.context or {}).get(NAMED, {})
    if not files and pattern in named:
        path = named[pattern].path
        if not path.is_file():
            raise ValueError(
                f"{pattern!r} is a name in {path.parent / MANIFEST_NAME}, but there is no file {str(path)!r}"
            )
        files = [path]
    if not files:
        is_number = Path(pattern).name.isdigit()
        hint = "; several values of an option are written with commas: --threads 1,4" if is_number else ""
        raise ValueError(f"there is no file {str(path)!r}{hint}")
    for file in files:
        # Bytes that are no UTF-8 are surrogates in a name.
        if str(file) != str(file).encode("utf-8", "replace").decode():
            raise ValueError(f"the name {str(file)!r} isn't UTF-8; rename the file")
    return tuple(files)


class ModelSection(Section):
    """One model, or several by a pattern."""

    path: Annotated[
        tuple[Path, ...],
        BeforeValidator(_model_files),
        WithJsonSchema({"type": "string", "description": "A .tflite file, or a pattern of several"}),
    ]
    name: Text | None = None
    sha256: Sha256 | None = None

    @model_validator(mode="after")
    def _one_file_for_one_name(self) -> ModelSection:
        if len(self.path) > 1 and (self.name or self.sha256):
            raise ValueError(f"name and sha256 are for one model, but the path means {len(self.path)} files")
        return self


def _pass_word(name: object) -> object:
    if name not in pass_names():
        raise ValueError(f"there is no pass {name!r}; {known_hint(str(name))}")
    if not pass_of(Pass(name)).is_in_plans:
        raise ValueError(
            f"{name!r} is no pass over models; write 'reference_check: true' beside 'passes', or --reference-check"
        )
    return name


class _PassSchema:
    """Which passes there are is looked up when somebody asks for the schema: plugins bring some."""

    def __get_pydantic_json_schema__(self, schema: object, handler: object) -> dict[str, Any]:
        return {"enum": [own.name.value for own in passes() if own.is_in_plans]}


#: What a plan may ask for; the reference workload is asked for by a key of its own.
PlanPass = Annotated[Pass, BeforeValidator(_pass_word), _PassSchema()]


def _load_word(text: str) -> str:
    load_of(text)
    return text


DelegateWord = Annotated[
    DelegateName | DelegateChoice,
    BeforeValidator(delegate_word),
    WithJsonSchema({"enum": [*DelegateName, *DelegateChoice]}),
]


class MatrixSection(Section):
    """The axes; each combination is a case."""

    delegates: Annotated[OneOrMany[tuple[DelegateWord, ...]], Field(min_length=1), AfterValidator(delegate_words)] = (
        USUAL_DELEGATE,
    )
    threads: Annotated[
        OneOrMany[tuple[Annotated[int, Field(ge=1, le=128)], ...]], Field(min_length=1), AfterValidator(unique)
    ] = ()
    tools: Annotated[OneOrMany[tuple[ToolWord, ...]], Field(min_length=1), AfterValidator(unique)] = ()
    flags: Annotated[
        OneOrMany[tuple[Annotated[dict[str, AnyText], AfterValidator(free_flags)], ...]], Field(min_length=1)
    ] = ({},)
    modes: Annotated[OneOrMany[tuple[ProcessMode, ...]], Field(min_length=1), AfterValidator(unique)] = ()
    every_thread_count: bool = False


class DevicesSection(Section):
    """Which devices: those that fit every key that is given."""

    serials: OneOrMany[tuple[Text, ...]] = ()
    profiles: OneOrMany[tuple[Text, ...]] = ()
    pools: OneOrMany[tuple[Text, ...]] = ()
    tags: OneOrMany[tuple[Text, ...]] = ()
    where: OneOrMany[tuple[Annotated[Text, AfterValidator(predicate_text)], ...]] = ()
    host: bool = False
    one_of_each: Annotated[Text, AfterValidator(fact_name)] | None = None
    any: Annotated[int, Field(ge=1, le=10_000)] | None = None


class SettingsSection(Section):
    """How one invocation measures."""

    num_runs: Annotated[int, Field(ge=1, le=1_000_000)] = RunSettings().num_runs
    min_secs: Annotated[Seconds, Field(ge=0, le=86_400)] = RunSettings().min_secs
    max_secs: Annotated[Seconds, Field(gt=0, le=86_400)] = RunSettings().max_secs
    warmup_runs: Annotated[int, Field(ge=0, le=1_000_000)] = RunSettings().warmup_runs
    warmup_min_secs: Annotated[Seconds, Field(ge=0, le=86_400)] = RunSettings().warmup_min_secs
    affinity: Annotated[Text, AfterValidator(affinity_word)] = RunSettings().affinity

    @model_validator(mode="after")
    def _spans_fit(self) -> SettingsSection:
        for name in ("min_secs", "warmup_min_secs"):
            if getattr(self, name) > self.max_secs:
                raise ValueError(f"{name} ({getattr(self, name):g} s) is more than max_secs ({self.max_secs:g} s)")
        return self


class LimitsSection(Section):
    """What a device must be like before an invocation starts."""

    battery_min: Annotated[Percent, Field(ge=0, le=100)] = FitLimits().battery_percent_min
    battery_heat_max: Annotated[Celsius, Field(ge=0, le=100)] = FitLimits().battery_heat_c_max
    thermal_status_max: Annotated[
        int,
        Field(ge=0, le=6),
        BeforeValidator(thermal_status_number),
        WithJsonSchema({"enum": [*range(7), *THERMAL_STATUS]}),
    ] = FitLimits().thermal_status_max
    wait: Annotated[Seconds, Field(ge=0, le=86_400)] = FitLimits().wait_s


class InvocationsSection(Section):
    """How many processes each case gets in the timing pass: as many as its noise needs, within these bounds."""

    first: Annotated[int, Field(ge=2, le=10_000)] = StoppingRule().first
    most: Annotated[int, Field(ge=2, le=10_000)] = StoppingRule().most

    @model_validator(mode="before")
    @classmethod
    def _most_follows(cls, given: object) -> object:
        # A larger first round raises the bound.
        if isinstance(given, dict) and "most" not in given and str(given.get("first", "")).isdecimal():
            return {**given, "most": str(max(int(given["first"]), StoppingRule().most))}
        return given

    @model_validator(mode="after")
    def _spans_fit(self) -> InvocationsSection:
        if self.first > self.most:
            raise ValueError(f"first ({self.first}) is more than most ({self.most})")
        return self


def _count(value: object) -> object:
    if not isinstance(value, str):
        return value
    try:
        count = int(value)
    except ValueError:
        raise ValueError(f"{value!r} isn't a whole number") from None
    if not 1 <= count <= 10_000:
        raise ValueError(f"{count} isn't between 1 and 10000")
    return InvocationsSection.model_construct(first=count, most=count)


class QuietSection(Section):
    """How a phone is brought to rest; what isn't given stays as it is."""

    screen: Annotated[Screen, BeforeValidator(screen_word)] = Quiet().screen
    airplane: bool | None = None
    no_doze: bool | None = None
    animations_off: bool | None = None
    sync_off: bool | None = None
    fixed_performance: bool | None = None
    pin_clocks: bool | None = None
    pin_gpu: bool | None = None
    thermal_control_off: bool | None = None


#: A model may be written as its path alone, a fixed number of invocations as that number.
_PATH_ALONE = Short(lambda value: {"path": value} if isinstance(value, str) else value, lambda _: {"type": "string"})
_COUNT_ALONE = Short(_count, lambda _: {"type": "integer", "minimum": 1, "maximum": 10_000})


class PlanSection(Section):
    """A whole plan file."""

    name: Annotated[Text, AfterValidator(campaign_name)] | None = None
    models: Annotated[OneOrMany[tuple[Annotated[ModelSection, _PATH_ALONE], ...]], Field(min_length=1)]
    matrix: MatrixSection = MatrixSection()
    devices: DevicesSection = DevicesSection()
    settings: SettingsSection = SettingsSection()
    limits: LimitsSection = LimitsSection()
    passes: Annotated[OneOrMany[tuple[PlanPass, ...]], Field(min_length=1), AfterValidator(unique)] = (FIGURE_PASS,)
    invocations: Annotated[InvocationsSection, _COUNT_ALONE] = InvocationsSection()
    precision: Annotated[Percent, Field(ge=0.1, lt=100)] = 100 * StoppingRule().half_width
    budget: Annotated[Seconds, Field(gt=0, le=604_800)] | None = None
    sustained: Annotated[Seconds, Field(ge=10, le=86_400)] = 1800.0
    contention: Annotated[
        OneOrMany[tuple[Annotated[Text, AfterValidator(_load_word)], ...]],
        Field(min_length=1, max_length=16),
        AfterValidator(unique),
    ] = USUAL_LOADS
    parity_inputs: Text | None = None
    reference_check: bool | None = None
    reboot: bool = False
    quiet: QuietSection = QuietSection()
    order: Order = Order.INTERLEAVED
    seed: Annotated[int, Field(ge=0, lt=2**63)] = 0
    timeout: Annotated[Seconds, Field(gt=0, le=86_400)] = 120.0
    builds: dict[ToolWord, Text] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _keys_fit(self) -> PlanSection:
        given, count = self.model_fields_set, self.invocations
        if count.first == count.most and "precision" in given:
            raise ValueError(
                "precision says when a case has enough invocations, but their number is fixed "
                f"({count.first}); leave one of the two out"
            )
        for own in passes():
            key, says = own.plan_key or ("", "")
            if key in given and getattr(self, key) is not None and own.name not in self.passes:
                raise ValueError(f"{key} {says}; add it to passes")
        return self
