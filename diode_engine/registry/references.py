"""From a model's name, as a person writes it, to the model."""

from __future__ import annotations

from pathlib import Path

from diode_engine.core.hardware import detect, find_name
from diode_engine.errors import ModelError, NoSuchModelError, RegistryError, SeveralModelsError
from diode_engine.models.artifact import load_manifest
from diode_engine.models.manifest import MANIFEST
from diode_engine.registry.aliases import alias_targets
from diode_engine.registry.sources import ModelVersion, list_models


def resolve(reference: str, hardware: str | None = None) -> ModelVersion:
    """The model that is meant by "name@version", "name" (the newest version), an alias such as
    "default", or the path of a model's folder. With `hardware` (a name or slug), only models for it
    count.

    Raises NoSuchModelError where there is none, SeveralModelsError where models for several GPUs
    are meant, RegistryError where two models have one number or an alias points to a model that
    does not exist.
    """
    if (folder := _folder(reference)) is not None:
        manifest = load_manifest(folder)
        return ModelVersion(manifest.name, 0, folder, None, manifest.hardware.slug)
    models = list_models()
    if hardware is not None:
        meant = find_name(hardware, {m.slug for m in models})
        models = [m for m in models if m.slug == meant]
    name, _, version = reference.partition("@")
    if not version and (found := _aliased(name, models)):
        return _one(found, reference, models)
    named = [m for m in models if m.name == name]
    if version:
        named = [m for m in named if str(m.version) == version]
    else:  # the newest one for each GPU
        newest = {m.slug: m.version for m in sorted(named, key=lambda m: m.version)}
        named = [m for m in named if m.version == newest[m.slug]]
    return _one(named, reference, models)


def resolve_for(reference: str, hardware: str | None) -> ModelVersion:
    """As `resolve`; where models for several GPUs have the name, the one for this hardware (its
    name or slug), else another GPU's."""
    if hardware is None:
        return resolve(reference)
    try:
        return resolve(reference, hardware)
    except NoSuchModelError:
        return resolve(reference)


def resolve_here(reference: str, hardware: str | None = None) -> ModelVersion:
    """As `resolve`; where models for several GPUs have the name and `hardware` is not given, the
    one for the GPU of this machine. Raises SeveralModelsError where there is none for it."""
    try:
        return resolve(reference, hardware)
    except SeveralModelsError as several:
        try:
            here = detect()
        except ImportError:  # there is no torch
            raise several from None
        return resolve_for(reference, here.slug)


def _folder(reference: str) -> Path | None:
    """The path, if it is a model's folder; else None."""
    try:
        folder = Path(reference).expanduser()
        return folder if (folder / MANIFEST).is_file() else None
    except (OSError, RuntimeError):  # not a path: too long, or in the home of an unknown user
        return None


def _aliased(alias: str, models: list[ModelVersion]) -> list[ModelVersion]:
    out = []
    for slug in sorted({m.slug for m in models}):
        for _, found in alias_targets(alias, slug, models):
            if isinstance(found, RegistryError):
                raise found
            out.append(found)
            break
    return out


def _one(found: list[ModelVersion], reference: str, models: list[ModelVersion]) -> ModelVersion:
    slugs = dict.fromkeys(m.slug for m in found)
    if len(slugs) > 1:
        raise SeveralModelsError(
            f"There is a model {reference} for each of these GPUs: {', '.join(slugs)}. Name one "
            "GPU (in a command with --hardware), or give the path of the model's folder.",
            tuple(slugs),
        )
    # One model may lie in several sources, but two models may also have been given one number.
    if len(found) == 1 or (found and len({_identity(m) for m in found}) == 1):
        return found[0]
    if found:
        where = ", ".join(str(m.folder) for m in found)
        raise RegistryError(
            f"{reference} means more than one model ({where}); give the folder of one of them."
        )
    known = ", ".join(dict.fromkeys(m.reference for m in models)) or "none"
    raise NoSuchModelError(f"There is no model {reference}; registered are: {known}.")


def _identity(model: ModelVersion) -> str:
    try:
        return model.manifest.identity
    except ModelError:
        return str(model.folder)
