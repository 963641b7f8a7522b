"""Diode's keys in torch._inductor.config.

Whatever is in that module takes part in the keys of Inductor's FX-graph cache and of the
AOTAutograd cache. So a kernel that was chosen under one model or option is never served under
another, nor where Diode is off. The options are what a user sets, there, with `config.patch` or
with `torch.compile(options={…})`; `diode_state` is what Diode says of itself.
"""

from __future__ import annotations

import importlib
import inspect
import logging
import os
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cache
from typing import Any

log = logging.getLogger(__name__)

KEY = "diode_state"

Value = bool | int | float


@dataclass(frozen=True)
class Option:
    """A key in torch._inductor.config, the environment variable that sets its default, and its
    least and largest value, where it is a number."""

    name: str
    variable: str
    default: Value
    least: float = 0
    most: float = 1

    def parse(self, text: str) -> Value:
        """The value that the environment gives. Raises ValueError where it is none."""
        if isinstance(self.default, bool):
            words = {"1": True, "true": True, "0": False, "false": False, "": False}
            if text.lower() not in words:
                raise ValueError("it must be 0 or 1")
            return words[text.lower()]
        value = type(self.default)(text)
        if not self.least <= value <= self.most:
            raise ValueError(f"it must be from {self.least} to {self.most}")
        return value


FAST = "fast_autotune"
TOP_K = "diode_top_k"
CONFIDENCE = "diode_confidence_threshold"
FALLBACK = "diode_fallback_to_autotune"
CACHE = "diode_cache_predictions"
FUSION = "diode_fusion_aware"

# What each does is told in docs/integration.md.
OPTIONS = (
    Option(FAST, "DIODE_FAST_AUTOTUNE", False),
    Option(TOP_K, "DIODE_TOP_K", 0, most=1000),  # 0: as the choices were installed
    Option(CONFIDENCE, "DIODE_CONFIDENCE_THRESHOLD", 0.0),
    Option(FALLBACK, "DIODE_FALLBACK_TO_AUTOTUNE", False),
    Option(CACHE, "DIODE_CACHE_PREDICTIONS", True),
    Option(FUSION, "DIODE_FUSION_AWARE", True),
)


@dataclass(frozen=True)
class Options:
    """What is set for the compile under way; numbers beyond an option's bounds count as the
    nearest that it can have."""

    fast: bool
    top_k: int
    confidence: float
    fallback: bool
    cache: bool
    fusion: bool
    deterministic: bool  # Inductor's own: nothing may be benchmarked
    other_backends: bool  # whether others may add kernels to those that Diode chooses

    @classmethod
    def current(cls) -> Options:
        config = _config()
        return cls(
            bool(config.fast_autotune),
            max(0, int(config.diode_top_k)),
            min(1.0, max(0.0, float(config.diode_confidence_threshold))),
            bool(config.diode_fallback_to_autotune),
            bool(config.diode_cache_predictions),
            bool(config.diode_fusion_aware and config.epilogue_fusion),
            bool(config.deterministic),
            bool(config.external_matmul or _other_backends(config.max_autotune_gemm_backends)),
        )


@cache
def _other_backends(backends: str) -> bool:
    names = {name.strip() for name in backends.upper().split(",")}
    return not names <= {"ATEN", "TRITON", "CPP", "DIODE", ""}


def register(state: Callable[[], str]) -> None:
    """Adds the keys, once. The value of `diode_state` is what `state` says whenever it is asked
    for, in every thread: values that are set in that module are visible in one thread only from
    torch 2.13 on. The options' defaults are those of the environment as it is now."""
    from torch.utils import _config_module

    config = _config()
    if KEY in config._config:
        return

    class StateEntry(_config_module._ConfigEntry):
        @property
        def default(self) -> str:
            return state()

        @default.setter
        def default(self, _: Any) -> None:
            """The constructor's; the state is elsewhere."""

        # comes before what a saved config, loaded again, may have set
        env_value_force = default

    # from torch 2.13 on an entry wants its name too
    named = len(inspect.signature(_config_module._ConfigEntry.__init__).parameters) > 2

    def add(kind: Any, name: str, default: Any) -> None:
        declared: Any = _config_module.Config(default=default, value_type=type(default))
        config._config[name] = kind(declared, name) if named else kind(declared)

    add(StateEntry, KEY, "")
    for option in OPTIONS:
        add(_config_module._ConfigEntry, option.name, _from_environment(option, os.environ))
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


def invalidate() -> None:
    """Makes every thread read the state again: torch keeps copies and hashes of its config."""
    config = _config()
    if hasattr(config, "_hash_dirty_var"):  # torch 2.13: one copy a context, in ContextVars
        prefix = config.__name__
        config._hash_dirty_var = ContextVar(f"{prefix}._hash_dirty", default=True)
        config._hash_cache_var = ContextVar(f"{prefix}._hash_cache", default=None)
        config._get_dict_dirty_keys_var = ContextVar(f"{prefix}._dirty_keys", default=None)
        config._get_dict_cache_var = ContextVar(f"{prefix}._dict_cache", default=None)
    else:
        config._is_dirty = True


def _config() -> Any:
    return importlib.import_module("torch._inductor.config")
