"""Column types that keep a value exactly, on every database."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy import TIMESTAMP, BigInteger, Dialect, Integer, LargeBinary, Text
from sqlalchemy.types import TypeDecorator, TypeEngine

#: A row's own number: 64 bits, and on SQLite the name that makes it the table's row id.
ROW_NUMBER = BigInteger().with_variant(Integer(), "sqlite")

#: PostgreSQL refuses NUL, both databases refuse lone surrogates; the backslash is what they are escaped with.
_NEEDS_ESCAPE = re.compile("[\x00\\\\\ud800-\udfff]")
_HEX_KEY = re.compile("[0-9a-f]{32}")
#: What 32 hexadecimal digits take; no other key's stored form is as long.
KEY_BYTES = 16
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_ESCAPED = re.compile(r"\\(\\|u([0-9a-f]{4}))")


def escape_text(text: str) -> str:
    r"""Return text that every database takes: NUL and lone surrogates as ``\uXXXX``, a backslash doubled."""
    if _NEEDS_ESCAPE.search(text) is None:
        return text
    return _NEEDS_ESCAPE.sub(lambda hit: "\\\\" if hit[0] == "\\" else f"\\u{ord(hit[0]):04x}", text)


def unescape_text(text: str) -> str:
    """Return the text that :func:`escape_text` was given."""
    if "\\" not in text:
        return text
    return _ESCAPED.sub(lambda hit: "\\" if hit[2] is None else chr(int(hit[2], 16)), text)


class AnyText(TypeDecorator[str]):
    """Any Python text, as phones and people may write it; see :func:`escape_text`."""

    impl = Text
    cache_ok = True

    def process_bind_param(self, value: str | None, dialect: Dialect) -> str | None:
        """Escape what a database can't hold."""
        return None if value is None else escape_text(value)

    def process_result_value(self, value: str | None, dialect: Dialect) -> str | None:
        """Undo the escape."""
        return None if value is None else unescape_text(value)


class UtcTime(TypeDecorator[datetime]):
    """A moment to the microsecond: timestamptz on PostgreSQL; on SQLite ISO 8601 text in UTC, which sorts as time.

    ``compact``: on SQLite microseconds since 1970 in the place of text.
    """

    impl = Text
    cache_ok = True

    def __init__(self, *, compact: bool = False) -> None:
        super().__init__()
        self.compact = compact

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[Any]:
        """Choose the database's own type where it has one."""
        if dialect.name == "postgresql":
            return dialect.type_descriptor(TIMESTAMP(timezone=True))
        return dialect.type_descriptor(BigInteger() if self.compact else Text())

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | str | int | None:
        """Return the moment in UTC, as the database takes it."""
        if value is None:
            return None
        if dialect.name == "postgresql":
            return value.astimezone(UTC)
        if self.compact:
            return (value - _EPOCH) // timedelta(microseconds=1)
        return value.astimezone(UTC).isoformat(timespec="microseconds")

    def process_result_value(self, value: datetime | str | int | None, dialect: Dialect) -> datetime | None:
        """Return the moment in UTC."""
        if value is None:
            return None
        if isinstance(value, int):
            return _EPOCH + timedelta(microseconds=value)
        return (datetime.fromisoformat(value) if isinstance(value, str) else value).astimezone(UTC)


def key_to_bytes(text: str) -> bytes:
    """Return a key's stored form: 32 hexadecimal digits as 16 bytes, any other text as UTF-8 of another length."""
    if _HEX_KEY.fullmatch(text):
        return bytes.fromhex(text)
    encoded = text.encode("utf-8", "surrogatepass")
    # The last byte says how many bytes were added.
    return encoded + (b"\x02\x02" if len(encoded) + 1 == KEY_BYTES else b"\x01")


def key_from_bytes(stored: bytes) -> str:
    """Return the key that :func:`key_to_bytes` was given."""
    if len(stored) == KEY_BYTES:
        return stored.hex()
    return stored[: -stored[-1]].decode("utf-8", "surrogatepass")


class ContentKey(TypeDecorator[str]):
    """A key of 32 hexadecimal digits in half the space, in a table and in each of its indexes; other text too."""

    impl = LargeBinary
    cache_ok = True

    def process_bind_param(self, value: str | None, dialect: Dialect) -> bytes | None:
        """Return its stored form."""
        return None if value is None else key_to_bytes(value)

    def process_result_value(self, value: bytes | None, dialect: Dialect) -> str | None:
        """Return the key."""
        return None if value is None else key_from_bytes(bytes(value))
