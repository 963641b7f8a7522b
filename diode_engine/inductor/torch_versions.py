"""What differs between the versions of torch that Diode supports (2.10 to 2.15, and later ones).

No other code in Diode asks which version of torch is installed, or whether a part of Inductor
exists.
"""

from __future__ import annotations

import importlib
import inspect
import sys
from collections.abc import Callable
from contextvars import ContextVar
from functools import cache
from typing import Any

# The method of InductorChoices that is asked which kernels are to be rendered.
HOOK = "_finalize_template_configs"


def hook_of(choices: type) -> Any:
    """The hook of this class of InductorChoices; None before torch 2.10, which does not ask for
    choices."""
    return getattr(choices, HOOK, None)


@cache
def at_least(version: str) -> bool:
    """Whether torch is of this version or newer."""
    return bool(sys.modules["torch"].__version__ >= version)


def part(owner: Any, name: str) -> Any:
    """What a module or class of Inductor has under this name: a function, or the value of an
    option; None where this version has no such thing."""
    return getattr(owner, name, None)


def template_heuristic(uid: str, device_type: str, op_name: str) -> Any:
    """The heuristic that makes a template's configs for an op; None where this torch has none. Its
    own module differs between versions; the module of the choices has it in all."""
    choices: Any = sys.modules["torch._inductor.choices"]
    find = part(choices, "get_template_heuristic")
    return find and find(uid, device_type, op_name)


def uuid_of(choices: Any) -> str | None:
    """A key of everything that InductorChoices depend on, for cache keys; None before torch 2.15,
    where they have none."""
    tell = getattr(choices, "uuid", None)
    return None if tell is None else tell()


def has_config_key(config: Any, name: str) -> bool:
    """Whether one of torch's config modules has a key of this name; it is not read."""
    return name in config._config


def add_config_key(config: Any, name: str, default: Any) -> None:
    """Adds a key to one of torch's config modules."""
    kind = _config_module()._ConfigEntry
    _add_entry(config, name, kind, default)


def add_config_property(config: Any, name: str, value: Callable[[], str]) -> None:
    """Adds a read-only key: in every thread its value is what `value` returns at the time. (From
    torch 2.13 on a value that is set in a config module is visible in one thread only.)"""

    class ReadOnlyEntry(_config_module()._ConfigEntry):  # type: ignore[misc]
        @property
        def default(self) -> str:
            return value()

        @default.setter
        def default(self, _: Any) -> None:
            """Ignores what the constructor sets."""

        # torch prefers this to a value that loading a saved config has set.
        env_value_force = default

    _add_entry(config, name, ReadOnlyEntry, "")


def _add_entry(config: Any, name: str, kind: Any, default: Any) -> None:
    declared = _config_module().Config(default=default, value_type=type(default))
    # From torch 2.13 on, the constructor of an entry takes its name too.
    named = len(inspect.signature(kind.__init__).parameters) > 2
    config._config[name] = kind(declared, name) if named else kind(declared)


def _config_module() -> Any:
    return importlib.import_module("torch.utils._config_module")


def forget_config_copies(config: Any) -> None:
    """Makes every thread read the values of a config module again. torch keeps copies and a hash of
    them; from torch 2.13 on one copy for each context, in ContextVars."""
    if hasattr(config, "_hash_dirty_var"):
        prefix = config.__name__
        config._hash_dirty_var = ContextVar(f"{prefix}._hash_dirty", default=True)
        config._hash_cache_var = ContextVar(f"{prefix}._hash_cache", default=None)
        config._get_dict_dirty_keys_var = ContextVar(f"{prefix}._dirty_keys", default=None)
        config._get_dict_cache_var = ContextVar(f"{prefix}._dict_cache", default=None)
    else:
        config._is_dirty = True


def fuses_behind_split_dimensions(config: Any) -> bool:
    """Whether Inductor fuses after a view that splits a dimension: from torch 2.13 on; before,
    where its option loop_ordering_after_fusion is off."""
    return at_least("2.13") or not config.loop_ordering_after_fusion


def converts_inputs_without_data() -> bool:
    """Whether Inductor converts inputs without data to the mode with which Dynamo has traced; torch
    2.10 requires inputs of that mode."""
    return at_least("2.11")


def renders_without_device() -> bool:
    """Whether a template can be rendered without memory on the device; torch 2.10 allocates a
    kernel's workspace when it is rendered."""
    return at_least("2.11")


def context_initialisers(fake_tensor: Any) -> list[str]:
    """The names of the function of torch._subclasses.fake_tensor by which a tensor without data on
    the GPU initialises it: one of these, by torch's version."""
    return [n for n in ("init_gpu_context", "init_cuda_context") if hasattr(fake_tensor, n)]


def static_launchers(config: Any) -> list[str]:
    """Inductor's options for a launcher in C++. From torch 2.11 on there are two; one of them is an
    alias of the other and must not be set."""
    entries = config._config
    names = ("use_static_cuda_launcher", "use_static_triton_launcher")
    return [n for n in names if n in entries and entries[n].alias is None]
