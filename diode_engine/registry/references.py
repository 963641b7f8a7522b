"""From a model's name, as a person writes it, to the model."""

from __future__ import annotations

import contextlib
import re
from pathlib import Path

from diode_engine.core.hardware import Hardware, slug_of
from diode_engine.errors import ModelError, NoSuchModelError, RegistryError, SeveralModelsError
from diode_engine.models.artifact import load_manifest
from diode_engine.models.manifest import MANIFEST
from diode_engine.registry.aliases import alias_targets
from diode_engine.registry.choice import best_for
from diode_engine.registry.sources import ModelVersion, list_models

_FOR_GPU = re.compile("(.+)-(?:matmul|gemm)", re.IGNORECASE)  # torch-diode's names of its models


def resolve(reference: str, hardware: str | None = None) -> ModelVersion:
    """The model that is meant by "name@version", "name" (the newest version), an alias such as
    "default", the path of a model's folder or file, or a GPU and what is chosen for it, such as
    "NVIDIA-H100-matmul": the model that is taken for this GPU. With `hardware` (a name or slug),
    only models for it count.

    Raises NoSuchModelError where there is none, SeveralModelsError where models for several GPUs
    are meant, RegistryError where two models have one number or an alias points to a model that
    does not exist, ModelError where the file is not a model's.
    """
    if (place := _place(reference)) is not None:
        manifest = load_manifest(place)
        return ModelVersion(manifest.name, 0, place, None, manifest.hardware.slug)
    models = list_models()
    if hardware is not None:
        models = [m for m in models if m.slug == slug_of(hardware)]
    name, _, version = reference.partition("@")
    if not version and (found := _aliased(name, models)):
        return _one(found, reference, models)
    named = [m for m in models if m.name == name]
    if version:
        named = [m for m in named if str(m.version) == version]
    elif named:
        newest = max(m.version for m in named)
        named = [m for m in named if m.version == newest]
    elif gpu := _FOR_GPU.fullmatch(name):
        return _taken_for(gpu[1], models)
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


def _place(reference: str) -> Path | None:
    """The path, if it is a model's folder, or a file with a suffix; else None."""
    try:
        path = Path(reference).expanduser()
        is_model = (path / MANIFEST).is_file() or (bool(path.suffix) and path.is_file())
        return path if is_model else None
    except (OSError, RuntimeError, ValueError):  # not a path: too long, or of an unknown user
        return None


def _taken_for(gpu: str, models: list[ModelVersion]) -> ModelVersion:
    """The model that is taken for the GPU whose name, or the beginning of whose name, this is (with
    or without its maker). Raises NoSuchModelError where there is no model for it."""
    words, there = slug_of(gpu).split("-"), dict[str, Hardware]()
    for model in models:
        name = model.slug.split("-")
        with contextlib.suppress(ModelError):  # a damaged one, which is reported where it is taken
            there[model.slug] = hardware = model.manifest.hardware
            named = words in (name[: len(words)], name[1 : len(words) + 1])
            if named and (match := best_for(hardware)):
                return match.model
    known = ", ".join(hardware.name for hardware in there.values()) or "no GPU"
    raise NoSuchModelError(
        f"There is no model for {gpu}; there are models for {known}. On a machine with that GPU, "
        "`diode-engine tune` makes one."
    )


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
