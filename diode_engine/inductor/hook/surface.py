"""Small functions of the package's public interface: hardware, models, log level."""

from __future__ import annotations

import logging
import os
from typing import Any

from diode_engine import registry
from diode_engine.core.hardware import Hardware, detect
from diode_engine.errors import SeveralModelsError


def get_detected_hardware(device: int | None = None) -> Hardware:
    """The GPU of that index (None: the current one); the processor where torch sees no GPU. GPUs of
    NVIDIA, AMD (ROCm) and Intel (XPU) are described; there are models for NVIDIA's only. Imports
    torch and initialises it for the device. Raises ImportError without torch."""
    return detect(device)


def list_available_models() -> list[dict[str, Any]]:
    """The registered models: the user's, those that Diode ships and those of installed packages,
    as `diode-engine models list --json` has them: model (name@version), hardware, status,
    aliases, efficiency (geometric mean on its held-out problems), taken (whether it is the one
    for its hardware), error (why it cannot be read, else None), …"""
    return [entry.to_dict() for entry in registry.overview().entries]


def register_model(name: str | os.PathLike[str]) -> str:
    """Makes a model the one that is taken for its hardware. `name` is the folder of a model, which
    is copied into the user's registry, or a model in the registry ("name", "name@version" or an
    alias); where models for several GPUs have the name, it means the one for the GPU of this
    machine. Returns its name@version. This process's compiles use it after the next
    `install_diode_choices()`.

    Raises ModelError where it cannot be loaded, and RegistryError where there is no such model or
    the registry cannot be written.
    """
    model = _named(os.fspath(name))
    if model.source is None:
        return registry.register(model.folder, default=True).reference
    registry.verify(model)
    registry.set_default(model, reason="register_model")
    return model.reference


def _named(reference: str) -> registry.ModelVersion:
    try:
        return registry.resolve(reference)
    except SeveralModelsError as several:
        try:
            here = detect()
        except ImportError:  # there is no torch
            raise several from None
        return registry.resolve_for(reference, here.slug)


def set_log_level(level: int | str) -> None:
    """Sets how much Diode logs: a level of the module logging, or its name in any case ("debug").
    Raises ValueError where there is no such level."""
    logging.getLogger("diode_engine").setLevel(level.upper() if isinstance(level, str) else level)
