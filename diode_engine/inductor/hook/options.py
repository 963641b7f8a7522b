"""Diode's keys in torch._inductor.config, and the name DIODE in max_autotune_gemm_backends.

Everything in that module is part of the keys of Inductor's FX-graph cache and of the AOTAutograd
cache. So a kernel that was chosen with one model or option is never used with another, nor where
Diode is off. Users set the options there, with `config.patch` or with `torch.compile(options={…})`;
Diode sets `diode_state`. The backend DIODE stands for those that Diode chooses among, ATEN and
TRITON; where Diode is not active it means that Inductor benchmarks those.
"""

from __future__ import annotations

import importlib
import logging
import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from diode_engine.inductor.choosing.current import report_failure
from diode_engine.inductor.guard import STOCK, guard
from diode_engine.inductor.patches import Patches
from diode_engine.inductor.torch_internals import config_entries
from diode_engine.inductor.torch_internals.versions import part
from diode_engine.inductor.torch_internals.wrapped_functions import USES_BACKEND

log = logging.getLogger(__name__)

KEY = "diode_state"
BACKEND = "DIODE"
_STANDS_FOR = ("ATEN", "TRITON")
_backend_patches = Patches()  # never restored: a program may name the backend without Diode

Value = bool | int | float | str


@dataclass(frozen=True)
class Option:
    """A key in torch._inductor.config, the environment variable for its default, and, for a number
    from 0 up, its largest value. A text is a file's path."""

    name: str
    variable: str
    default: Value
    most: float = 1

    def parse(self, text: str) -> Value:
        """Return the value in the environment variable. Raises ValueError where it is not valid."""
        if isinstance(self.default, bool):
            words = {"1": True, "true": True, "0": False, "false": False, "": False}
            if text.lower() not in words:
                raise ValueError("it must be 0 or 1")
            return words[text.lower()]
        if isinstance(self.default, str):
            return text
        kind = type(self.default)
        try:
            value = kind(text)
        except ValueError:
            number = "a whole number" if kind is int else "a number"
            raise ValueError(f"it must be {number}") from None
        if not 0 <= value <= self.most:
            raise ValueError(f"it must be from 0 to {self.most}")
        return value


CACHE = "diode_cache_predictions"
FROZEN = "diode_frozen_choices"

# docs/integration.md describes each option.
OPTIONS = (
    Option("fast_autotune", "DIODE_FAST_AUTOTUNE", False),
    Option("diode_top_k", "DIODE_TOP_K", 0, most=1000),  # 0: as the choices were installed
    Option("diode_confidence_threshold", "DIODE_CONFIDENCE_THRESHOLD", 0.0),
    Option("diode_fallback_to_autotune", "DIODE_FALLBACK_TO_AUTOTUNE", False),
    Option(CACHE, "DIODE_CACHE_PREDICTIONS", True),
    Option("diode_fusion_aware", "DIODE_FUSION_AWARE", True),
    Option("diode_batch_invariant", "DIODE_BATCH_INVARIANT", False),
    Option(FROZEN, "DIODE_FROZEN_CHOICES", ""),
)


def register(state: Callable[[], str]) -> None:
    """Add the keys, once. The value of `diode_state` is what `state` returns whenever it is read,
    in every thread. The options' defaults are those of the present environment."""
    config = _config()
    if config_entries.has_config_key(config, KEY):
        return
    config_entries.add_config_property(config, KEY, state)
    for option in OPTIONS:
        default = _from_environment(option, os.environ)
        config_entries.add_config_key(config, option.name, default)
    invalidate()


def _from_environment(option: Option, environment: Mapping[str, str]) -> Value:
    text = environment.get(option.variable)
    if text is None:
        return option.default
    try:
        return option.parse(text.strip())
    except ValueError as error:
        log.warning(
            "%s=%s is ignored: %s; %s stays %s.",
            option.variable, text, error, option.name, option.default,
        )  # fmt: skip
        return option.default


def make_unrepeatable_key(*_: Any) -> str:
    """Return a cache key that never occurs again, so that nothing is found under it."""
    return f"unsettled {os.urandom(16).hex()}"


def invalidate() -> None:
    """Make every thread read the state again: torch keeps copies and hashes of its config."""
    config_entries.forget_config_copies(_config(), KEY)


def _config() -> Any:
    return importlib.import_module("torch._inductor.config")


def understand_backend() -> None:
    """Make Inductor understand the backend DIODE, once; after torch._inductor.utils was
    imported."""
    utils: Any = sys.modules["torch._inductor.utils"]
    original = part(utils, USES_BACKEND)
    # Also in modules that have imported the function by its name before.
    for name, module in list(sys.modules.items()):
        if not name.startswith("torch._inductor") or module is None:  # None: it may not be imported
            continue
        if original is not None and vars(module).get(USES_BACKEND) is original:
            _backend_patches.wrap(module, USES_BACKEND, _wrap_use)


def _wrap_use(theirs: Callable[[str], bool]) -> Callable[[str], bool]:
    @guard("a GEMM backend was not looked up", stock=theirs, report=report_failure)
    def uses(backend: str) -> Any:
        return True if backend.upper() in _STANDS_FOR and theirs(BACKEND) else STOCK

    return uses


def uses_backend(backend: str) -> bool:
    """Return whether Inductor uses kernels of this backend in the present compile."""
    utils: Any = sys.modules["torch._inductor.utils"]
    return bool(getattr(utils, USES_BACKEND)(backend))
