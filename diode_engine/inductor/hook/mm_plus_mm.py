"""Keeps a sum of two products from becoming another program than that of plain torch.compile.

Under max-autotune Inductor makes one op of `a @ b + c @ d`, mm_plus_mm, before it lowers anything.
It has a kernel for it only where both products have the same sizes; else it computes two products
and a sum. Plain torch.compile calls the library's addmm with the first product as its addend, or
leaves the sum to the pointwise ops behind it. Where Diode chooses, it becomes one op only where
Diode would take one of Triton's kernels for it.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from torch._inductor.fx_passes import post_grad

from diode_engine.core.operators import MM_PLUS_MM
from diode_engine.errors import IntegrationError
from diode_engine.inductor.choosing import search
from diode_engine.inductor.choosing.compile_options import is_batch_invariant
from diode_engine.inductor.choosing.current import chooser_for, report_failure
from diode_engine.inductor.choosing.outside_graph import choose_outside_graph
from diode_engine.inductor.choosing.product_chooser import ProductChooser
from diode_engine.inductor.guard import STOCK, guard
from diode_engine.inductor.lowering.candidates import problem_from
from diode_engine.inductor.patches import Patches
from diode_engine.inductor.torch_internals.versions import part
from diode_engine.inductor.torch_internals.wrapped_functions import IS_SUM

_OPERANDS = ("mat1", "mat2", "mat3", "mat4")


def check_place() -> None:
    """Find the condition. Raises IntegrationError where this torch has no such pattern."""
    if not _patterns():
        raise IntegrationError("this torch has no pattern for sums of products.")


def apply(patches: Patches) -> None:
    """Wrap the condition under which Inductor makes one op of a sum."""
    for pattern in _patterns():
        patches.wrap(pattern, "extra_check", _wrap)


def _patterns() -> list[Any]:
    condition = part(post_grad, IS_SUM)
    passes = part(post_grad, "pass_patterns") or ()
    found = [e for each in passes for entries in each.patterns.values() for e in entries]
    return [
        entry for entry in found if condition and inspect.unwrap(entry.extra_check) is condition
    ]


def _wrap(theirs: Callable[[Any], bool]) -> Callable[[Any], bool]:
    @guard("a sum of products was not decided", stock=theirs, report=report_failure)
    def becomes_one_op(match: Any) -> Any:
        operands = [match.kwargs[name].meta.get("val") for name in _OPERANDS]
        chooser = None if operands[0] is None else chooser_for(operands[0].device)
        if chooser is None or not theirs(match):
            return STOCK
        return _should_be_one_op(chooser, operands)

    return becomes_one_op


def _should_be_one_op(chooser: ProductChooser, operands: list[Any]) -> bool:
    """Return whether a kernel that is not the library's would be taken for the sum; True also where
    the program has changed Inductor's search. `operands` are the four matrices, without data."""
    a, b, c, d = operands
    if is_batch_invariant():
        return False
    if search.find_alteration() is not None:
        return True
    shapes, strides = [x.shape for x in operands], [x.stride() for x in operands]
    if not all(isinstance(n, int) for each in (*shapes, *strides) for n in each):
        return False  # for many sizes the library's is taken nearly always
    if a.shape != c.shape or b.shape != d.shape:
        return False
    problem = problem_from(MM_PLUS_MM, shapes, strides, [x.dtype for x in operands], a.dtype)
    if problem is None:
        return False

    def by_model() -> bool:
        choice = choose_outside_graph(chooser, problem, a.device)
        return choice is not None and not choice.candidates[0].is_extern

    return bool(chooser.decide("make one op of the sum", problem, by_model))
