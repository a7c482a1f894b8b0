"""The tables of a store, schema 1, and how it keeps values: column types that are exact on every
database, documents and raw output as Zstandard with a dictionary that comes with the package.
"""

from __future__ import annotations

import functools
import hashlib
import json
import re
import sys
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

from sqlalchemy import (
    TIMESTAMP,
    BigInteger,
    Boolean,
    Column,
    Dialect,
    Double,
    ForeignKey,
    ForeignKeyConstraint,
    Identity,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    Table,
    Text,
    UniqueConstraint,
)
from sqlalchemy.types import TypeDecorator, TypeEngine

from orchestrator.documents import to_text
from orchestrator.errors import StoreCorruptError
from orchestrator.records.run import Attachment

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

#: Output beyond this is kept beside its run, once for each content.
LARGE_BYTES: Final = 64 * 1024
#: Level 7 makes a run 11 % smaller and takes four times as long, a quarter of the time of keeping it.
_OPTIONS: Final[dict[int, int]] = {
    zstd.CompressionParameter.compression_level: 3,
    zstd.CompressionParameter.checksum_flag: 1,
}
#: A larger size can only be damage.
_BYTES_MAX: Final = 512 << 20
#: For programs that have no dictionary of their own.
_DEFAULT: Final = "native"
_FOLDER: Final = Path(__file__).with_name("dictionaries")


@functools.cache
def _dictionaries() -> dict[str, zstd.ZstdDict]:
    """Return the dictionaries by the names of their files, ``native.1.zdict``, the newest last."""
    files = [item for item in _FOLDER.iterdir() if item.suffix == ".zdict"]
    files.sort(key=lambda item: int(item.stem.rpartition(".")[2]))
    return {item.name: zstd.ZstdDict(item.read_bytes()) for item in files}


@functools.cache
def _compressor(program: str) -> zstd.ZstdCompressor:
    """Return the compressor with a program's dictionary, or without one for no program.

    Making one takes as long as packing a document; threads take turns at it.
    """
    of_program = {name.split(".")[0]: dictionary for name, dictionary in _dictionaries().items()}
    dictionary = of_program.get(program, of_program[_DEFAULT]) if program else None
    return zstd.ZstdCompressor(
        options=_OPTIONS, zstd_dict=dictionary and dictionary.as_digested_dict
    )


def pack(content: bytes, program: str = "") -> bytes:
    """Return some bytes compressed, by the dictionary of a program where one is named."""
    return _compressor(program).compress(content, mode=zstd.ZstdCompressor.FLUSH_FRAME)


def unpack(data: bytes, *, where: str) -> bytes:
    """Return the bytes that :func:`pack` compressed; raises StoreCorruptError naming ``where``."""
    try:
        frame = zstd.get_frame_info(data)
        if frame.decompressed_size is None or frame.decompressed_size > _BYTES_MAX:
            raise StoreCorruptError(
                f"{where}: its stored bytes claim to be more than {_BYTES_MAX >> 20} MiB"
            )
        dictionary = next(
            (item for item in _dictionaries().values() if item.dict_id == frame.dictionary_id), None
        )
        decompressor = zstd.ZstdDecompressor(zstd_dict=dictionary)
        content = decompressor.decompress(data)
        if not decompressor.eof or decompressor.unused_data:
            raise zstd.ZstdError("they end elsewhere than their frame")
        return content
    except zstd.ZstdError as error:
        raise StoreCorruptError(
            f"{where}: the stored bytes aren't the ones that were kept ({error})"
        ) from error


def pack_output(attachments: Sequence[Attachment], program: str) -> bytes:
    """Return a run's attachments packed: a line of JSON with their names, and sizes or the sha256 of
    large ones, then the small contents.
    """
    sizes = [[item.name, item.sha256 if is_large(item) else len(item.data)] for item in attachments]
    small = (item.data for item in attachments if not is_large(item))
    return pack(b"".join([to_text(sizes).encode("ascii"), b"\n", *small]), program)


def unpack_output(data: bytes, *, where: str) -> list[tuple[str, bytes | str]]:
    """Return the names and contents that :func:`pack_output` packed, the sha256 of large ones.

    Raises StoreCorruptError naming ``where``.
    """
    head, _, rest = unpack(data, where=where).partition(b"\n")
    contents: list[tuple[str, bytes | str]] = []
    offset = 0
    for name, size in json.loads(head):
        contents.append((name, size if isinstance(size, str) else rest[offset : offset + size]))
        offset += size if isinstance(size, int) else 0
    return contents


def is_large(attachment: Attachment) -> bool:
    """Whether an attachment is stored beside its run."""
    return len(attachment.data) > LARGE_BYTES


