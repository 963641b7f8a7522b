"""One file that holds a model, to be passed on: a zip whose first entry is the manifest.

Nothing in it is compressed, and times and permissions are always the same. So a model gives the
same bytes everywhere, and their hash can be published. Files are never extracted by the names in
the archive: the manifest says which files there are, and each is checked before it is parsed.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import stat
import struct
import zipfile
from pathlib import Path

from diode_engine.atomic import FileKind, whole_file
from diode_engine.errors import ModelError, RegistryError
from diode_engine.models.artifact import check_member, load_files, read_folder
from diode_engine.models.manifest import MANIFEST, MAX_MANIFEST, MAX_MODEL, Manifest, parse_manifest
from diode_engine.registry.sources import ModelVersion, list_models
from diode_engine.registry.versions import add

SUFFIX = ".diode.zip"
MAX_ARCHIVE = MAX_MODEL + (1 << 20)  # all its files, uncompressed
_EPOCH = (1980, 1, 1, 0, 0, 0)  # the earliest time that a zip can hold
_UNIX = 3  # ZipInfo.create_system: permissions are Unix's
_READ = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC  # without waiting, if it is a pipe
_MAX_LIST = 1 << 16  # bytes of the list of entries; a model has at most 66, of up to 150 bytes each
_END = struct.Struct("<4s4H2LH")  # the last record of a zip that has no comment
_LOCATOR_BYTES = 20  # of the record before it in a zip of over 4 GiB: it points to another list


def export_model(model: ModelVersion, file: Path, *, replace: bool = False) -> str:
    """Writes the model to the archive `file`, whole or not at all, and returns the file's SHA-256.

    Raises ModelError where the model is damaged, RegistryError where the file exists already
    (unless `replace`) or cannot be written.
    """
    manifest, contents = read_folder(model.folder)
    load_files(manifest, contents)
    described = json.dumps(manifest.to_dict(), indent=1, ensure_ascii=False) + "\n"
    if file.exists() and not replace:
        raise RegistryError(f"{file} exists already; name another file, or pass --replace.")
    try:
        with whole_file(file, kind=FileKind.MODEL) as opened:
            with zipfile.ZipFile(opened, "w", zipfile.ZIP_STORED) as archive:
                for name, data in {MANIFEST: described.encode(), **contents}.items():
                    entry = zipfile.ZipInfo(name, _EPOCH)
                    entry.create_system, entry.external_attr = _UNIX, 0o100644 << 16
                    archive.writestr(entry, data)
            opened.seek(0)
            return hashlib.file_digest(opened, "sha256").hexdigest()
    except OSError as error:
        raise RegistryError(f"{file} cannot be written: {error.strerror}.") from None


def import_model(
    file: Path, name: str | None = None, *, sha256: str | None = None, where: str | None = None
) -> tuple[ModelVersion, bool]:
    """Registers the model in the archive `file` as the next version of `name` (its own name if
    None). Returns it and True; where the same model has that name already, returns that version and
    False. The facts keep `where` it is from (the file, if None) and the archive's hash.

    Raises ModelError where the archive's hash is not `sha256`, or it does not hold a model as
    `export_model` writes it; RegistryError where the registry cannot be written. Nothing is
    registered then.
    """
    data = _content(file)  # once: what is hashed is what is used
    digest = hashlib.sha256(data).hexdigest()
    if sha256 not in (None, digest):
        raise ModelError(
            f"{file} is not the archive that was asked for: its SHA-256 is {digest}, not {sha256}."
        )
    manifest, contents = read_archive(data, file)
    name = name or manifest.name
    for model in list_models():
        if (model.slug, model.name, model.own) != (manifest.hardware.slug, name, True):
            continue
        try:
            if model.manifest.identity == manifest.identity:
                return model, False
        except ModelError:
            continue  # a damaged one is not the same
    origin = {"archive": where or str(file.absolute()), "sha256": digest}
    return add(manifest, contents, name, origin=origin), True


def _content(file: Path) -> bytes:
    """The bytes of an archive's file. Raises ModelError where it cannot be read, or is too
    large."""
    try:
        with os.fdopen(os.open(file, _READ), "rb") as opened:
            found = os.fstat(opened.fileno())
            if not stat.S_ISREG(found.st_mode):
                raise ModelError(f"{file} is not an archive of a model: it is no regular file.")
            if found.st_size > MAX_ARCHIVE:
                raise ModelError(f"{file} is too large for an archive of a model.")
            return opened.read(found.st_size)
    except OSError as error:
        raise ModelError(f"{file} cannot be read: {error.strerror or error}.") from None


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


def sha256_of(file: Path) -> str:
    """The hash of a file's content. Raises ModelError where it cannot be read."""
    try:
        with file.open("rb") as opened:
            return hashlib.file_digest(opened, "sha256").hexdigest()
    except OSError as error:
        raise ModelError(f"{file} cannot be read: {error.strerror}.") from None
