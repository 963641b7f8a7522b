"""The option fast_autotune: Diode's choices without max-autotune.

The lowerings of the ops that the model knows run as under max_autotune_gemm, and nothing else does:
other ops, pointwise kernels and convolutions are compiled as in the default mode. What Diode does
not choose is lowered again as in the default mode, with a library's kernel and no benchmark.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

import torch
from torch._inductor import config, ir, lowering

from diode_engine.core.operators import OPERATORS, Operator
from diode_engine.inductor.choosing.current import current_chooser, report_failure
from diode_engine.inductor.guard import STOCK, guard
from diode_engine.inductor.hook import backends

if TYPE_CHECKING:
    from diode_engine.inductor.choosing.chooser import Chooser

_lowering = ContextVar("diode_fast_lowering", default=False)
_replaced: dict[Any, tuple[Callable[..., Any], Callable[..., Any]]] = {}  # by op: ours, theirs


class LeftToDefault(BaseException):
    """Ends the present lowering, before it has changed anything. The product is then lowered again
    as in the default mode. It is no Exception, so that no guard on the way takes it for a
    failure."""


def attach() -> None:
    """Wraps the lowerings of Diode's ops, once."""
    named = {getattr(torch.ops.aten, op.aten, None): op for op in OPERATORS.values()}
    for op, lower in list(lowering.lowerings.items()):
        operator = named.get(getattr(op, "overloadpacket", op))
        if op not in _replaced and operator is not None:
            ours = _before(operator, lower)
            _replaced[op] = ours, lower
            lowering.lowerings[op] = ours


def detach() -> None:
    """Restores what was there, except what somebody has replaced since."""
    for op, (ours, lower) in _replaced.items():
        if lowering.lowerings.get(op) is ours:
            lowering.lowerings[op] = lower
    _replaced.clear()


def leave_to_default() -> None:
    """Has the present GEMM lowered as in the default mode, where it came to Diode only by
    fast_autotune and no fallback to autotuning is asked for."""
    if _lowering.get() and not config.diode_fallback_to_autotune:  # type: ignore[attr-defined]
        raise LeftToDefault


def _before(operator: Operator, lower: Callable[..., Any]) -> Callable[..., Any]:
    # Some products can be lowered in the default mode only.
    @guard("lowering for a choice failed", stock=lower, report=report_failure)
    @functools.wraps(lower)
    def lowered(*args: Any, **kwargs: Any) -> Any:
        chooser = _chooses(args)
        if chooser is None or not chooser.knows(operator):
            return STOCK
        token = _lowering.set(True)
        try:
            with config.patch(max_autotune_gemm=True):
                return lower(*args, **kwargs)
        except LeftToDefault:
            return STOCK
        finally:
            _lowering.reset(token)

    return lowered


def _chooses(args: tuple[Any, ...]) -> Chooser | None:
    """The chooser, where fast_autotune makes Diode choose although Inductor would not ask for a
    choice; else None."""
    if not config.fast_autotune:  # type: ignore[attr-defined]
        return None
    if config.max_autotune or config.max_autotune_gemm:
        return None
    device = args[0].get_device() if args and isinstance(args[0], ir.IRNode) else None
    if device is None or device.type != "cuda" or not backends.in_use("TRITON"):
        return None
    return current_chooser()
