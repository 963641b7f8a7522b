"""Files that appear whole or not at all, whatever happens while they are written, and that take the
place of files of their own kind only."""

from __future__ import annotations

import errno
import os
import re
import secrets
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from io import BufferedRandom
from pathlib import Path
from typing import BinaryIO

UNFINISHED = ".unfinished-"  # the beginning of the names of files that are being written

_HEAD = 4096  # bytes at a file's beginning that tell its kind
_ZSTANDARD = b"\x28\xb5\x2f\xfd"


class FileKind(StrEnum):
    """What a file is, by its beginning; the text names it in a sentence."""

    STORE = "a store"
    MODEL = "an archive of a model"
    FIGURE = "a figure"
    DATASET = "a dataset"
    SHAPESET = "a shapeset"
    LOOKUP_TABLE = "a lookup table"
    REPORT = "a program's report"
    FROZEN = "a file of frozen choices"
    PAGE = "a page of a program's report"
    TUNING = "a page of a tuning"
    COMPARISON = "a comparison with max-autotune"
    TEXT = "a text"
    OTHER = "a file of another kind"


# The first that fits decides. A dataset is Diode's, as JSON or msgpack, or torch-diode's.
_BEGINNINGS = tuple(
    (kind, re.compile(pattern, re.DOTALL))
    for kind, pattern in (
        (FileKind.STORE, rb"SQLite format 3\x00.{52}DIOD"),
        (FileKind.MODEL, rb"PK\x03\x04.{26}manifest\.json"),
        (FileKind.FIGURE, rb"\x89PNG|%PDF|\s*(<\?xml.*)?<svg"),
        (FileKind.DATASET, rb'\s*\{\s*"format"\s*:\s*"diode-dataset"'),
        (FileKind.DATASET, rb".{1,5}\xa6format\xaddiode-dataset"),
        (FileKind.DATASET, rb'\s*\{\s*"hardware"\s*:\s*\{\s*("[^"]*"\s*:\s*\{\s*"operation"|\})'),
        (FileKind.DATASET, rb"[\x80-\x8f\xde\xdf].{0,4}\xa8hardware"),
        (FileKind.FROZEN, rb'(#[^\n]*\n)*format = "diode-frozen-choices"'),
        (FileKind.REPORT, rb'\s*\{\s*"format"\s*:\s*"diode-report"'),
        (
            FileKind.PAGE,
            rb'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><meta name="v',
        ),
        (FileKind.TUNING, rb"# \S+@\d+ for [^\n]+\n\nTuned from "),
        (FileKind.COMPARISON, rb'\{\s*"solution"\s*:\s*"'),
        (FileKind.SHAPESET, rb'\s*\{\s*"source"\s*:\s*"'),
        (FileKind.SHAPESET, rb'\s*\{\s*"(columns|shapes)"\s*:\s*\[|\s*\{\s*"operations"\s*:\s*\{'),
        (FileKind.LOOKUP_TABLE, rb'\s*\{\s*"[^\n]*"\s*:\s*\[\s*\{\s*"template_id"'),
    )
)
# What commands write to stdout, which a step of a workflow puts into a file.
_PRINTED = (FileKind.TEXT, FileKind.REPORT, FileKind.TUNING, FileKind.COMPARISON)
_NOTHING = re.compile(rb"\s*(\{\s*\})?\s*")


def kind_of(path: Path) -> FileKind | None:
    """Return what the regular file is; None where there is no file, or nothing in it. Raises
    OSError where it cannot be read."""
    if not path.is_file():
        return None
    with path.open("rb") as file:
        head = file.read(_HEAD)
        if head.startswith(_ZSTANDARD):
            file.seek(0)
            head = _decompressed_head(file) or head
    if _NOTHING.fullmatch(head):
        return None
    for kind, beginning in _BEGINNINGS:
        if beginning.match(head):
            return kind
    text = b"\0" not in head and head.decode(errors="ignore").encode() in (head, *_cut(head))
    return FileKind.TEXT if text else FileKind.OTHER


