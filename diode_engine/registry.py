"""Trained models: which there are, what each came from, and which one serves a device.

Models lie under two roots, those that Diode ships and the user's own, as

    <root>/<hardware slug>/<name>/<version>/manifest.json
    <root>/<hardware slug>/aliases.json              {"default": "<name>@<version>"}

A version is a whole number and is never written over. The alias "default" names the model that
is taken for a device of that hardware; the user's goes before the shipped one, and without
either the newest model is taken.
"""

from __future__ import annotations

import json
import logging
import os
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from diode_engine import paths
from diode_engine.errors import ModelError, RegistryError
from diode_engine.hardware import Hardware
from diode_engine.models.artifact import (
    MANIFEST,
    Manifest,
    check_name,
    load_artifact,
    load_manifest,
    read_member,
    write_folder,
)
from diode_engine.models.predictor import Predictor

log = logging.getLogger(__name__)

DEFAULT = "default"
ALIASES = "aliases.json"
# Of Hardware.likeness: an H100 SXM is 0.56 like an H200, another generation 0.
LEAST_LIKENESS = 0.5


@dataclass(frozen=True)
class ModelVersion:
    """One registered model."""

    name: str
    version: int
    folder: Path
    shipped: bool
    slug: str  # of the hardware

    @cached_property
    def manifest(self) -> Manifest:
        """Raises ModelError where it is missing, malformed, foreign or too new."""
        return load_manifest(self.folder)

    @property
    def reference(self) -> str:
        """name@version: what `resolve` takes."""
        return f"{self.name}@{self.version}"


@dataclass(frozen=True)
class Match:
    """The model chosen for a device, and how alike the device is to the one it was trained on
    (1: the same)."""

    model: ModelVersion
    likeness: float


def roots() -> tuple[tuple[Path, bool], ...]:
    """(root, whether it is the shipped one), the user's first."""
    return (
        (paths.data_dir() / "models", False),
        (paths.shipped_dir() / "trained_models", True),
    )


def list_models() -> list[ModelVersion]:
    """Every registered model, by hardware, name and version. Their manifests have not been
    looked at."""
    found = [version for root, shipped in roots() for version in _scan(root, shipped)]
    return sorted(found, key=lambda m: (m.slug, m.name, m.version, m.shipped))


def _scan(root: Path, shipped: bool) -> Iterator[ModelVersion]:
    for manifest in root.glob(f"*/*/*/{MANIFEST}"):
        folder = manifest.parent
        if folder.name.isascii() and folder.name.isdigit() and not folder.is_symlink():
            slug, name = folder.parent.parent.name, folder.parent.name
            yield ModelVersion(name, int(folder.name), folder, shipped, slug)


def register(folder: Path, name: str | None = None, *, default: bool = False) -> ModelVersion:
    """Copies the model in `folder` into the user's registry as the next version of `name` (its
    own name if None), and with `default` makes it the one that is taken for its hardware.

    Raises ModelError where it is not a model that can be loaded, RegistryError where the
    registry cannot be written.
    """
    manifest = load_artifact(folder).manifest
    name = check_name(name or manifest.name)
    contents = {entry["file"]: read_member(folder, entry) for entry in manifest.files}
    described = {**manifest.to_dict(), "name": name}
    text = json.dumps(described, indent=1, ensure_ascii=False) + "\n"
    contents[MANIFEST] = text.encode()
    slug = manifest.hardware.slug
    root = roots()[0][0]
    taken = [m.version for m in list_models() if (m.slug, m.name) == (slug, name)]
    version = max(taken, default=0)
    while True:
        version += 1
        target = root / slug / name / str(version)
        try:
            write_folder(target, contents)
            break
        except ModelError as error:
            if not (target / MANIFEST).exists():  # else another process took the number
                raise RegistryError(str(error)) from None
    model = ModelVersion(name, version, target, False, slug)
    if default:
        set_default(model)
    return model


def set_default(model: ModelVersion) -> None:
    """Makes this the model that is taken for its hardware. Raises RegistryError where the
    registry cannot be written."""
    folder = roots()[0][0] / model.slug
    try:
        folder.mkdir(parents=True, exist_ok=True)
        handle, made = tempfile.mkstemp(prefix=".unfinished-", dir=folder)
        with os.fdopen(handle, "w") as file:
            json.dump({DEFAULT: model.reference}, file)
        Path(made).replace(folder / ALIASES)
    except OSError as error:
        raise RegistryError(f"The registry {folder} cannot be written: {error.strerror}.") from None


