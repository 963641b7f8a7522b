"""Keys that are added to torch's config modules."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable
from contextvars import ContextVar
from types import SimpleNamespace
from typing import Any


def has_config_key(config: Any, name: str) -> bool:
    """Return whether one of torch's config modules has a key of this name; it is not read."""
    return name in config._config


def find_config_keys(config: Any, *prefixes: str) -> tuple[str, ...]:
    """Return the keys of one of torch's config modules that begin with one of these texts."""
    return tuple(name for name in config._config if name.startswith(prefixes))


def add_config_key(config: Any, name: str, default: Any) -> None:
    """Add a key to one of torch's config modules."""
    _add_entry(config, name, _config_module()._ConfigEntry, default)


class _ReadOnly(str):
    """The value of a read-only key. Unpickling it imports Diode, so that a process that compiles a
    graph for another one, with the config of that, has Diode's keys."""


def add_config_property(config: Any, name: str, value: Callable[[], str]) -> None:
    """Add a read-only key: in every thread its value is what `value` returns at the time. (From
    torch 2.13 on a value that is set in a config module is visible in one thread only.)"""

    class ReadOnlyEntry(_config_module()._ConfigEntry):  # type: ignore[misc]
        @property
        def default(self) -> str:
            return _ReadOnly(value())

        @default.setter
        def default(self, _: Any) -> None:
            """Ignore what the constructor sets."""

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


def forget_config_copies(config: Any, key: str) -> None:
    """Make every thread read the values of a config module again, and that of the read-only `key`
    each time. torch keeps copies and a hash of them, from torch 2.13 on one for each context."""
    if hasattr(config, "_hash_dirty_var"):
        prefix = config.__name__
        dirty = ContextVar[set[str] | None](f"{prefix}._dirty_keys", default=None)
        config._hash_dirty_var = ContextVar(f"{prefix}._hash_dirty", default=True)
        config._hash_cache_var = ContextVar(f"{prefix}._hash_cache", default=None)
        config._get_dict_dirty_keys_var = SimpleNamespace(
            get=dirty.get, set=lambda keys: dirty.set(None if keys is None else {*keys, key})
        )
        config._get_dict_cache_var = ContextVar(f"{prefix}._dict_cache", default=None)
    else:
        config._is_dirty = True
