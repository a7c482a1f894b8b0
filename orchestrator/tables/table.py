"""Tables and columns; a column has a name, a head, a value and a text for people."""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from operator import attrgetter
from typing import Any, Final, Generic, TypeVar

from orchestrator.tables.escapes import one_line
from orchestrator.units import US_PER_MS

R = TypeVar("R")
S = TypeVar("S")
#: Where there is no figure.
NOTHING: Final = "---"
#: Empty cells.
NOTHINGS: Final = frozenset({"", NOTHING})


class Form(enum.StrEnum):
    """A format of tables."""

    HTML = "html"
    TEXT = "text"
    MARKDOWN = "markdown"
    CSV = "csv"
    JSON = "json"
    FRAME = "frame"


EVERYWHERE: Final = frozenset(Form)
#: For programs: CSV, JSON and frames; those without JSON; JSON alone.
DATA: Final = frozenset({Form.CSV, Form.JSON, Form.FRAME})
FLAT: Final = DATA - {Form.JSON}
NESTED: Final = frozenset({Form.JSON})
#: For people: HTML, text and Markdown; HTML alone, which scrolls; text and Markdown alone.
PEOPLE: Final = EVERYWHERE - DATA
PAGE: Final = frozenset({Form.HTML})
LINES: Final = PEOPLE - PAGE


class Kind(enum.Enum):
    """The kind of a column's values, with its pandas type, also where all are unknown."""

    TEXT = "string"
    NUMBER = "Float64"
    COUNT = "Int64"
    FLAG = "boolean"
    MOMENT = "datetime64[us, UTC]"
    #: Mappings and lists; only in JSON.
    RECORD = "object"
    #: In text: a share from 0 to 1, drawn as a bar where there is room beside the other columns.
    BAR = "bar"
    #: On a page: a drawing (report/drawing.py). In static tables: HTML of a template of ours; links
    #: to cases as (text, case key), text alone where the key is empty.
    PICTURE = "picture"
    MARKUP = "markup"
    CASES = "cases"


#: A column of times, stored in microseconds.
MS: Final[dict[str, Any]] = {"kind": Kind.NUMBER, "unit": "ms", "scale": 1 / US_PER_MS}