def _default_of(root: Path, slug: str) -> str | None:
    path = root / slug / ALIASES
    try:
        reference = json.loads(path.read_text())[DEFAULT]
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        reference = None
    if not isinstance(reference, str):
        raise RegistryError(f"{path} is not an alias file; remove it, or register a default again.")
    return reference


def resolve(reference: str) -> ModelVersion:
    """The model that is meant: "name@version", "name" (the newest version), "default"
    (where only one hardware has one), or the path of a model's folder.

    Raises RegistryError where there is none, or more than one.
    """
    folder = Path(reference).expanduser()
    if (folder / MANIFEST).is_file():
        manifest = load_manifest(folder)
        return ModelVersion(manifest.name, 0, folder, False, manifest.hardware.slug)
    models = list_models()
    if reference == DEFAULT:
        slugs = {m.slug for m in models}
        defaults = [m for slug in sorted(slugs) if (m := default_for(slug)) is not None]
        return _one(defaults, reference, models)
    name, _, version = reference.partition("@")
    named = [m for m in models if m.name == name]
    if version:
        named = [m for m in named if str(m.version) == version]
    elif named:
        newest = max(m.version for m in named)
        named = [m for m in named if m.version == newest]
    return _one(named, reference, models)


def _one(found: list[ModelVersion], reference: str, models: list[ModelVersion]) -> ModelVersion:
    if len(found) == 1:
        return found[0]
    if found:
        where = ", ".join(str(m.folder) for m in found)
        raise RegistryError(
            f"{reference} means more than one model ({where}); give the folder of the one."
        )
    known = ", ".join(m.reference for m in models) or "none"
    raise RegistryError(f"There is no model {reference}; registered are: {known}.")


def default_for(slug: str) -> ModelVersion | None:
    """The model that the alias "default" names for this hardware, the user's alias before the
    shipped one; None where there is no alias. Raises RegistryError where it names none."""
    for root, shipped in roots():
        reference = _default_of(root, slug)
        if reference is None:
            continue
        found = [m for m in list_models() if m.slug == slug and m.reference == reference]
        # A version number is given once over both roots, unless Diode ships it later: then
        # the alias means the one beside it.
        found.sort(key=lambda m: m.shipped is not shipped)
        if not found:
            raise RegistryError(
                f"The default model for {slug} is {reference}, which does not exist; register "
                "a default again."
            )
        return found[0]
    return None


def best_for(hardware: Hardware, purpose: str = "gemm") -> Match | None:
    """The model for this hardware: the default where it has one, else the newest; of other
    hardware the most alike, if it is at least LEAST_LIKENESS; else None. A model that cannot
    be read is passed over with a warning."""
    candidates: list[tuple[float, bool, str, bool, int, ModelVersion]] = []
    defaults: dict[str, ModelVersion | None] = {}
    for model in list_models():
        try:
            manifest = model.manifest
            if model.slug not in defaults:
                defaults[model.slug] = default_for(model.slug)
        except (ModelError, RegistryError) as error:
            log.warning("The model %s is passed over: %s", model.folder, error)
            defaults.setdefault(model.slug, None)
            continue
        likeness = hardware.likeness(manifest.hardware)
        if manifest.purpose == purpose and likeness >= LEAST_LIKENESS:
            is_default = defaults[model.slug] == model
            candidates.append(
                (likeness, is_default, manifest.created, not model.shipped, model.version, model)
            )
    if not candidates:
        return None
    best = max(candidates, key=lambda entry: entry[:-1])
    return Match(best[-1], best[0])


def load_predictor(hardware: Hardware, purpose: str = "gemm") -> Predictor | None:
    """The predictor for this hardware, as `best_for` chooses it, or None; says so in the log
    where the model was trained on other hardware. Raises ModelError where its weights are
    corrupt."""
    match = best_for(hardware, purpose)
    if match is None:
        return None
    if match.likeness < 1:
        log.info(
            "There is no model for %s; %s, trained on %s, is taken (likeness %.2f).",
            hardware.name, match.model.reference, match.model.manifest.hardware.name,
            match.likeness,
        )  # fmt: skip
    return Predictor.load(match.model.folder)
