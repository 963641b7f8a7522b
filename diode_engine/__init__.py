"""Diode chooses GEMM kernels for torch.compile by a trained model of their times.

Importing this package is all that is needed: from then on `torch.compile(mode="max-autotune")`
takes the kernels that the model for this GPU predicts to be fastest, without benchmarking.
DIODE_DISABLE=1 in the environment switches that off, and where it cannot be (no such GPU, no
model for it, torch older than 2.10, no torch at all) compiles are stock; `get_stats()` says why.

Names are imported when they are first used: neither torch nor numpy comes with the package.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from diode_engine.inductor import install as _install
from diode_engine.version import __version__

if TYPE_CHECKING:
    from diode_engine.errors import DiodeError
    from diode_engine.hardware import Environment, Hardware
    from diode_engine.inductor.choices import DiodeInductorChoices
    from diode_engine.inductor.install import (
        create_diode_choices,
        get_prediction_stats,
        get_stats,
        install_diode_choices,
        uninstall_diode_choices,
    )
    from diode_engine.inductor.stats import profile_predictions
    from diode_engine.problem import Candidate, Problem, Timing

_HOME = {
    "Candidate": "diode_engine.problem",
    "DiodeError": "diode_engine.errors",
    "DiodeInductorChoices": "diode_engine.inductor.choices",
    "Environment": "diode_engine.hardware",
    "Hardware": "diode_engine.hardware",
    "Problem": "diode_engine.problem",
    "Timing": "diode_engine.problem",
    "create_diode_choices": "diode_engine.inductor.install",
    "get_prediction_stats": "diode_engine.inductor.install",
    "get_stats": "diode_engine.inductor.install",
    "install_diode_choices": "diode_engine.inductor.install",
    "profile_predictions": "diode_engine.inductor.stats",
    "uninstall_diode_choices": "diode_engine.inductor.install",
}

__all__ = [
    "Candidate",
    "DiodeError",
    "DiodeInductorChoices",
    "Environment",
    "Hardware",
    "Problem",
    "Timing",
    "__version__",
    "create_diode_choices",
    "get_prediction_stats",
    "get_stats",
    "install_diode_choices",
    "profile_predictions",
    "uninstall_diode_choices",
]


def __getattr__(name: str) -> Any:
    home = _HOME.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(home), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


_install.arrange()
