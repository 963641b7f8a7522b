"""Products of groups of 8-bit floating-point matrices with scales: torch._scaled_grouped_mm.

Each op is one of `grouped`, with a scale for each row of a and for each column of b:

    scaled_grouped_mm_rows      scale_a [M], scale_b [B, N]
    scaled_grouped_mm_columns   scale_a [B, M], scale_b [N]
    scaled_grouped_mm_depth     scale_a [B·M], scale_b [B·N]: each group has its own
    scaled_grouped_mm_batch     scale_a [B, M], scale_b [B, N]

The library requires e4m3 operands, a row-major and b column-major, and an output of bfloat16.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from diode_engine.core.operand import DType, Layout
from diode_engine.core.operators import grouped_mm
from diode_engine.core.operators.scaled_mm import keywords, read_kwargs, scales
from diode_engine.core.operators.specification import (
    Attribute,
    Fields,
    Matrix,
    Operator,
    SideInput,
    Sizes,
    TensorShape,
)


def function(torch: Any, problem: Any) -> Callable[..., Any]:
    """The reference: group by group in float32, which represents every product of two 8-bit numbers
    exactly."""
    dtype = getattr(torch, problem.out_dtype)

    def computed(a: Any, b: Any, scale_a: Any, scale_b: Any, offsets: Any = None) -> Any:
        out = torch.zeros(problem.output_size, dtype=dtype, device=a.device)
        if problem.op.divided == "K":
            scale_a, scale_b = scale_a.view(problem.B, -1), scale_b.view(problem.B, -1)
        for at in grouped_mm.parts(problem, offsets):
            sums = a[at.a].float() @ b[at.b].float()
            out[at.out] = sums.mul_(scale_a[at.rows][:, None]).mul_(scale_b[at.columns])
        return out

    return computed


def read(tensors: Mapping[str, TensorShape]) -> Fields | None:
    """No attributes; None for scales of blocks (MX formats), for which Inductor has no kernel on
    NVIDIA's GPUs."""
    types = {tensors[name].dtype for name in ("scale_a", "scale_b")}
    return {} if types == {DType.FLOAT32} else None


def _scaled(op: Operator) -> Operator:
    def scale(name: str, matrix: Matrix, side: str) -> SideInput:
        def shape(sizes: Sizes, fields: Fields) -> tuple[Any, ...]:
            if op.divided == "K":
                return (sizes["B"] * sizes[side],)
            return (sizes["B"], sizes[side]) if "B" in matrix.dims else (sizes[side],)

        return SideInput(name, shape, DType.FLOAT32, scales)

    a, b = op.matrices
    return Operator(
        f"scaled_{op.name}",
        inputs=(a, b, scale("scale_a", a, "M"), scale("scale_b", b, "N"), *op.side_inputs),
        output=op.output,
        attributes=(Attribute("fast_accum", (False, True)),),
        dtypes=(DType.FLOAT8_E4M3FN,),
        out_dtypes={DType.FLOAT8_E4M3FN: DType.BFLOAT16},
        flops=op.flops,
        function=function,
        read=read,
        read_kwargs=read_kwargs,
        aten="_scaled_grouped_mm",
        keywords=keywords,
        layouts=((Layout.ROW, Layout.COL),),
        divided=op.divided,
        bypasses_hook=True,
    )


SCALED_GROUPED = tuple(_scaled(op) for op in grouped_mm.GROUPED)
