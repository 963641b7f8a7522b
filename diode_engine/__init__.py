"""Diode chooses the kernels of matrix products in torch.compile by a trained model of their times.

Importing this package is all that is needed: from then on `torch.compile(mode="max-autotune")`
takes the kernels that the model for this GPU predicts to be fastest, without benchmarking.
DIODE_DISABLE=1 in the environment switches that off. Where Diode cannot choose (no GPU, no model
for this one, torch older than 2.10, no torch at all), torch.compile works as it does without Diode,
and `get_stats()` says why.

The names below are imported when they are first used, so that importing the package imports neither
torch nor numpy.
"""

from __future__ import annotations

import importlib
import logging
import os
from typing import TYPE_CHECKING, Any

from diode_engine.inductor.hook.installation import INSTALLATION as _INSTALLATION
from diode_engine.version import __version__ as __version__

if TYPE_CHECKING:
    from diode_engine.choosing.stats import profile_predictions as profile_predictions
    from diode_engine.core.candidate import Candidate as Candidate
    from diode_engine.core.hardware import Environment as Environment
    from diode_engine.core.hardware import Hardware as Hardware
    from diode_engine.core.hardware import get_detected_hardware as get_detected_hardware
    from diode_engine.core.problem import Problem as Problem
    from diode_engine.core.timing import Timing as Timing
    from diode_engine.errors import DiodeError as DiodeError
    from diode_engine.inductor.hook.choices import DiodeInductorChoices as DiodeInductorChoices
    from diode_engine.inductor.hook.fingerprint import compare_ranks as compare_ranks
    from diode_engine.inductor.hook.integration import BaseIntegration as BaseIntegration
    from diode_engine.inductor.hook.integration import IntegrationRegistry as IntegrationRegistry
    from diode_engine.inductor.hook.integration import ModelPointer as ModelPointer
    from diode_engine.inductor.hook.integrations import MatmulIntegration as MatmulIntegration
    from diode_engine.inductor.hook.public import create_diode_choices as create_diode_choices
    from diode_engine.inductor.hook.public import (
        create_matmul_integration as create_matmul_integration,
    )
    from diode_engine.inductor.hook.public import diode_choices as diode_choices
    from diode_engine.inductor.hook.public import (
        discover_and_register_integrations as discover_and_register_integrations,
    )
    from diode_engine.inductor.hook.public import get_integration_status as get_integration_status
    from diode_engine.inductor.hook.public import get_prediction_stats as get_prediction_stats
    from diode_engine.inductor.hook.public import get_stats as get_stats
    from diode_engine.inductor.hook.public import install_diode_choices as install_diode_choices
    from diode_engine.inductor.hook.public import integrate_all as integrate_all
    from diode_engine.inductor.hook.public import register_integration as register_integration
    from diode_engine.inductor.hook.public import uninstall_diode_choices as uninstall_diode_choices
    from diode_engine.problems.predicted_choice import predict_choice as predict_choice
    from diode_engine.registry.overview import list_available_models as list_available_models
    from diode_engine.registry.versions import register_model as register_model
    from diode_engine.reports.watching import report as report

_NAMES = {
    "choosing.stats": ("profile_predictions",),
    "core.candidate": ("Candidate",),
    "core.hardware": ("Environment", "Hardware", "get_detected_hardware"),
    "core.problem": ("Problem",),
    "core.timing": ("Timing",),
    "errors": ("DiodeError",),
    "inductor.hook.choices": ("DiodeInductorChoices",),
    "inductor.hook.fingerprint": ("compare_ranks",),
    "inductor.hook.integration": ("BaseIntegration", "IntegrationRegistry", "ModelPointer"),
    "inductor.hook.integrations": ("MatmulIntegration",),
    "inductor.hook.public": (
        "create_diode_choices", "create_matmul_integration", "diode_choices",
        "discover_and_register_integrations", "get_integration_status", "get_prediction_stats",
        "get_stats", "install_diode_choices", "integrate_all", "register_integration",
        "uninstall_diode_choices",
    ),
    "problems.predicted_choice": ("predict_choice",),
    "registry.overview": ("list_available_models",),
    "registry.versions": ("register_model",),
    "reports.watching": ("report",),
}  # fmt: skip
_HOME = {name: f"diode_engine.{module}" for module, names in _NAMES.items() for name in names}

__all__ = ["__version__", "set_log_level", *_HOME]


def set_log_level(level: int | str) -> None:
    """Sets how much Diode logs: a level of the module logging, or its name in any case ("debug").
    Raises ValueError where there is no such level."""
    logging.getLogger(__name__).setLevel(level.upper() if isinstance(level, str) else level)


def __getattr__(name: str) -> Any:
    home = _HOME.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(home), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


importlib.import_module("diode_engine.inductor.hook.integrations")  # registers Diode's own
_INSTALLATION.prepare()
if os.environ.get("DIODE_FEEDBACK"):
    importlib.import_module("diode_engine.feedback").install()
if os.environ.get("DIODE_REPORT"):
    importlib.import_module("diode_engine.inductor.hook.product_notes").begin()
