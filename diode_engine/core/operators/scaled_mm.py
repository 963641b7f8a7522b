"""The product of 8-bit floating-point matrices with scales: torch._scaled_mm.

out = (scale_a · a) @ (scale_b · b) (+ bias), in the type of the output. a is row-major and b is
column-major: cuBLASLt and Inductor require that on all devices with such instructions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from diode_engine.core.operand import Bias, DType, Layout
from diode_engine.core.operators.specification import (
    Attribute,
    Fields,
    Matrix,
    Operator,
    SideInput,
    Sizes,
    TensorShape,
)

# What one scale is for: the whole operand; a row of `a`, or a column of `b`; a block of 1×128
# elements (along K) of `a`, and of 128×128 of `b`; or a block of 128 elements along K of either.
TENSOR, ROW, BLOCK_128X128, BLOCK_1X128 = "tensor", "row", "1x128_128x128", "1x128_1x128"
BLOCK = 128
_FLOAT8 = (DType.FLOAT8_E4M3FN, DType.FLOAT8_E5M2)


def _blocks(size: Any) -> Any:
    return -(-size // BLOCK)


def _scale_a(sizes: Sizes, fields: Fields) -> tuple[Any, ...]:
    scaling = fields["scaling"]
    if scaling == TENSOR:
        return ()
    return (sizes["M"], 1 if scaling == ROW else _blocks(sizes["K"]))


def _scale_b(sizes: Sizes, fields: Fields) -> tuple[Any, ...]:
    scaling = fields["scaling"]
    if scaling == TENSOR:
        return ()
    if scaling == ROW:
        return (1, sizes["N"])
    n = sizes["N"] if scaling == BLOCK_1X128 else _blocks(sizes["N"])
    return (_blocks(sizes["K"]), n)


def _outer(fields: Fields) -> int:
    """The contiguous dimension of a's scales. Scales of blocks of 1×128 lie side by side along M,
    as cuBLASLt reads them."""
    return -1 if fields["scaling"] in (TENSOR, ROW) else -2


def _outer_of_b(fields: Fields) -> int:
    """The contiguous dimension of b's scales: K for blocks of 128×128, N for blocks of 1×128."""
    return -2 if fields["scaling"] == BLOCK_128X128 else -1


def _bias(sizes: Sizes, fields: Fields) -> tuple[Any, ...] | None:
    return (sizes["N"],) if fields["bias"] is Bias.VECTOR else None


def scales(torch: Any, shape: TensorShape, problem: Any, generator: Any) -> Any:
    """Random scales from 0.5 to 1.5."""
    scale = torch.empty_strided(
        shape.size, shape.stride, dtype=torch.float32, device=generator.device
    )
    return scale.uniform_(0.5, 1.5, generator=generator)


def _spread(torch: Any, scale: Any, rows: int, cols: int) -> Any:
    """A scale for each element of a rows×cols matrix."""
    if scale.ndim == 2:
        for dim, size in enumerate((rows, cols)):
            if scale.shape[dim] not in (1, size):
                scale = scale.repeat_interleave(BLOCK, dim)
        scale = scale[:rows, :cols]
    return scale


def function(torch: Any, problem: Any) -> Callable[..., Any]:
    """The reference: in float32, which represents every product of two 8-bit numbers exactly."""
    dtype = getattr(torch, problem.out_dtype)
    m, n, k = problem.M, problem.N, problem.K
    by_blocks = problem.op_fields["scaling"] not in (TENSOR, ROW)

    def computed(a: Any, b: Any, scale_a: Any, scale_b: Any, bias: Any = None) -> Any:
        a, b = a.float(), b.float()
        if by_blocks:
            out = (a * _spread(torch, scale_a, m, k)) @ (b * _spread(torch, scale_b, k, n))
        else:
            out = (a @ b).mul_(scale_a * scale_b)
        return (out if bias is None else out.add_(bias)).to(dtype)

    return computed


def read(tensors: Mapping[str, TensorShape]) -> Fields | None:
    """The kind of scaling and the type of b; None for other scales, and for a bias that is not a
    vector."""
    a, b = tensors["a"], tensors["b"]
    scale_a, scale_b = tensors["scale_a"], tensors["scale_b"]
    if {scale_a.dtype, scale_b.dtype} != {DType.FLOAT32}:  # MX formats have scales of 8 bits
        return None
    (m, k), n = a.size, b.size[1]
    scaling = _scaling(scale_a.size, scale_b.size, m, n, k)
    if scaling is None:
        return None
    bias = tensors.get("bias")
    if bias is not None and bias.size not in ((n,), (1, n)):
        return None
    return {"scaling": scaling, "b_dtype": str(b.dtype)}


def _scaling(of_a: tuple[int, ...], of_b: tuple[int, ...], m: int, n: int, k: int) -> str | None:
    """The kind of scaling, by the same rules and in the same order as Inductor's
    get_scaling_options."""
    if all(size == 1 for size in (*of_a, *of_b)):
        return TENSOR
    if len(of_a) != 2 or len(of_b) != 2:
        return None
    if of_a[1] == 1 and of_b[0] == 1:
        return ROW
    if of_a == (m, _blocks(k)) and of_b == (_blocks(k), _blocks(n)):
        return BLOCK_128X128
    return BLOCK_1X128 if of_a == (m, _blocks(k)) and of_b == (_blocks(k), n) else None


def read_kwargs(kwargs: Mapping[str, Any]) -> Fields:
    """Whether sums are accumulated fast. The library's call and Triton's templates have different
    names for it."""
    return {"fast_accum": bool(kwargs.get("use_fast_accum", kwargs.get("USE_FAST_ACCUM", False)))}


def keywords(torch: Any, fields: Fields) -> dict[str, Any]:
    """The keywords of the library's call; those of products of groups are the same."""
    return {
        "out_dtype": getattr(torch, fields["out_dtype"]),
        "use_fast_accum": fields["fast_accum"],
    }


SCALED_MM = Operator(
    "scaled_mm",
    inputs=(
        Matrix("a", ("M", "K")),
        Matrix("b", ("K", "N")),
        SideInput("scale_a", _scale_a, DType.FLOAT32, scales, contiguous=_outer),
        SideInput("scale_b", _scale_b, DType.FLOAT32, scales, contiguous=_outer_of_b),
        SideInput("bias", _bias, lambda fields: fields["out_dtype"]),
    ),
    output=("M", "N"),
    biases=(Bias.NONE, Bias.VECTOR),
    attributes=(
        Attribute("scaling", (TENSOR, ROW, BLOCK_128X128, BLOCK_1X128)),
        Attribute("fast_accum", (False, True)),
        Attribute("b_dtype", tuple(map(str, _FLOAT8))),
    ),
    dtypes=_FLOAT8,
    out_dtypes=dict.fromkeys(_FLOAT8, DType.BFLOAT16),
    function=function,
    read=read,
    read_kwargs=read_kwargs,
    aten="_scaled_mm",
    keywords=keywords,
    layouts=((Layout.ROW, Layout.COL),),
)
