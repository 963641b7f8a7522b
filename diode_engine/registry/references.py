"""From a model's name, as a person writes it, to the model."""

from __future__ import annotations

import os
import re
from pathlib import Path

from diode_engine.core.hardware import KNOWN, Hardware, detect, find_name, slug_of
from diode_engine.errors import ModelError, NoSuchModelError, RegistryError, SeveralModelsError
from diode_engine.models.artifact import load_manifest
from diode_engine.models.manifest import MANIFEST
from diode_engine.registry.aliases import aliased
from diode_engine.registry.choice import best_for
from diode_engine.registry.sources import ModelVersion, gpus_of_models, list_gpus, list_models

_FOR_GPU = re.compile("(.+)-(?:matmul|gemm)", re.IGNORECASE)  # torch-diode's names of its models


def resolve(reference: str, hardware: str | None = None) -> ModelVersion:
    """The model that is meant by "name@version", "name" (the newest version), an alias such as
    "default", the path of a model's folder or file, or a GPU and what is chosen for it, such as
    "NVIDIA-H100-matmul": the model that is taken for this GPU. With `hardware` (a name or slug),
    only its aliases and models with a record of it count. A slug may stand before: "slug/alias" is
    an alias of this hardware, "slug/name@version" a model in its folder.

    Raises NoSuchModelError where there is none, SeveralModelsError where models for several GPUs
    are meant, RegistryError where two models have one number or an alias points to a model that
    does not exist, ModelError where the file is not a model's.
    """
    if (place := _place(reference)) is not None:
        manifest = load_manifest(place)
        return ModelVersion(manifest.name, 0, place, None, manifest.hardware.slug)
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
    found = [] if version else [m for each in slugs if (m := aliased(name, each, models))]
    if found:
        return _one(found, reference, models)
    if slug is not None:
        models = [m for m in models if slug in m.slugs]
    named = [m for m in models if m.name == name and (not slash or m.slug == within)]
    if version:
        named = [m for m in named if str(m.version) == version]
    elif named:
        named = _newest(named, list_gpus(named) if slug is None else [slug])
    elif not slash and (gpu := _FOR_GPU.fullmatch(name)):
        taken = _taken_for(gpu[1])
        named = [m for m in models if m == taken]
    meant = reference if slug is None else f"{reference} for {slug}"
    return _one([m for m in named if m.slug == slug] or named, meant, models)


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


def gpu_named(reference: str) -> Hardware | None:
    """The GPU that a model's name has in it, as "NVIDIA-H100-matmul" and "nvidia-h200/default" do:
    one that models have a record of, else one that Diode knows. None where there is none in it."""
    if _place(reference) is not None:
        return None
    within, slash, name = reference.rpartition("/")
    found = _FOR_GPU.fullmatch(name)
    if slash:
        return _find_gpu(within)
    return None if found is None else _find_gpu(found[1])


def _find_gpu(name: str) -> Hardware | None:
    for known in (gpus_of_models(), KNOWN):
        if (meant := find_name(name, known)) is not None:
            return known[meant]
    return None


def _taken_for(name: str) -> ModelVersion:
    """The model that is taken for the GPU that is meant by this name. Raises NoSuchModelError where
    there is none."""
    gpu = _find_gpu(name)
    if gpu is not None and (match := best_for(gpu)) is not None:
        return match.model
    known = ", ".join(sorted(gpus_of_models())) or "no GPU"
    raise NoSuchModelError(
        f"There is no model for {name}; there are models for {known}. On a machine with that GPU, "
        "`diode-engine tune` makes one."
    )


def _place(reference: str) -> Path | None:
    """The path, if it is a model's folder, or a file with a suffix; else None."""
    try:
        path = Path(reference).expanduser()
        is_model = (path / MANIFEST).is_file() or (bool(path.suffix) and path.is_file())
        return path if is_model else None
    except (OSError, RuntimeError, ValueError):  # not a path: too long, or of an unknown user
        return None


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
    folder = f" (the folder of this name has no {MANIFEST})" if os.path.isdir(reference) else ""  # noqa: PTH112
    raise NoSuchModelError(f"There is no model {reference}{folder}; registered are: {known}.")


def _identity(model: ModelVersion) -> str:
    try:
        return model.manifest.identity
    except ModelError:
        return str(model.folder)
