"""The sum of two products of the same sizes, a @ b + c @ d, for which Inductor makes one kernel."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from diode_engine.core.operand import DType
from diode_engine.core.operators.specification import (
    Attribute,
    Fields,
    Matrix,
    Operator,
    TensorShape,
    dense,
    gemm_flops,
)


def function(torch: Any, problem: Any) -> Callable[..., Any]:
    """The reference."""
    return lambda a, b, c, d: (a @ b).add_(c @ d)


def read(tensors: Mapping[str, TensorShape]) -> Fields | None:
    """The layouts of c and d; None where one of them has gaps."""
    found: dict[str, Any] = {}
    for name in ("c", "d"):
        size, stride, _ = tensors[name]
        if stride == dense(size):
            found[f"{name}_layout"] = "row"
        elif stride == (1, size[0]):
            found[f"{name}_layout"] = "col"
        else:
            return None
    return found


_LAYOUTS = ("row", "col")
MM_PLUS_MM = Operator(
    "mm_plus_mm",
    inputs=(
        Matrix("a", ("M", "K")),
        Matrix("b", ("K", "N")),
        Matrix("c", ("M", "K")),
        Matrix("d", ("K", "N")),
    ),
    output=("M", "N"),
    attributes=(Attribute("c_layout", _LAYOUTS), Attribute("d_layout", _LAYOUTS)),
    dtypes=(DType.FLOAT16, DType.BFLOAT16, DType.FLOAT32),
    flops=lambda sizes: 2 * gemm_flops(sizes),
    function=function,
    read=read,
    lowering="torch._inductor.kernel.mm_plus_mm:tuned_mm_plus_mm",
)
