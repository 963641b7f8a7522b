"""The functions on models that the package itself offers to programs."""

from __future__ import annotations

import os
from typing import Any

from diode_engine.registry.aliases import set_default
from diode_engine.registry.overview import overview
from diode_engine.registry.references import resolve_here
from diode_engine.registry.versions import register, verify


def list_available_models() -> list[dict[str, Any]]:
    """The registered models: the user's, those that Diode ships and those of installed packages,
    as `diode-engine models list --json` has them: model (name@version), hardware, status,
    aliases, efficiency (geometric mean on its held-out problems), taken (whether it is the one
    for its hardware), error (why it cannot be read, else None), …"""
    return [entry.to_dict() for entry in overview().entries]


def register_model(name: str | os.PathLike[str]) -> str:
    """Makes a model the one that is taken for its GPUs. `name` is the folder of a model, which
    is copied into the user's registry, or a model in the registry ("name", "name@version" or an
    alias); where models for several GPUs have the name, it means the one for the GPU of this
    machine. Returns its name@version. This process's compiles use it after the next
    `install_diode_choices()`.

    Raises ModelError where it cannot be loaded, and RegistryError where there is no such model or
    the registry cannot be written.
    """
    model = resolve_here(os.fspath(name))
    if model.source is None:
        return register(model.folder, default=True).reference
    verify(model)
    set_default(model, reason="register_model")
    return model.reference