@dataclass(frozen=True)
class Column(Generic[R]):
    """One column. It is in every form, unless ``forms`` says otherwise."""

    #: For programs: ``median_us``. Exported names are documented in docs/reference/exports.md.
    name: str
    #: For people: ``median``; None for the name, with spaces.
    head: str = None  # type: ignore[assignment]
    #: From a row; a function that types can be checked of. None for the row's attribute of a name
    #: that is worked out.
    value: Callable[[R], Any] = None  # type: ignore[assignment]
    kind: Kind = Kind.TEXT
    #: The unit of shown figures, and the factor from value to figure: 0.001 from us to ms.
    unit: str = ""
    scale: float = 1.0
    #: Decimals of shown figures (None: by the column's smallest figure), and of exported ones
    #: (None: all).
    digits: int | None = None
    exact: int | None = None
    forms: frozenset[Form] = EVERYWHERE
    #: The text for people; None for a row whose value is shown.
    shown: Callable[[R], str | None] | None = None
    #: The class that colours a word or a figure on a page.
    tone: Callable[[R], str] | None = None
    #: On a page: the case that the cell opens; empty for none.
    case: Callable[[R], str] | None = None
    #: Whether an empty column is hidden from people.
    is_optional: bool = False
    #: Whether a page shows a word that all rows share once below.
    is_merged: bool = False
    #: On a page: words can be chosen from a list; the cell opens the row's case; a figure has a
    #: sign, and a colour where it is a notable change in percent.
    is_choice: bool = False
    opens: bool = False
    is_signed: bool = False
    #: On a page: a bar behind the figure, as a share from 0 to 1 of its cell; None for none.
    bar: Callable[[R], float | None] | None = None
    #: Of pictures: the axis above them.
    box: Any = ""

    def __post_init__(self) -> None:
        """Take from the name what isn't given."""
        if self.head is None:
            object.__setattr__(self, "head", self.name.replace("_", " "))
        if self.value is None:
            object.__setattr__(self, "value", attrgetter(self.name))

    @property
    def title(self) -> str:
        """The head with its unit."""
        return f"{self.head} {self.unit}".strip()

    @property
    def is_figure(self) -> bool:
        """Whether it is aligned to the right."""
        return self.kind in {Kind.NUMBER, Kind.COUNT}

    def of(self, part: Callable[[S], R | None], **changes: Any) -> Column[S]:  # noqa: ANN401
        """Return the column for rows whose ``part`` is a row of this column; a part that is None
        has no value. ``changes`` are other fields of the new column.
        """

        def through(function: Callable[[R], Any] | None, nothing: object) -> Any:  # noqa: ANN401
            if function is None:
                return None
            return lambda row: nothing if (item := part(row)) is None else function(item)

        nothings = {"value": None, "shown": None, "tone": "", "case": "", "bar": None}
        functions = {name: through(getattr(self, name), none) for name, none in nothings.items()}
        return replace(self, **(functions | changes))  # type: ignore[return-value]

    @property
    def sentence(self) -> Column[R]:
        """The column with the lines of a text as one line for people."""
        return replace(self, shown=lambda row: one_line(self.value(row) or ""))

    def data(self, row: R) -> Any:  # noqa: ANN401
        """Return the value for exports."""
        value = json_value(self.value(row))
        return round(value, self.exact) if self.exact is not None and value is not None else value

    def figures(self, rows: Iterable[R]) -> list[float | None]:
        """Return the figures in the shown unit, not yet rounded."""
        values = map(self.value, rows)
        if self.scale >= 1:
            return [None if value is None else float(value * self.scale) for value in values]
        # Dividing by 1000 gives the nearest figure; multiplying by 0.001 doesn't always.
        divisor = 1 / self.scale
        return [None if value is None else float(value / divisor) for value in values]

    def decimals(self, figures: Iterable[float | None]) -> int:
        """Return the number of shown decimals of these figures."""
        if self.kind is Kind.COUNT:
            return 0
        return (
            column_decimals([f for f in figures if f is not None])
            if self.digits is None
            else self.digits
        )

    def form(self, decimals: int) -> str:
        """Return the format of a figure with these decimals; there is no negative zero."""
        return f"{'+' if self.is_signed else ''}z.{decimals}f"

    def cells(self, rows: Sequence[R]) -> list[str]:
        """Return the texts of the column for people, not escaped."""
        return self.texts(rows, self.figures(rows)) if self.is_figure else list(self._words(rows))

    def texts(self, rows: Sequence[R], figures: Sequence[float | None]) -> list[str]:
        """Return the texts of these figures of rows for people, not escaped."""
        form = self.form(self.decimals(figures))
        texts = [NOTHING if figure is None else format(figure, form) for figure in figures]
        text_of = self.shown
        if text_of is None:
            return texts
        pairs = zip(rows, texts, strict=True)
        return [word if (text := text_of(row)) is None else text for row, word in pairs]

    def _words(self, rows: Iterable[R]) -> Iterator[str]:
        """Yield the cells; figures aren't rounded."""
        value, text_of = self.value, self.shown
        for row in rows:
            text = text_of(row) if text_of is not None else None
            yield _words(value(row)) if text is None else text

    def is_empty(self, rows: Iterable[R]) -> bool:
        """Return whether all cells are empty for people."""
        return all(cell in NOTHINGS for cell in self._words(rows))


def _words(value: object) -> str:
    if isinstance(value, str):
        return str(value)
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, datetime):
        return f"{value.astimezone():%Y-%m-%d %H:%M}"
    return ", ".join(map(_words, value)) if isinstance(value, tuple | list) else str(value)


def json_value(value: Any) -> Any:  # noqa: ANN401
    """Return a value as JSON, with all that is in it (:func:`plain_value`)."""
    if value is None or type(value) in {str, int, float, bool}:
        return value
    value = plain_value(value)
    if isinstance(value, dict):
        return {key: json_value(item) for key, item in value.items()}
    return [json_value(item) for item in value] if isinstance(value, list) else value


