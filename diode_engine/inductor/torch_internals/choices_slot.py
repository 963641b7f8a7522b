"""The slot in torch._inductor.virtualized that has Inductor's choices: its default, and the copy of
each thread. A thread without a copy under the slot's key asks the default for one."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

MODULE = "torch._inductor.virtualized"


@dataclass(frozen=True)
class Occupant:
    """What is in the slot."""

    default: Callable[[], Any]  # makes the choices of a thread that has none
    key: str  # the name of the attribute in which a thread keeps them


def occupant() -> Occupant:
    """Return what is in the slot now. Raises AttributeError where this torch has no such slot."""
    slot = _slot()
    return Occupant(slot._default, slot._key)


def occupy(by: Occupant) -> None:
    """Replace what is in the slot."""
    slot = _slot()
    slot._default, slot._key = by.default, by.key


def of_thread(key: str) -> Any:
    """Return this thread's choices under a key; None where it has none."""
    return getattr(sys.modules[MODULE].threadlocal, key, None)


def set_of_thread(key: str, choices: Any) -> None:
    """Set this thread's choices."""
    setattr(sys.modules[MODULE].threadlocal, key, choices)


def present() -> Any:
    """Return the choices that this thread uses now."""
    return _slot()._get_handler()


def _slot() -> Any:
    module: Any = importlib.import_module(MODULE)
    return module._choices