def unpack_large(data: bytes, sha256: str) -> bytes:
    """Return a large content after its sum was checked; raises StoreCorruptError."""
    content = unpack(data, where=f"raw output {sha256}")
    if hashlib.sha256(content).hexdigest() != sha256:
        raise StoreCorruptError(
            f"raw output {sha256}: the stored bytes aren't the ones that were kept"
        )
    return content


#: Raised with each change of the tables.
VERSION: Final = 1
#: PostgreSQL refuses NUL, both databases refuse lone surrogates; the backslash is what they are
#: escaped with.
_NEEDS_ESCAPE: Final = re.compile("[\x00\\\\\ud800-\udfff]")
_ESCAPED: Final = re.compile(r"\\(\\|u([0-9a-f]{4}))")
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def escape_text(text: str) -> str:
    r"""Return text that every database takes: NUL and lone surrogates as ``\uXXXX``, a backslash doubled."""
    if _NEEDS_ESCAPE.search(text) is None:
        return text
    return _NEEDS_ESCAPE.sub(
        lambda hit: "\\\\" if hit[0] == "\\" else f"\\u{ord(hit[0]):04x}", text
    )


def unescape_text(text: str) -> str:
    """Return the text that :func:`escape_text` escaped."""
    if "\\" not in text:
        return text
    return _ESCAPED.sub(lambda hit: "\\" if hit[2] is None else chr(int(hit[2], 16)), text)


class AnyText(TypeDecorator[str]):
    """Any Python text, in the order of its code points; see :func:`escape_text`."""

    impl = Text
    cache_ok = True

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[Any]:
        """Choose the order that SQLite has, so that an index finds what begins so."""
        return dialect.type_descriptor(
            Text(collation="C") if dialect.name == "postgresql" else Text()
        )

    def process_bind_param(self, value: str | None, dialect: Dialect) -> str | None:
        """Escape what a database can't hold."""
        return None if value is None else escape_text(value)

    def process_result_value(self, value: str | None, dialect: Dialect) -> str | None:
        """Undo the escape."""
        return None if value is None else unescape_text(value)


class UtcTime(TypeDecorator[datetime]):
    """A moment to the microsecond: timestamptz on PostgreSQL, on SQLite microseconds since 1970."""

    impl = BigInteger
    cache_ok = True

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[Any]:
        """Choose the database's own type where it has one."""
        kind = TIMESTAMP(timezone=True) if dialect.name == "postgresql" else BigInteger()
        return dialect.type_descriptor(kind)

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | int | None:
        """Return the moment in UTC, as the database takes it."""
        if value is None or dialect.name == "postgresql":
            return None if value is None else value.astimezone(UTC)
        return (value - _EPOCH) // timedelta(microseconds=1)

    def process_result_value(
        self, value: datetime | int | None, dialect: Dialect
    ) -> datetime | None:
        """Return the moment in UTC."""
        return (
            _EPOCH + timedelta(microseconds=value)
            if isinstance(value, int)
            else value and value.astimezone(UTC)
        )


METADATA: Final = MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_name)s",
        "pk": "pk_%(table_name)s",
        "fk": "fk_%(table_name)s_%(column_0_name)s",
        "uq": "uq_%(table_name)s_%(column_0_name)s",
        "ck": "ck_%(table_name)s_%(constraint_name)s",
    }
)


def _number(name: str) -> Column[int]:
    """Return a row's own number: 64 bits that count up in the order of storing, on SQLite the
    table's row id.
    """
    return Column(
        name, BigInteger().with_variant(Integer(), "sqlite"), Identity(), primary_key=True
    )


def _is_virtual() -> Column[bool]:
    return Column("is_virtual", Boolean(create_constraint=True, name="is_virtual"), nullable=False)


def _table(name: str, *items: Any) -> Table:  # noqa: ANN401 - columns, constraints and indexes
    return Table(name, METADATA, *items, sqlite_autoincrement=True)


#: ``version``: the schema's; ``timezone``: in which the nights of this store begin and end.
SETTINGS = Table(
    "benchfarm_settings",
    METADATA,
    Column("name", Text, primary_key=True),
    Column("value", Text, nullable=False),
)

CAMPAIGNS = _table(
    "campaigns",
    _number("campaign_no"),
    Column("campaign_id", AnyText, nullable=False, unique=True),
    Column("name", AnyText, nullable=False),
    Column("created_at", UtcTime, nullable=False, index=True),
    Column("finished_at", UtcTime),
    Column("status", Text, nullable=False),
    # Whether lists, tables and the history leave it out.
    Column("is_hidden", Boolean, nullable=False),
    # By which policy its raw output was deleted.
    Column("pruned", AnyText),
    # How many runs it planned.
    Column("planned", Integer, nullable=False),
    # The record without planned runs and skips, and the skips; pack and pack_output say how.
    Column("document", LargeBinary, nullable=False),
    Column("skipped", LargeBinary, nullable=False),
)

