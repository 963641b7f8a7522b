"""Wraps the lowerings of Diode's ops: for the option fast_autotune, and for the products that Diode
makes no choice for.

With fast_autotune the lowerings of the ops that the model knows run as under max_autotune_gemm, and
nothing else does: other ops, pointwise kernels and convolutions are compiled as in the default
mode. What Diode does not choose is lowered again as in the default mode, here and under
max-autotune (see default_mode.py).
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from itertools import chain
from typing import TYPE_CHECKING, Any

import torch
from torch._inductor import config, decomposition, ir, lowering
from torch._inductor.fx_passes import joint_graph
from torch._inductor.kernel import mm_plus_mm

from diode_engine.choosing.invariant import refusal
from diode_engine.core.operators import MM_PLUS_MM, OPERATORS, Operator
from diode_engine.errors import IntegrationError
from diode_engine.inductor.choosing.compile_options import chooses_in_any_mode, is_batch_invariant
from diode_engine.inductor.choosing.current import chooser_for, report_failure
from diode_engine.inductor.choosing.default_mode import (
    LeftToDefault,
    Mode,
    leave_to_default,
    lowering_in,
)
from diode_engine.inductor.guard import STOCK, guard
from diode_engine.inductor.hook import options
from diode_engine.inductor.patches import Patches
from diode_engine.inductor.torch_internals.versions import part
from diode_engine.inductor.torch_internals.wrapped_functions import LOWERS_SUM, MAKES_MM, TABLE_COPY

if TYPE_CHECKING:
    from diode_engine.inductor.choosing.product_chooser import ProductChooser


def check_place() -> None:
    """Find the table of lowerings. Raises IntegrationError where it does not have products."""
    if torch.ops.aten.mm.default not in lowering.lowerings:
        raise IntegrationError("this torch has no table of lowerings with products.")


def apply(patches: Patches) -> None:
    """Wrap the lowerings of Diode's ops."""
    for op, operator in _lowered_ops().items():
        patches.wrap(lowering.lowerings, op, functools.partial(_wrap, operator))
    if part(mm_plus_mm, LOWERS_SUM) is not None:
        patches.wrap(mm_plus_mm, LOWERS_SUM, functools.partial(_wrap, MM_PLUS_MM))
    table, products = decomposition.decompositions, (torch.ops.aten.mm, torch.ops.aten.bmm)
    for op in [each for each in table if getattr(each, "overloadpacket", None) in products]:
        patches.wrap(table, op, _wrap_decomposition)
    if (copy := part(decomposition, TABLE_COPY)) is not None:
        copy.cache_clear()
    for entry in chain.from_iterable(joint_graph.patterns.patterns.values()):
        if getattr(part(entry, "handler"), "__name__", "") == MAKES_MM:
            patches.guard(entry, "extra_check", _becomes_mm, "a batch of one was not decided")


def _becomes_mm(match: Any) -> Any:
    """Return whether mm may compute a batch of one: not in another order, which integers lack."""
    is_exact = not match.args[0].meta["val"].is_floating_point()
    return False if is_batch_invariant() and not is_exact else STOCK


def _wrap_decomposition(theirs: Callable[..., Any]) -> Callable[..., Any]:
    """Keep a product of one row from becoming a sum, where results may not depend on the rows."""

    @guard("a product of one row was not kept", stock=theirs)
    def decomposed(*args: Any, **kwargs: Any) -> Any:
        if not is_batch_invariant():
            return STOCK
        with config.patch(coordinate_descent_tuning=False):
            return theirs(*args, **kwargs)

    return decomposed


def _lowered_ops() -> dict[Any, Operator]:
    """Return Diode's operator of each op of torch that Inductor lowers."""
    known = {
        getattr(torch.ops.aten, name, None): operator
        for operator in OPERATORS.values()
        for name in (operator.aten, f"{operator.aten}_v2")
    }
    packets = {op: getattr(op, "overloadpacket", op) for op in lowering.lowerings}
    return {op: known[packet] for op, packet in packets.items() if packet in known}


def _wrap(operator: Operator, lower: Callable[..., Any]) -> Callable[..., Any]:
    signature = inspect.signature(lower)

    # Some products can be lowered in the default mode only.
    @guard("lowering for a choice failed", stock=lower, report=report_failure)
    def lowered(*args: Any, **kwargs: Any) -> Any:
        chooser = _chooser_for(args)
        mode = None if chooser is None else _mode_for(chooser, operator)
        if chooser is None or mode is None or not _takes(signature, args, kwargs):
            return STOCK
        try:
            with lowering_in(mode):
                if _has_scalar_bias(operator, args):
                    if is_batch_invariant():
                        chooser.outcomes.report_failure("", refusal("its bias is one element"))
                    leave_to_default()
                return lower(*args, **kwargs)
        except LeftToDefault:
            pass
        with lowering_in(Mode.DEFAULT):
            return lower(*args, **kwargs)

    return lowered


def _takes(signature: inspect.Signature, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Return whether the lowering takes these arguments: that of addmm takes no out_dtype."""
    try:
        signature.bind(*args, **kwargs)
    except TypeError:
        return False
    return True


def _chooser_for(args: tuple[Any, ...]) -> ProductChooser | None:
    """Return the chooser, where Diode may choose among Triton's kernels for a product of these
    operands; else None."""
    device = args[0].get_device() if args and isinstance(args[0], ir.IRNode) else None
    is_asked = is_batch_invariant() or options.uses_backend("TRITON")
    return chooser_for(device) if is_asked else None


def _has_scalar_bias(operator: Operator, args: tuple[Any, ...]) -> bool:
    """Return whether the product's bias is one element. No kernel was timed with such a bias, and
    where Inductor searches (before torch 2.13) it writes a matrix of that element first."""
    return operator.inputs[0].name == "bias" and all(size == 1 for size in args[0].get_size())


def _mode_for(chooser: ProductChooser, operator: Operator) -> Mode | None:
    """Return how a product of this operator is lowered; None where nothing may choose for it."""
    if config.max_autotune or config.max_autotune_gemm:
        return Mode.SEARCH
    # What the model does not know is counted, where results may not depend on the batch.
    if chooses_in_any_mode() and (chooser.knows(operator) or is_batch_invariant()):
        return Mode.FAST
    return None
