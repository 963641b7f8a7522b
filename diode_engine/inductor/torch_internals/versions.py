"""What differs between the versions of torch that Diode supports (2.10 to 2.15, and later ones)."""

from __future__ import annotations

import sys
from functools import cache
from typing import Any


@cache
def at_least(version: str) -> bool:
    """Return whether torch is of this version or newer."""
    return bool(sys.modules["torch"].__version__ >= version)


def part(owner: Any, name: str) -> Any:
    """Return what a module or class of Inductor has under this name: a function, or the value of an
    option; None where this version has no such thing."""
    return getattr(owner, name, None)


def template_heuristic(uid: str, device_type: str, op_name: str) -> Any:
    """Return the heuristic that makes a template's configs for an op; None where this torch has
    none. Its own module differs between versions; the module of the choices has it in all."""
    choices: Any = sys.modules["torch._inductor.choices"]
    find = part(choices, "get_template_heuristic")
    return find and find(uid, device_type, op_name)


def uuid_of(choices: Any) -> str | None:
    """Return a key of everything that InductorChoices depend on, for cache keys; None before torch
    2.15, where they have none."""
    tell = getattr(choices, "uuid", None)
    return None if tell is None else tell()


def fuses_behind_split_dimensions(config: Any) -> bool:
    """Return whether Inductor fuses after a view that splits a dimension: from torch 2.13 on;
    before, where its option loop_ordering_after_fusion is off."""
    return at_least("2.13") or not config.loop_ordering_after_fusion


def converts_inputs_without_data() -> bool:
    """Return whether Inductor converts inputs without data to the mode with which Dynamo has
    traced; torch 2.10 requires inputs of that mode."""
    return at_least("2.11")


def renders_without_device() -> bool:
    """Return whether a template can be rendered without memory on the device; torch 2.10 allocates
    a kernel's workspace when it is rendered."""
    return at_least("2.11")


def context_initialisers(fake_tensor: Any) -> list[str]:
    """Return the names of the function of torch._subclasses.fake_tensor by which a tensor without
    data on the GPU initialises it: one of these, by torch's version."""
    return [n for n in ("init_gpu_context", "init_cuda_context") if hasattr(fake_tensor, n)]


def static_launchers(config: Any) -> list[str]:
    """Return Inductor's options for a launcher in C++. From torch 2.11 on there are two; one of
    them is an alias of the other and must not be set."""
    own = config.get_config_copy()  # without aliases
    return [n for n in ("use_static_cuda_launcher", "use_static_triton_launcher") if n in own]