DEVICES = _table(
    "devices",
    _number("device_no"),
    Column("serial", AnyText, nullable=False, unique=True),
    _is_virtual(),
    # As last stored.
    Column("facts", Text, nullable=False),
    UniqueConstraint("serial", "is_virtual", name="uq_devices_serial_is_virtual"),
)

#: What a device was, from then on: a row for each time that it came back changed.
SIGHTINGS = Table(
    "sightings",
    METADATA,
    Column("serial", AnyText, ForeignKey("devices.serial"), primary_key=True),
    Column("seen_at", UtcTime, primary_key=True),
    Column("facts", Text, nullable=False),
)

MODELS = Table(
    "models",
    METADATA,
    Column("sha256", AnyText, primary_key=True),
    Column("document", Text, nullable=False),
)
BUILDS = Table(
    "builds",
    METADATA,
    Column("sha256", AnyText, primary_key=True),
    Column("document", Text, nullable=False),
)

CASES = _table(
    "cases",
    _number("case_no"),
    Column("case_key", AnyText, nullable=False, unique=True),
    Column("series_key", AnyText, nullable=False, index=True),
    Column("serial", AnyText, nullable=False),
    _is_virtual(),
    Column("model_sha256", AnyText, ForeignKey("models.sha256"), nullable=False),
    Column("build_sha256", AnyText, ForeignKey("builds.sha256"), nullable=False),
    # [[name, sha256], ...] as JSON.
    Column("files", Text, nullable=False),
    Column("document", LargeBinary, nullable=False),
    ForeignKeyConstraint(["serial", "is_virtual"], ["devices.serial", "devices.is_virtual"]),
    UniqueConstraint("case_no", "is_virtual"),
    Index("ix_cases_serial", "serial"),
)

#: The runs that a campaign planned, in the order in which they are to be made.
PLANNED = Table(
    "planned",
    METADATA,
    Column("campaign_no", BigInteger, ForeignKey("campaigns.campaign_no"), primary_key=True),
    Column("position", Integer, primary_key=True),
    Column("case_no", BigInteger, ForeignKey("cases.case_no"), nullable=False, index=True),
    Column("run_pass", Text, nullable=False),
    Column("number", BigInteger, nullable=False),
    UniqueConstraint("campaign_no", "case_no", "run_pass", "number"),
    # Its key is the table: a tree less to write.
    sqlite_with_rowid=False,
)

#: One row and one document a run: the columns are what is asked of many runs.
RUNS = _table(
    "runs",
    _number("run_no"),
    Column("run_id", AnyText, nullable=False, unique=True),
    Column("campaign_no", BigInteger, ForeignKey("campaigns.campaign_no"), nullable=False),
    Column("case_no", BigInteger, nullable=False),
    _is_virtual(),
    Column("run_pass", Text, nullable=False),
    Column("invocation", BigInteger, nullable=False),
    Column("outcome", Text, nullable=False),
    Column("reason_code", AnyText, nullable=False),
    Column("quality", Text, nullable=False),
    # Codes, in their order, with spaces between them.
    Column("findings", AnyText, nullable=False),
    Column("started_at", UtcTime, nullable=False),
    Column("duration_s", Double, nullable=False),
    Column("latency_us", Double),
    # CRC-32 of the document: another one once anything else is read from the raw output.
    Column("checksum", BigInteger, nullable=False),
    # The record without case and raw output, and the raw output; pack and pack_output say how.
    Column("document", LargeBinary, nullable=False),
    Column("output", LargeBinary, nullable=False),
    ForeignKeyConstraint(["case_no", "is_virtual"], ["cases.case_no", "cases.is_virtual"]),
    # One case over time.
    UniqueConstraint("case_no", "run_pass", "campaign_no", "invocation"),
    # Many nights: progress, figures, and what ended without one, from the index alone.
    Index(
        "ix_runs_figures", "campaign_no", "outcome", "run_pass", "quality", "case_no", "latency_us"
    ),
)

#: Large output, each content once.
BLOBS = Table(
    "blobs",
    METADATA,
    Column("sha256", Text, primary_key=True),
    Column("data", LargeBinary, nullable=False),
)

#: Which runs have which large output.
ATTACHMENTS = Table(
    "attachments",
    METADATA,
    Column("run_no", BigInteger, ForeignKey("runs.run_no"), primary_key=True),
    Column("sha256", Text, ForeignKey("blobs.sha256"), primary_key=True, index=True),
    sqlite_with_rowid=False,
)

#: Annotations and confirmations of changes: records of records/history.py.
ANNOTATIONS = _table(
    "annotations",
    _number("annotation_no"),
    Column("annotation_id", AnyText, nullable=False, unique=True),
    Column("document", Text, nullable=False),
)
CONFIRMATIONS = Table(
    "confirmations",
    METADATA,
    Column("series_key", AnyText, primary_key=True),
    Column("night", Text, primary_key=True),
    Column("document", Text, nullable=False),
)
