"""Files that appear whole or not at all, whatever happens while they are written."""

from __future__ import annotations

import errno
import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from io import BufferedRandom
from pathlib import Path

UNFINISHED = ".unfinished-"  # the beginning of the names of files that are being written


@contextmanager
def whole_file(path: Path, *, durable: bool = True) -> Iterator[BufferedRandom]:
    """A new file, open for bytes, that takes the place of `path` when the block ends. It is removed
    where the block raises. So a reader sees the old file or the new one.

    It lies beside `path` under a name that cannot be guessed, and a link under that name is not
    followed (O_EXCL, O_NOFOLLOW). With `durable` False the system decides when the content reaches
    the disk: for files that can be made again. Raises OSError, also where `path` is a device, a
    pipe or a folder, which are not replaced.
    """
    if path.exists() and not path.is_file():
        raise OSError(errno.EINVAL, "it is there and is not a regular file", str(path))
    made = path.with_name(f"{UNFINISHED}{secrets.token_hex(8)}")
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    handle = os.open(made, flags, 0o666)  # without the rights that the umask takes away
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


def write_whole(path: Path, data: bytes | str, *, durable: bool = True) -> None:
    """Writes the file as `whole_file` does; a text in UTF-8. Raises OSError."""
    with whole_file(path, durable=durable) as file:
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
