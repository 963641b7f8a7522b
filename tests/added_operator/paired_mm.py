"""A made-up operator: out = scale · (a @ b + times · c @ d), one scale for all or one a row.

It has all that a new operator may need: more than two matrices, an input that is not multiplied and
whose shape follows from an attribute, a layout that only this op has, an attribute that is a whole
number, an output of another type.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from diode_engine.core.operand import DType
from diode_engine.core.operators.specification import (
    Attribute,
    Fields,
    Matrix,
    Operator,
    SideInput,
    Sizes,
    TensorShape,
    gemm_flops,
)


def scale_shape(sizes: Sizes, fields: Fields) -> tuple[Any, ...]:
    return (1,) if fields["scaling"] == "tensor" else (sizes["M"], 1)


def scales(torch: Any, shape: TensorShape, problem: Any, generator: Any) -> Any:
    """Between 1 and 2."""
    return 1 + torch.rand(shape.size, generator=generator, device=generator.device)


def function(torch: Any, problem: Any) -> Callable[..., Any]:
    dtype = getattr(torch, problem.out_dtype)
    times = problem.op_fields["times"]
    return lambda a, b, c, d, scale: (scale * (a @ b + times * (c @ d))).to(dtype)


def read(tensors: Mapping[str, TensorShape]) -> Fields | None:
    if tensors["d"].stride != (tensors["d"].size[1], 1):
        return None
    return {
        "scaling": "tensor" if tensors["scale"].size == (1,) else "row",
        "c_layout": "row" if tensors["c"].stride[1] == 1 else "col",
    }


PAIRED_MM = Operator(
    "paired_mm",
    inputs=(
        Matrix("a", ("M", "K")),
        Matrix("b", ("K", "N")),
        Matrix("c", ("M", "K")),
        Matrix("d", ("K", "N")),
        SideInput("scale", scale_shape, DType.FLOAT32, scales),
    ),
    output=("M", "N"),
    templates=("aten::mm", "triton::mm"),
    attributes=(
        Attribute("scaling", ("tensor", "row")),
        Attribute("c_layout", ("row", "col")),
        Attribute("times", range(1, 100)),
    ),
    dtypes=(DType.FLOAT16, DType.BFLOAT16),
    out_dtypes={DType.FLOAT16: DType.FLOAT32},
    flops=lambda sizes: 2 * gemm_flops(sizes),
    function=function,
    read=read,
    drawn=2,
)
