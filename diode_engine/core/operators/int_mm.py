"""The product of 8-bit whole numbers: torch._int_mm, whose output is int32."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from diode_engine.core.operand import DType
from diode_engine.core.operators.specification import Matrix, Operator


def function(torch: Any, problem: Any) -> Callable[..., Any]:
    """The reference: in float64, which represents every sum exactly, and which all devices can
    multiply."""
    return lambda a, b: (a.double() @ b.double()).to(torch.int32)


INT_MM = Operator(
    "int_mm",
    inputs=(Matrix("a", ("M", "K")), Matrix("b", ("K", "N"))),
    output=("M", "N"),
    dtypes=(DType.INT8,),
    out_dtypes={DType.INT8: DType.INT32},
    function=function,
    aten="_int_mm",
)