def plain_value(value: object) -> object:
    """Return a value as JSON has it, not what is in it: enums as their values, moments in ISO 8601,
    records, without their bytes, and mappings as objects; any other value as it is.
    """
    if isinstance(value, enum.Enum):
        return value.value
    if isinstance(value, datetime):
        return value.isoformat()
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        items = ((item.name, getattr(value, item.name)) for item in dataclasses.fields(value))
        return {name: item for name, item in items if not isinstance(item, bytes)}
    if isinstance(value, Mapping):
        return {str(key): item for key, item in value.items()}
    return list(value) if isinstance(value, tuple | set | frozenset) else value


#: For programs, whether a row is of a virtual phone.
IS_VIRTUAL: Final[Column[Any]] = Column("is_virtual", "virtual", kind=Kind.FLAG, forms=DATA)


def record_of(columns: Iterable[Column[R]], row: R, form: Form = Form.JSON) -> dict[str, Any]:
    """Return a row's values as JSON by the columns' names."""
    return {column.name: column.data(row) for column in columns if form in column.forms}


def fields_of(record: object, *names: str) -> dict[str, Any]:
    """Return some fields of a record as JSON."""
    return {name: json_value(getattr(record, name)) for name in names}


def column_decimals(values: Sequence[float]) -> int:
    """Return the number of decimals of all figures of a column, 1 to 4: enough for three digits of
    the smallest figure, or two if it is below 1.
    """
    smallest = min((abs(value) for value in values if value), default=10.0)
    digits = 100 if smallest >= 1 else 10
    decimals = 1
    while decimals < 4 and smallest * 10**decimals < digits:
        decimals += 1
    return decimals


@dataclass(frozen=True, kw_only=True)
class Table(Generic[R]):
    """Rows of one kind under their columns."""

    #: In addresses and names of files: ``results``.
    name: str
    #: A title, also for screen readers.
    caption: str
    columns: Sequence[Column[R]]
    #: May be an iterator: CSV and JSON take one row after the other.
    rows: Iterable[R]
    #: The text in place of a table without rows.
    nothing: str = ""
    #: Sentences that people read below the rows.
    notes: Sequence[str] = ()
    #: The greatest number of rows in text, and the line below for further ones.
    most: int | None = None
    further: str = "and {count} more: --json lists all"
    #: In text, the first columns that are headings above the rows that share them.
    groups: int = 0
    #: In text, the reason in place of a row's cells; empty for a row with figures.
    instead: Callable[[R], str] | None = None
    #: The key of the case or page that a row opens on a page; the address is ``link`` around it.
    key: Callable[[R], str] | None = None
    link: tuple[str, str] = ("#c-", "")
    is_virtual: Callable[[R], bool] = lambda row: getattr(row, "is_virtual", False)
    #: How a terminal shows a row: ``winner``, ``doubt``, ``bad``; empty for nothing unusual.
    look: Callable[[R], str] = lambda _: ""
    is_judged: Callable[[R], bool] | None = None
    #: Further HTML attributes of a row: ``data-group`` for one that a page shows with its group.
    attributes: Callable[[R], Mapping[str, str]] = lambda _: {}
    #: On a narrow page, the columns whose words stand below a row's name, too.
    apart: Sequence[str] = ()
    #: The order in which the rows are given.
    order: str = "as listed"

    def of(self, form: Form) -> list[Column[R]]:
        """Return the columns of a form; people see no optional column that is empty."""
        columns = [column for column in self.columns if form in column.forms]
        if form not in PEOPLE:
            return columns
        rows = self.listed
        return [column for column in columns if not (column.is_optional and column.is_empty(rows))]

    @property
    def listed(self) -> Sequence[R]:
        """The rows, where all of them are needed."""
        assert isinstance(self.rows, Sequence), "only CSV and JSON are written of an iterator"
        return self.rows

    def record(self, row: R, form: Form = Form.JSON) -> dict[str, Any]:
        """Return one row's values as JSON by the columns' names."""
        return record_of(self.columns, row, form)