def _decompressed_head(file: BinaryIO) -> bytes:
    """Return the beginning of what is compressed; nothing where the file is damaged."""
    import zstandard

    try:
        with zstandard.ZstdDecompressor().stream_reader(file) as reader:
            return reader.read(_HEAD)
    except zstandard.ZstdError:
        return b""


def _cut(head: bytes) -> Iterator[bytes]:
    """The head without its last bytes, where they may be the beginning of a letter."""
    return (head[:-n] for n in (1, 2, 3) if len(head) == _HEAD)


def check_target(path: Path, kind: FileKind | None, *, sources: Iterable[Path] = ()) -> None:
    """Checks that a file of this kind may be put at `path`: there is no file, or one of the same
    kind (whatever kind, if None; whatever commands write to stdout, if TEXT). `sources` are files
    that are read for it. Raises OSError where it may not."""
    if path.exists() and not path.is_file():
        raise OSError(errno.EINVAL, "it is there and is not a regular file", str(path))
    for source in sources:
        if path.exists() and source.exists() and path.samefile(source):
            raise OSError(errno.EINVAL, "it is read by this command; name another file", str(path))
    found = None if kind is None else kind_of(path)
    replaceable = _PRINTED if kind is FileKind.TEXT else (kind,)
    if found is not None and found not in replaceable:
        raise OSError(
            errno.EEXIST,
            f"it is {found}, not {kind}; name another file, or remove this one first",
            str(path),
        )


def check_writable(path: Path, kind: FileKind | None, *, sources: Iterable[Path] = ()) -> None:
    """As `check_target`; raises OSError also where no file can be made beside `path`. For commands
    that work for long before they write."""
    check_target(path, kind, sources=sources)
    if not path.absolute().parent.is_dir():
        raise OSError(errno.ENOENT, f"there is no folder {path.parent}; make it first", str(path))
    made, handle = _open_beside(path)
    os.close(handle)
    made.unlink()


@contextmanager
def whole_file(
    path: Path, *, kind: FileKind | None = None, durable: bool = True
) -> Iterator[BufferedRandom]:
    """A new file, open for bytes, that takes the place of `path` when the block ends. It is removed
    where the block raises. So a reader sees the old file or the new one.

    It lies beside `path` under a name that cannot be guessed, and a link under that name is not
    followed (O_EXCL, O_NOFOLLOW). `kind` is what is written: a file of another kind is not
    replaced; None is for files that only Diode names. With `durable` False the system decides when
    the content reaches the disk: for files that can be made again. Raises OSError, also where
    `path` is a device, a pipe or a folder, which are not replaced.
    """
    check_target(path, kind)
    made, handle = _open_beside(path)
    try:
        with os.fdopen(handle, "w+b") as file:
            yield file
            file.flush()
            if durable:
                os.fsync(file.fileno())
        made.replace(path)
    except BaseException:
        made.unlink(missing_ok=True)
        raise


def _open_beside(path: Path) -> tuple[Path, int]:
    """A new file beside `path`: its path, and its descriptor, which reads and writes."""
    made = path.with_name(f"{UNFINISHED}{secrets.token_hex(8)}")
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    return made, os.open(made, flags, 0o666)  # without the rights that the umask takes away


def write_whole(
    path: Path, data: bytes | str, *, kind: FileKind | None = None, durable: bool = True
) -> None:
    """Writes the file as `whole_file` does; a text in UTF-8. Raises OSError."""
    with whole_file(path, kind=kind, durable=durable) as file:
        file.write(data.encode() if isinstance(data, str) else data)


@contextmanager
def scratch_beside(path: Path) -> Iterator[Path]:
    """A new folder beside `path`, removed with all that is in it when the block ends: for libraries
    that write to a file's name, and may write other files beside it. Raises OSError."""
    made = path.with_name(f"{UNFINISHED}{secrets.token_hex(8)}")
    made.mkdir(mode=0o700)
    try:
        yield made
    finally:
        shutil.rmtree(made, ignore_errors=True)
