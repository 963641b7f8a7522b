"""From a model's name, as a person writes it, to the model."""

from __future__ import annotations

from pathlib import Path

from diode_engine.core.hardware import detect, find_name, slug_of
from diode_engine.errors import ModelError, NoSuchModelError, RegistryError, SeveralModelsError
from diode_engine.models.artifact import load_manifest
from diode_engine.models.manifest import MANIFEST
from diode_engine.registry.aliases import alias_targets
from diode_engine.registry.sources import ModelVersion, list_gpus, list_models


def resolve(reference: str, hardware: str | None = None) -> ModelVersion:
    """The model that is meant by "name@version", "name" (the newest version), an alias such as
    "default", or the path of a model's folder. With `hardware` (a name or slug), only its aliases
    and models with a record of it count. A slug may stand before: "slug/alias" is an alias of this
    hardware, "slug/name@version" a model in its folder.

    Raises NoSuchModelError where there is none, SeveralModelsError where models for several GPUs
    are meant, RegistryError where two models have one number or an alias points to a model that
    does not exist.
    """
    if (folder := _folder(reference)) is not None:
        manifest = load_manifest(folder)
        return ModelVersion(manifest.name, 0, folder, None, manifest.hardware.slug)
    models = list_models()
    within, slash, wanted = reference.rpartition("/")
    name, _, version = wanted.partition("@")
    slug = None
    if hardware is not None:
        slug = find_name(hardware, list_gpus(models)) or slug_of(hardware)
    if slash:
        slugs = [within] if within and slug_of(within) == within else []
    else:
        slugs = list_gpus(models) if slug is None else [slug]
    if not version and (found := _aliased(name, slugs, models)):
        return _one(found, reference, models)
    if slug is not None:
        models = [m for m in models if slug in m.slugs]
    named = [m for m in models if m.name == name and (not slash or m.slug == within)]
    if version:
        named = [m for m in named if str(m.version) == version]
    elif named:
        named = _newest(named, list_gpus(named) if slug is None else [slug])
    return _one([m for m in named if m.slug == slug] or named, reference, models)


def _newest(models: list[ModelVersion], slugs: list[str]) -> list[ModelVersion]:
    """The newest of the models for each of these GPUs, each once."""
    found: dict[ModelVersion, None] = {}
    for slug in slugs:
        there = [m for m in models if slug in m.slugs]
        newest = max(m.version for m in there)
        found |= dict.fromkeys(m for m in there if m.version == newest)
    return list(found)


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


def _aliased(alias: str, slugs: list[str], models: list[ModelVersion]) -> list[ModelVersion]:
    out = []
    for slug in slugs:
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
