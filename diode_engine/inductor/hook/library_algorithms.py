"""Has the library's kernel of a product use the algorithm of cuBLASLt that is predicted to be the
fastest, in place of the first of its heuristic's list, which torch takes."""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
from torch._inductor.select_algorithm import ExternKernelCaller, ExternKernelChoice

from diode_engine.errors import IntegrationError
from diode_engine.inductor.choosing.chosen_kernels import ChosenKernel, chosen_kernel_of
from diode_engine.inductor.choosing.current import current_chooser, report_failure
from diode_engine.inductor.choosing.library_algorithms import Operands
from diode_engine.inductor.guard import STOCK
from diode_engine.inductor.library.product import diode_library_product
from diode_engine.inductor.patches import Patches, is_named_in

_PLACE = "output_node"
# Inductor's names of torch's calls that compute a product, and with three inputs add a bias.
_CALLS = ("mm", "addmm", "bias_addmm", "bmm", "baddbmm")


def check_place() -> None:
    """Find the method. Raises IntegrationError where this torch has none."""
    method = vars(ExternKernelCaller).get(_PLACE)
    if method is None or not is_named_in(method, "ExternKernelOut"):
        raise IntegrationError(f"this torch has no ExternKernelCaller.{_PLACE} as Diode expects.")


def apply(patches: Patches) -> None:
    """Wrap the method by which the library's kernel becomes a part of the program."""
    _call_by_algorithm()  # code from Inductor's cache may name it
    patches.guard(
        ExternKernelCaller, _PLACE, _output_node, "the library's algorithm was not chosen",
        report_failure,
    )  # fmt: skip


@cache
def _call_by_algorithm() -> ExternKernelChoice:
    return ExternKernelChoice(diode_library_product)


def _output_node(caller: ExternKernelCaller) -> Any:
    chooser, kernel = current_chooser(), chosen_kernel_of(caller)
    if chooser is None or chooser.algorithms.model is None or kernel is None:
        return STOCK
    if not _is_plain(caller, kernel):
        return STOCK
    operands = _operands(caller)
    if operands is None:
        return STOCK
    problem, device = kernel.comparison.problems[0], caller.layout.device.index
    plan = chooser.algorithms.choose(problem, operands, device)
    if plan is None:
        return STOCK
    choice = _call_by_algorithm().bind(caller.input_nodes, caller.layout, plan=str(plan))
    return choice.output_node()


def _is_plain(caller: ExternKernelCaller, kernel: ChosenKernel) -> bool:
    """Return whether the kernel is one of torch's calls, of known sizes, with nothing scaled."""
    scales = [caller.kwargs.get(name, 1) for name in ("alpha", "beta")]
    others = set(caller.kwargs) - {"alpha", "beta"}
    return (
        caller.choice.name in _CALLS
        and len(kernel.comparison.problems) == 1
        and all(scale == 1 for scale in scales)
        and not others
    )


def _operands(caller: ExternKernelCaller) -> Operands | None:
    """Return the operands without data; None where a size or stride is dynamic."""
    tensors = []
    for layout in (*(node.get_layout() for node in caller.input_nodes), caller.layout):
        size, stride = list(layout.size), list(layout.stride)
        if not all(getattr(n, "is_Integer", isinstance(n, int)) for n in (*size, *stride)):
            return None
        size, stride = [int(n) for n in size], [int(n) for n in stride]
        tensors.append(torch.empty_strided(size, stride, dtype=layout.dtype, device="meta"))
    *bias, a, b, out = tensors
    if bias and (bias[0].shape not in (out.shape, out.shape[-1:]) or bias[0].stride(-1) != 1):
        return None
    return Operands(bias[0] if bias else None, a, b, out)
