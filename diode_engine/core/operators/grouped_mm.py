"""Products of groups, as of the experts of a model: torch._grouped_mm.

There is an op for each form of the operands; B is the number of groups:

    grouped_mm_rows      a [M, K], b [B, K, N] → [M, N]: the rows of a are divided among the groups
    grouped_mm_columns   a [B, M, K], b [K, N] → [M, N]: the columns of b are divided
    grouped_mm_depth     a [M, K], b [K, N] → [B, M, N]: K is divided (the weights' gradient)
    grouped_mm_batch     a [B, M, K], b [B, K, N] → [B, M, N]: nothing is divided

The ends of the groups (`offsets`) are known when the program runs, but not when it is compiled. So
a problem stands for all divisions of its size. It is timed with the divisions that a router
typically makes (`ROUTED`).
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any, NamedTuple

from diode_engine.core.operand import DType
from diode_engine.core.operators.specification import (
    Matrix,
    Operator,
    SideInput,
    Sizes,
    TensorShape,
    gemm_flops,
)

# The divisions of a size among groups that a router is assumed to make: a problem's time is the
# mean over these. In each the i-th largest group is proportional to 1/i^x, with this x.
_EXPONENTS = {"mild skew": 0.5, "zipf": 1.0}
ROUTED = tuple(_EXPONENTS)
# Where columns or K are divided, a group's part of an operand must begin at an address that is
# divisible by this.
_ALIGN_BYTES = 16


@lru_cache(maxsize=4096)
def group_sizes(total: int, groups: int, division: str, align: int = 1) -> tuple[int, ...]:
    """How many of `total` each group has, in a division of ROUTED. These are multiples of `align`,
    except for the last group that has any. Which groups are large is drawn at random, the same each
    time."""
    weights = [(i + 1.0) ** -_EXPONENTS[division] for i in range(groups)]
    random.Random(f"{division}/{groups}").shuffle(weights)
    ends, whole = list(itertools.accumulate(weights)), sum(weights)
    cuts = [round(total * end / whole / align) * align for end in ends]
    cuts = [*(min(cut, total) for cut in cuts[:-1]), total]
    return tuple(end - begin for begin, end in itertools.pairwise([0, *cuts]))


def offsets_of(problem: Any, division: str) -> tuple[int, ...]:
    """The end of each group of a problem."""
    total = getattr(problem, problem.op.divided)
    align = 1 if problem.op.divided == "M" else _ALIGN_BYTES // problem.dtype.itemsize
    return tuple(itertools.accumulate(group_sizes(total, problem.B, division, align)))


def offsets_tensor(torch: Any, problem: Any, division: str, device: Any) -> Any:
    """The offsets as the op's input."""
    return torch.tensor(offsets_of(problem, division), dtype=torch.int32, device=device)


def _first(torch: Any, shape: TensorShape, problem: Any, generator: Any) -> Any:
    return offsets_tensor(torch, problem, ROUTED[0], generator.device)


def _others(torch: Any, shape: TensorShape, problem: Any, generator: Any) -> list[Any]:
    return [offsets_tensor(torch, problem, each, generator.device) for each in ROUTED[1:]]


def flops(sizes: Sizes) -> Any:
    """2·M·N·K for all groups together: each has a part of the size that is divided."""
    return 2.0 * sizes["M"] * sizes["N"] * sizes["K"]


class GroupSlices(NamedTuple):
    """The indices of one group's part of a, of b and of the output; and the indices of its scales:
    for each row of a, and for each column of b."""

    a: Any
    b: Any
    out: Any
    rows: Any
    columns: Any


def parts(problem: Any, offsets: Any) -> Iterator[GroupSlices]:
    """The part of each group. `offsets` is the op's input; None where nothing is divided."""
    divided = problem.op.divided
    ends = [0] * problem.B if offsets is None else offsets.tolist()
    begin = 0
    for group, end in enumerate(ends):
        part, every = slice(begin, end), slice(None)
        begin = end
        if divided == "M":
            yield GroupSlices(part, group, part, part, group)
        elif divided == "N":
            yield GroupSlices(group, (every, part), (every, part), group, part)
        elif divided == "K":
            yield GroupSlices((every, part), part, group, group, group)
        else:
            yield GroupSlices(group, group, group, group, group)


def function(torch: Any, problem: Any) -> Callable[..., Any]:
    """The reference: group by group, with sums in float32."""
    dtype = getattr(torch, problem.out_dtype)

    def computed(a: Any, b: Any, offsets: Any = None) -> Any:
        out = torch.zeros(problem.output_size, dtype=dtype, device=a.device)
        if offsets is None:
            return torch.bmm(a, b, out=out)
        for at in parts(problem, offsets):
            out[at.out] = a[at.a] @ b[at.b]
        return out

    return computed


OFFSETS = SideInput(
    "offsets",
    lambda sizes, fields: (sizes["B"],),
    DType.INT32,
    _first,
    others=_others,
    dims=("B",),
)


def _grouped(name: str, divided: str, a: str, b: str, output: str) -> Operator:
    return Operator(
        f"grouped_mm_{name}",
        inputs=(Matrix("a", tuple(a)), Matrix("b", tuple(b)), *([OFFSETS] if divided else [])),
        output=tuple(output),
        # As torch._grouped_mm has it.
        dtypes=(DType.BFLOAT16,),
        flops=flops if divided else gemm_flops,
        function=function,
        aten="_grouped_mm",
        divided=divided,
        bypasses_hook=True,
    )


ROWS = _grouped("rows", "M", "MK", "BKN", "MN")
COLUMNS = _grouped("columns", "N", "BMK", "KN", "MN")
DEPTH = _grouped("depth", "K", "MK", "KN", "BMN")
BATCH = _grouped("batch", "", "BMK", "BKN", "BMN")
GROUPED = (ROWS, COLUMNS, DEPTH, BATCH)
