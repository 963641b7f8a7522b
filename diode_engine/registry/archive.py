"""Models as one file each, to be passed on: written, and registered (models/archive.py has the
form).

Nothing in the file is compressed, and times and permissions are always the same. So a model gives
the same bytes everywhere, and their hash can be published.
"""

from __future__ import annotations

import hashlib
import json
import zipfile
from pathlib import Path

from diode_engine.atomic import FileKind, whole_file
from diode_engine.errors import ModelError, RegistryError, explain_os_error
from diode_engine.models.archive import read_archive, read_content
from diode_engine.models.artifact import load_files, read_files
from diode_engine.models.manifest import MANIFEST
from diode_engine.registry.sources import ModelVersion, list_models
from diode_engine.registry.versions import add

SUFFIX = ".diode.zip"
_EPOCH = (1980, 1, 1, 0, 0, 0)  # the earliest time that a zip can hold
_UNIX = 3  # ZipInfo.create_system: permissions are Unix's


def export_model(model: ModelVersion, file: Path, *, replace: bool = False) -> str:
    """Writes the model to the archive `file`, whole or not at all, and returns the file's SHA-256.

    Raises ModelError where the model is damaged, RegistryError where the file exists already
    (unless `replace`) or cannot be written.
    """
    manifest, contents = read_files(model.folder)
    load_files(manifest, contents)
    described = json.dumps(manifest.to_dict(), indent=1, ensure_ascii=False) + "\n"
    if file.exists() and not replace:
        raise RegistryError(f"{file} exists already; name another file, or pass --replace.")
    with (
        explain_os_error(RegistryError, f"{file} cannot be written"),
        whole_file(file, kind=FileKind.MODEL) as opened,
    ):
        with zipfile.ZipFile(opened, "w", zipfile.ZIP_STORED) as archive:
            for name, data in {MANIFEST: described.encode(), **contents}.items():
                entry = zipfile.ZipInfo(name, _EPOCH)
                entry.create_system, entry.external_attr = _UNIX, 0o100644 << 16
                archive.writestr(entry, data)
        opened.seek(0)
        return hashlib.file_digest(opened, "sha256").hexdigest()


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
    if file.is_dir():
        raise ModelError(f"{file} is a folder; register it (`diode-engine models register`).")
    data = read_content(file)  # once: what is hashed is what is used
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
