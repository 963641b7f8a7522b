"""Lets a program take one of several kernels by the number of rows of a product (see
lowering/branches.py). Only diode_batch_invariant chooses several."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch._inductor.codegen import wrapper
from torch._inductor.codegen.triton import TritonScheduling

from diode_engine.errors import IntegrationError
from diode_engine.inductor.choosing.current import report_failure
from diode_engine.inductor.guard import STOCK, guard
from diode_engine.inductor.lowering import branches
from diode_engine.inductor.patches import Patches
from diode_engine.inductor.torch_internals.versions import part
from diode_engine.inductor.torch_internals.wrapped_functions import GENERATES_TEMPLATE, KERNEL_CALL


def check_place() -> None:
    """Find how the call of a kernel is generated. Raises IntegrationError where this torch does
    that in another way."""
    fields = part(part(wrapper, KERNEL_CALL), "__dataclass_fields__") or {}
    if not {"kernel_name", "call_args"} <= set(fields) or not part(
        TritonScheduling, GENERATES_TEMPLATE
    ):
        raise IntegrationError("this torch generates the calls of kernels in another way.")


def apply(patches: Patches) -> None:
    """Wrap the function that generates a template's kernel and its call."""
    patches.wrap(TritonScheduling, GENERATES_TEMPLATE, _wrap)


def _wrap(theirs: Callable[..., Any]) -> Callable[..., Any]:
    @guard("several kernels were not generated", stock=theirs, report=report_failure)
    def codegen_template(scheduling: Any, node: Any, *fused: Any, **more: Any) -> Any:
        found = branches.find_branches(node)
        if not found or more.get("only_gen_src_code"):
            return STOCK
        branches.generate(node, found, lambda: theirs(scheduling, node, *fused, **more))
        return None

    return branches.mark(codegen_template)
