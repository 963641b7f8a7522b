"""A model as one file: a zip whose first entry is the manifest, and nothing in it is compressed.

Files are never extracted by the names in the archive: the manifest says which files there are, and
each is checked before it is parsed. None of them can hold code. Any suffix will do.
"""

from __future__ import annotations

import hashlib
import io
import os
import stat
import struct
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from diode_engine.errors import ModelError, explain_os_error
from diode_engine.models.manifest import MANIFEST, MAX_MANIFEST, MAX_MODEL, Manifest, parse_manifest

MAX_ARCHIVE = MAX_MODEL + (1 << 20)  # all its files, uncompressed
_READ = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC  # without waiting, if it is a pipe
_MAX_LIST = 1 << 16  # bytes of the list of entries; a model has at most 66, of up to 150 bytes each
_END = struct.Struct("<4s4H2LH")  # the last record of a zip that has no comment
_LOCATOR_BYTES = 20  # of the record before it in a zip of over 4 GiB: it points to another list


def read_content(file: Path, most: int = MAX_ARCHIVE, *, follow_links: bool = True) -> bytes:
    """The bytes of a model's archive, or of another of its files. Raises ModelError where the file
    cannot be read, is no regular file, or has over `most` bytes."""
    if not follow_links and file.is_symlink():
        raise ModelError(f"{file} is a link; put the file itself there.")
    flags = _READ if follow_links else _READ | os.O_NOFOLLOW
    with (
        explain_os_error(ModelError, f"{file} cannot be read"),
        os.fdopen(os.open(file, flags), "rb") as opened,
    ):
        found = os.fstat(opened.fileno())
        if not stat.S_ISREG(found.st_mode):
            raise ModelError(f"{file} is not a model's file: it is no regular file.")
        if found.st_size > most:
            raise ModelError(f"{file} has {found.st_size} bytes, which is too large.")
        return opened.read(found.st_size)


def read_archive(data: bytes, file: Path) -> tuple[Manifest, dict[str, bytes]]:
    """The manifest of the model in an archive's content, which was read from `file`, and the
    contents of the model's files by name. The hashes are checked; only the manifest is parsed.
    Raises ModelError where it is not an archive as `export_model` writes it."""
    try:
        _check_directory(data, file)
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            return _read(archive, file)
    except (zipfile.BadZipFile, EOFError, OSError, NotImplementedError, RuntimeError, ValueError):
        raise ModelError(f"{file} is not an archive of a model, or is damaged.") from None


def _check_directory(data: bytes, file: Path) -> None:
    """Raises ModelError where the archive's list of entries is longer than a model's can be, or
    lies where zipfile would look for another list. zipfile makes objects of all entries."""
    mark, listed, comment = b"", 0, 0
    if len(data) >= _END.size:
        mark, *_, listed, _, comment = _END.unpack(data[-_END.size :])
    before = data[-_END.size - _LOCATOR_BYTES :]
    if mark != b"PK\5\6" or comment or listed > _MAX_LIST or before.startswith(b"PK\6\7"):
        raise ModelError(f"{file} is not an archive of a model, or is damaged.")


def _read(archive: zipfile.ZipFile, file: Path) -> tuple[Manifest, dict[str, bytes]]:
    entries = archive.infolist()
    # `export_model` neither encrypts nor compresses; without both, an entry is as long as it says.
    if any(e.flag_bits & 1 or e.compress_type != zipfile.ZIP_STORED for e in entries):
        raise ModelError(f"{file} was not made by `diode-engine models export`.")
    if not entries or entries[0].filename != MANIFEST or entries[0].file_size > MAX_MANIFEST:
        raise ModelError(f"{file} is not an archive of a model: its first entry is no manifest.")
    manifest = parse_manifest(archive.read(entries[0]), file)
    expected = {entry["file"]: entry for entry in manifest.files}
    if sorted(e.filename for e in entries[1:]) != sorted(expected):
        raise ModelError(f"{file} does not hold exactly the files that its manifest names.")
    contents = {}
    for entry in entries[1:]:
        described = expected[entry.filename]
        if entry.file_size != described["bytes"]:
            raise ModelError(
                f"{entry.filename} in {file} has {entry.file_size} bytes, the manifest says "
                f"{described['bytes']}."
            )
        contents[entry.filename] = check_member(archive.read(entry), described, file)
    return manifest, contents


def check_member(data: bytes, entry: Mapping[str, Any], where: Path) -> bytes:
    """The content of one of a manifest's `files`, which was found at this place; raises
    ModelError where its hash is not the one that the manifest says."""
    if hashlib.sha256(data).hexdigest() != entry["sha256"]:
        raise ModelError(
            f"The model's file {entry['file']} in {where} is not the one the manifest "
            "describes: its hash differs. Copy or train the model again."
        )
    return data
