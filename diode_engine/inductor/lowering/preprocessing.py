"""Functions that Inductor calls with the complete list of choices of one op, before it times them.
Everybody may add to the list of these functions, so only Diode's own are removed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch._inductor.select_algorithm import get_algorithm_selector_cache

Choices = list[Any]


def add(function: Callable[[Choices], Choices]) -> None:
    """Add the function at the end, once; others may have cleared all such functions."""
    functions = get_algorithm_selector_cache().preprocessing_fns
    if function not in functions:
        functions.append(function)


def remove(function: Callable[[Choices], Choices]) -> None:
    """Remove the function."""
    functions = get_algorithm_selector_cache().preprocessing_fns
    if function in functions:
        functions.remove(function)
