"""The functions on models that the package itself offers to programs."""

from __future__ import annotations

import os
from typing import Any

from diode_engine.registry.aliases import set_default
from diode_engine.registry.overview import overview
from diode_engine.registry.references import gpu_named, resolve_here
from diode_engine.registry.versions import register, verify


def list_available_models() -> list[dict[str, Any]]:
    """The registered models: the user's, those that Diode ships and those of installed packages,
    as `diode-engine models list --json` has them: model (name@version), hardware, status,
    aliases, efficiency (geometric mean on its held-out problems), taken (whether it is the one
    for its hardware), error (why it cannot be read, else None), …"""
    return [entry.to_dict() for entry in overview().entries]


def register_model(name: str | os.PathLike[str]) -> str:
    """Makes a model the one that is taken for its GPUs. `name` is the folder or file of a model,
    which is copied into the user's registry, or a model in the registry ("name", "name@version" or
    an alias); where models for several GPUs have the name, it means the one for the GPU of this
    machine. Where a GPU is in the name ("NVIDIA-H100-matmul"), the model is taken for this GPU
    alone. Returns its name@version. This process's compiles use it after the next
    `install_diode_choices()`.

    Raises ModelError where it cannot be loaded, and RegistryError where there is no such model or
    the registry cannot be written.
    """
    reference = os.fspath(name)
    model, gpu = resolve_here(reference), gpu_named(reference)
    if model.source is None:
        return register(model.folder, default=True).reference
    verify(model)
    slug = gpu.slug if gpu is not None and gpu.slug in model.slugs else None
    set_default(model, slug, reason="register_model")
    return model.reference
