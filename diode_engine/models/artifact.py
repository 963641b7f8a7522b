"""A model on disk: a folder with manifest.json and one weight file for each member. None of these
files can hold code.

Files are not trusted. A file's name is checked before it is opened, its size before it is read,
and its hash before it is parsed.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from diode_engine.atomic import scratch_beside, write_whole
from diode_engine.documents import show
from diode_engine.errors import ModelError, explain_os_error
from diode_engine.models.archive import check_member, read_archive, read_content
from diode_engine.models.confidence import Confidence
from diode_engine.models.manifest import MANIFEST, MAX_FILE, MAX_MANIFEST, Manifest, parse_manifest
from diode_engine.models.model_types import ENSEMBLE, MODEL_TYPES
from diode_engine.models.protocol import TimingModel
from diode_engine.version import __version__


@dataclass(frozen=True)
class Artifact:
    """A loaded model and what it says about itself."""

    manifest: Manifest
    members: tuple[TimingModel, ...]
    confidence: Confidence | None = None


def save_artifact(
    folder: Path,
    manifest: Manifest,
    members: Sequence[TimingModel],
    confidence: Confidence | None = None,
) -> Artifact:
    """Writes a new model folder, whole or not at all, and returns it as `load_artifact` reads
    it. The manifest's family, members, creation time and version of Diode are filled in.

    Raises ModelError where the folder exists or cannot be written, or where the model could not
    be loaded again.
    """
    contents: dict[str, bytes] = {}
    entries: list[dict[str, Any]] = []

    def entry(file: str, data: bytes) -> dict[str, Any]:
        contents[file] = data
        digest = hashlib.sha256(data).hexdigest()
        return {"file": file, "bytes": len(data), "sha256": digest}

    for place, member in enumerate(members):
        file = f"{member.family}-{place}.safetensors"
        entries.append({"family": member.family, **entry(file, member.to_bytes())})
    families = {member.family for member in members}
    now = dt.datetime.now(dt.UTC).isoformat(timespec="seconds")
    described = {
        **manifest.to_dict(),
        "family": families.pop() if len(families) == 1 else ENSEMBLE,
        "created": now,
        "diode": __version__,
        "members": entries,
        "confidence": None
        if confidence is None
        else entry("confidence.safetensors", confidence.to_bytes()),
    }
    try:
        text = json.dumps(described, indent=1, ensure_ascii=False, allow_nan=False) + "\n"
    except (TypeError, ValueError) as error:
        raise ModelError(f"The model's manifest cannot be written as JSON: {error}.") from None
    contents[MANIFEST] = text.encode()
    parse_manifest(contents[MANIFEST], folder)
    write_folder(folder, contents)
    return load_artifact(folder)


def write_folder(folder: Path, contents: Mapping[str, bytes]) -> None:
    """Writes a new folder with these files (name: content), whole or not at all. Raises ModelError
    where the folder exists or cannot be written."""
    if folder.exists():
        raise ModelError(f"{folder} exists already; choose another place for the model.")
    with explain_os_error(ModelError, f"The model cannot be written to {folder}"):
        folder.parent.mkdir(parents=True, exist_ok=True)
        with scratch_beside(folder) as made:
            for name, data in contents.items():
                write_whole(made / name, data)
            made.chmod(0o755)
            made.rename(folder)


def load_manifest(place: Path) -> Manifest:
    """The manifest of the model at this place (see `load_artifact`) alone; raises ModelError as
    `load_artifact` does for it."""
    if place.is_file():
        return read_files(place)[0]
    data = read_content(place / MANIFEST, MAX_MANIFEST, follow_links=False)
    return parse_manifest(data, place)


def read_files(place: Path) -> tuple[Manifest, dict[str, bytes]]:
    """The manifest, and the content of each file that it names, by the file's name. The hashes are
    checked; only the manifest is parsed. Raises ModelError as `load_artifact` does for it."""
    if place.is_file():
        return read_archive(read_content(place), place)
    manifest = load_manifest(place)
    return manifest, {entry["file"]: read_member(place, entry) for entry in manifest.files}


def load_artifact(place: Path) -> Artifact:
    """The model in this folder or archive (see `archive`).

    Raises ModelError where a file is missing, a link, too large, of another size or hash than
    the manifest says, or not what its family writes; where the manifest is malformed or too
    new; and where the model was made with other features than this Diode's.
    """
    return load_files(*read_files(place))


def load_files(manifest: Manifest, contents: Mapping[str, bytes]) -> Artifact:
    """The model of a manifest and of its files' contents (by file name), whose hashes are checked
    already. Raises ModelError where a content is not what its family writes."""
    confidence = manifest.confidence
    return Artifact(
        manifest,
        tuple(load_member(e["family"], contents[e["file"]]) for e in manifest.members),
        None if confidence is None else Confidence.from_bytes(contents[confidence["file"]]),
    )


def load_member(family: str, data: bytes) -> TimingModel:
    """The model of this family from these bytes. Raises ModelError where there is no such family or
    the bytes are not such a model."""
    if family not in MODEL_TYPES:
        raise ModelError(
            f"The model has a member of the family {show(family)}, which this Diode does not "
            "know; update Diode."
        )
    return MODEL_TYPES[family].model_class().from_bytes(data)


def read_member(folder: Path, entry: Mapping[str, Any]) -> bytes:
    """The weight file of one of a manifest's `files`; raises ModelError where it is not the
    file that the manifest describes."""
    path = folder / entry["file"]
    data = read_content(path, MAX_FILE, follow_links=False)
    if len(data) != entry["bytes"]:
        raise ModelError(
            f"The model's file {path} has {len(data)} bytes, its manifest says {entry['bytes']}; "
            "copy or train the model again."
        )
    return check_member(data, entry, folder)
