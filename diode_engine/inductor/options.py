"""Diode's key in torch._inductor.config.

Whatever is in that module takes part in the keys of Inductor's FX-graph cache and of the
AOTAutograd cache. So a kernel that was chosen under one model is never served under another,
nor where Diode is off.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any

KEY = "diode_state"


def register(state: Callable[[], str]) -> None:
    """Adds the key. Its value is what `state` says whenever it is asked for, in every thread:
    values that are set in this module are visible in one thread only from torch 2.13 on."""
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

    declared: Any = _config_module.Config(default="", value_type=str)
    # from torch 2.13 on an entry wants its name too
    named = len(inspect.signature(_config_module._ConfigEntry.__init__).parameters) > 2
    entry = StateEntry(declared, KEY) if named else StateEntry(declared)  # type: ignore[call-arg]
    config._config[KEY] = entry
    invalidate()


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
