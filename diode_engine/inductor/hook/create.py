"""Diode's choices, made where torch may not be there or may have no Inductor."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from diode_engine.errors import IntegrationError

if TYPE_CHECKING:
    from diode_engine.inductor.choosing.chooser import Predictor
    from diode_engine.inductor.hook.choices import DiodeInductorChoices


def create_diode_choices(
    model_path: str | os.PathLike[str] | None = None,
    device: int | None = None,
    top_k_configs: int = 3,
    enable_fallback: bool = True,
    performance_threshold: float = 1.1,
    *,
    predictor: Predictor | None = None,
) -> DiodeInductorChoices:
    """Choices that are not installed yet: see DiodeInductorChoices, whose arguments and errors
    these are. Raises IntegrationError also where torch cannot be imported or has no Inductor."""
    try:
        from diode_engine.inductor.hook.choices import DiodeInductorChoices
    except ImportError as error:
        raise IntegrationError(
            f"Diode needs torch 2.10 or newer with Inductor and Triton: {error}."
        ) from error
    return DiodeInductorChoices(
        model_path,
        device,
        top_k_configs,
        enable_fallback,
        performance_threshold,
        predictor=predictor,
    )
