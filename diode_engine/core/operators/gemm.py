"""The products of dense matrices: mm, addmm, bmm, baddbmm."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from diode_engine.core.operand import INNER, OUTER, Bias
from diode_engine.core.operators.specification import (
    Attribute,
    Fields,
    Matrix,
    Operator,
    SideInput,
    Sizes,
    TensorShape,
)

_A, _B = Matrix("a", ("M", "K")), Matrix("b", ("K", "N"))
_A_BATCH, _B_BATCH = Matrix("a", ("B", "M", "K")), Matrix("b", ("B", "K", "N"))


def _bias(*output: str) -> SideInput:
    def shape(sizes: Sizes, fields: Fields) -> tuple[Any, ...]:
        bias = fields["bias"]
        if bias is Bias.VECTOR:
            return (sizes["N"],)
        if bias is Bias.MATRIX:
            return tuple(sizes[dim] for dim in output)
        return (1,) if bias is Bias.SCALAR else (sizes["M"], 1)

    return SideInput("bias", shape, values=_one_element)


def _one_element(torch: Any, shape: TensorShape, problem: Any, generator: Any) -> Any:
    """A bias of one element in a buffer that has as many copies of it as the output has elements.
    Inductor expands such a bias before a Triton kernel reads it, while the library reads one
    element: so both can read it. None for other biases."""
    if problem.bias is not Bias.SCALAR:
        return None
    dtype = getattr(torch, shape.dtype)
    value = torch.randn((1,), generator=generator, device=generator.device).to(dtype)
    written_out = value.expand(problem.output_size).contiguous()
    return written_out.as_strided(shape.size, shape.stride)


_BATCHES = tuple(Attribute(f"{name}_batch", (OUTER, INNER)) for name in ("a", "b"))


def _read_batches(given: Mapping[str, TensorShape]) -> Fields:
    """The batch counts as innermost where neither rows nor columns are contiguous, whatever lies
    between the elements."""
    return {
        f"{name}_batch": INNER
        for name in ("a", "b")
        if 1 not in given[name].stride[-2:] and min(given[name].size) > 1
    }


MM = Operator(
    "mm",
    inputs=(_A, _B),
    output=("M", "N"),
    drawn=5,
)
ADDMM = Operator(
    "addmm",
    inputs=(_bias("M", "N"), _A, _B),
    output=("M", "N"),
    biases=(Bias.VECTOR, Bias.SCALAR, Bias.COLUMN, Bias.MATRIX),  # a vector: nn.Linear's
    drawn=3,
    drawn_biases=((Bias.VECTOR, 4), (Bias.MATRIX, 1)),
)
BMM = Operator(
    "bmm",
    inputs=(_A_BATCH, _B_BATCH),
    output=("B", "M", "N"),
    attributes=_BATCHES,
    read=_read_batches,
    drawn=1,
)
BADDBMM = Operator(
    "baddbmm",
    inputs=(_bias("B", "M", "N"), _A_BATCH, _B_BATCH),
    output=("B", "M", "N"),
    biases=(Bias.MATRIX, Bias.SCALAR, Bias.VECTOR, Bias.COLUMN),
    attributes=_BATCHES,
    read=_read_batches,
    drawn=1,
)
