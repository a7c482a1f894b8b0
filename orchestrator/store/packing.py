"""Documents and raw output as a store keeps them: Zstandard with a dictionary that comes with the
package.

Programs print the same lines with other figures, so that a dictionary trained on some hundred runs
of a program brings a document of 7 kB to about 400 bytes. A frame names its dictionary. A
dictionary is never changed or removed: a new one gets another name
(``benchmarks/dictionaries.py`` trains them).
"""

from __future__ import annotations

import functools
import hashlib
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from orchestrator.documents import to_text
from orchestrator.errors import StoreCorruptError
from orchestrator.records.run import Attachment

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

#: Output beyond this is kept beside its run, once for each content.
LARGE_BYTES: Final = 64 * 1024
#: Level 9 makes documents 2 % smaller and takes four times as long.
_OPTIONS: Final[dict[int, int]] = {
    zstd.CompressionParameter.compression_level: 7,
    zstd.CompressionParameter.checksum_flag: 1,
}
#: What claims to be more can only be damaged.
_MOST_BYTES: Final = 512 << 20
#: For programs that have no dictionary of their own.
_DEFAULT: Final = "native"
_FOLDER: Final = Path(__file__).with_name("dictionaries")


@functools.cache
def _dictionaries() -> dict[str, zstd.ZstdDict]:
    """Return the dictionaries by the names of their files, ``native.1.zdict``, the newest last."""
    files = [item for item in _FOLDER.iterdir() if item.suffix == ".zdict"]
    files.sort(key=lambda item: int(item.stem.rpartition(".")[2]))
    return {item.name: zstd.ZstdDict(item.read_bytes()) for item in files}


def pack(content: bytes, program: str = "") -> bytes:
    """Return some bytes compressed, by the dictionary of a program where one is named."""
    of_program = {name.split(".")[0]: known for name, known in _dictionaries().items()}
    known = of_program.get(program, of_program[_DEFAULT]) if program else None
    return zstd.compress(content, options=_OPTIONS, zstd_dict=known and known.as_digested_dict)


def unpack(data: bytes, *, where: str) -> bytes:
    """Return what :func:`pack` was given; raises StoreCorruptError naming ``where``."""
    try:
        frame = zstd.get_frame_info(data)
        if frame.decompressed_size is None or frame.decompressed_size > _MOST_BYTES:
            raise StoreCorruptError(
                f"{where}: its stored bytes claim to be more than {_MOST_BYTES >> 20} MiB"
            )
        known = next(
            (one for one in _dictionaries().values() if one.dict_id == frame.dictionary_id), None
        )
        decompressor = zstd.ZstdDecompressor(zstd_dict=known)
        content = decompressor.decompress(data)
        if not decompressor.eof or decompressor.unused_data:
            raise zstd.ZstdError("they end elsewhere than their frame")
        return content
    except zstd.ZstdError as error:
        raise StoreCorruptError(
            f"{where}: the stored bytes aren't the ones that were kept ({error})"
        ) from error


def pack_output(attachments: Sequence[Attachment], program: str) -> bytes:
    """Return what a run left behind: a line of JSON with names, and sizes or the sha256 of large
    ones, then the rest.

    Large content itself isn't in it.
    """
    sizes = [[item.name, item.sha256 if is_large(item) else len(item.data)] for item in attachments]
    small = (item.data for item in attachments if not is_large(item))
    return pack(b"".join([to_text(sizes).encode("ascii"), b"\n", *small]), program)


def unpack_output(data: bytes, *, where: str) -> list[tuple[str, bytes | str]]:
    """Return names and contents as :func:`pack_output` was given them, of large ones the sha256.

    Raises StoreCorruptError naming ``where``.
    """
    head, _, rest = unpack(data, where=where).partition(b"\n")
    found: list[tuple[str, bytes | str]] = []
    at = 0
    for name, size in json.loads(head):
        found.append((name, size if isinstance(size, str) else rest[at : at + size]))
        at += size if isinstance(size, int) else 0
    return found


def is_large(attachment: Attachment) -> bool:
    """Whether an attachment is kept beside its run."""
    return len(attachment.data) > LARGE_BYTES


def unpack_large(data: bytes, sha256: str) -> bytes:
    """Return a large content after its sum was checked; raises StoreCorruptError."""
    content = unpack(data, where=f"raw output {sha256}")
    if hashlib.sha256(content).hexdigest() != sha256:
        raise StoreCorruptError(
            f"raw output {sha256}: the stored bytes aren't the ones that were kept"
        )
    return content
