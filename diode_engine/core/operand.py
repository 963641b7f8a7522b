"""What operands are made of: element types, layouts in memory, and the shapes of a bias."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from diode_engine.core.checks import is_int, member
from diode_engine.errors import RecordError

ALIGNMENTS = (1, 2, 4, 8, 16)
# Where the batch of a batched operand lies: its matrices one after another, or their elements at
# the same place side by side, so that neither rows nor columns are contiguous.
OUTER, INNER = "outer", "inner"


class DType(StrEnum):
    """Element types, by their torch names: the table of all that Diode knows of a type.

    `itemsize` is the bytes of one element, `short` the name in commands ("bf16"), and `tolerance`
    the largest error of a kernel's result on such operands (see collect/workers/timer.py). Other
    names under which a type is read come after these.
    """

    itemsize: int
    short: str
    tolerance: float
    spellings: tuple[str, ...]

    FLOAT16 = "float16", 2, "fp16", 2e-3, "half", "f16"
    BFLOAT16 = "bfloat16", 2, "bf16", 1e-2
    FLOAT32 = "float32", 4, "fp32", 1e-4, "f32"
    FLOAT64 = "float64", 8, "fp64", 1e-10, "f64"
    INT8 = "int8", 1, "int8", 0.0
    INT32 = "int32", 4, "int32", 0.0
    # Tensor cores keep about 14 bits when they add up products of these types.
    FLOAT8_E4M3FN = "float8_e4m3fn", 1, "e4m3", 4e-2
    FLOAT8_E5M2 = "float8_e5m2", 1, "e5m2", 4e-2

    def __new__(
        cls, name: str, itemsize: int = 0, short: str = "", tolerance: float = 0.0, *others: str
    ) -> DType:
        made = str.__new__(cls, name)
        made._value_ = name
        made.itemsize, made.short, made.tolerance = itemsize, short, tolerance
        made.spellings = (name, short, *others)
        return made

    @classmethod
    def _missing_(cls, value: object) -> DType | None:
        """The type of another spelling, such as "fp16", "half" or "torch.float16"."""
        return _find_dtype(str(value))


# Every spelling of a type that is read, in lower case: first the full names, then the short ones.
SPELLINGS = {
    each.spellings[place]: each for place in range(4) for each in DType
    if place < len(each.spellings)
}  # fmt: skip
# The types that problems are drawn in and models explained for, by their short names. float32 is
# "fp32" without TF32 and "tf32" with it: the kernels differ.
TYPES = ("bf16", "fp16", "fp32", "tf32", "e4m3", "e5m2", "int8")


def _find_dtype(spelling: str) -> DType | None:
    return SPELLINGS.get(spelling.lower().removeprefix("torch."))


def short_name(dtype: str) -> str:
    """The short name of a type in any spelling; another text, such as "tf32", as it is."""
    known = _find_dtype(dtype)
    return dtype if known is None else known.short


class Layout(StrEnum):
    """Which dimension of a matrix is contiguous: ROW the last one, COL the one before."""

    ROW = "row"
    COL = "col"


class Bias(StrEnum):
    """The shape of what is added to a product."""

    NONE = "none"  # nothing is
    SCALAR = "scalar"  # one element
    VECTOR = "vector"  # N elements, one a column: nn.Linear's bias
    COLUMN = "column"  # M×1, one a row
    MATRIX = "matrix"  # M×N, or B×M×N


@dataclass(frozen=True)
class Operand:
    """How one matrix lies in memory: which dimension is contiguous, and the largest power of
    two, up to 16 elements, that divides the stride of the other one."""

    layout: Layout
    align: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "layout", member(Layout, self.layout, "An operand's layout"))
        if not (is_int(self.align) and self.align in ALIGNMENTS):
            raise RecordError(
                f"An operand's alignment is {self.align!r}; it must be one of 1, 2, 4, 8, 16."
            )

    @classmethod
    def contiguous(cls, layout: Layout, rows: int, cols: int) -> Operand:
        """A rows×cols matrix without gaps."""
        return _with_stride(layout, cols if layout is Layout.ROW else rows)

    @classmethod
    def from_strides(cls, rows: int, cols: int, stride: tuple[int, int]) -> Operand | None:
        """The operand with these strides (in elements), or None where no dimension is
        contiguous. The stride of a dimension of length 1 says nothing and is not looked at."""
        row, col = stride
        if rows == 1:
            if col == 1 or cols == 1:
                return cls.contiguous(Layout.ROW, rows, cols)
            return _with_stride(Layout.COL, col)
        if row == 1 and cols == 1:
            return cls.contiguous(Layout.COL, rows, cols)
        if col == 1 or cols == 1:
            return _with_stride(Layout.ROW, row)
        return _with_stride(Layout.COL, col) if row == 1 else None

    def canonical(self, rows: int, cols: int) -> Operand:
        """The one form that stands for all operands with the same memory layout as a rows×cols
        matrix. A single row or column without gaps is contiguous in its own direction, whatever its
        other stride."""
        if rows > 1 and cols > 1:
            return self
        same = Operand.from_strides(rows, cols, self.strides(rows, cols))
        assert same is not None
        return same

    def leading_stride(self, rows: int, cols: int) -> int:
        """The smallest stride (in elements) that gives a rows×cols matrix this alignment."""
        stride = max(1, cols if self.layout is Layout.ROW else rows)
        while math.gcd(stride, 16) != self.align:
            stride += 1
        return stride

    def strides(self, rows: int, cols: int) -> tuple[int, int]:
        """Strides in elements of a rows×cols matrix that lies like this."""
        lead = self.leading_stride(rows, cols)
        return (lead, 1) if self.layout is Layout.ROW else (1, lead)

    def inner_strides(self, batch: Any, rows: Any, cols: Any) -> tuple[Any, Any, Any]:
        """Strides in elements (of the batch, the rows, the columns) of so many rows×cols matrices
        without gaps whose elements at the same place lie side by side. The sizes may be symbols."""
        return (1, cols * batch, batch) if self.layout is Layout.ROW else (1, batch, rows * batch)


def _with_stride(layout: Layout, stride: int) -> Operand:
    return Operand(layout, math.gcd(stride, 16))


def canonical_bias(bias: Bias, B: int, M: int, N: int) -> Bias:
    """Of the forms of the bias that mean the same for these sizes, the one with the fewest
    dimensions."""
    if bias is Bias.MATRIX and B == 1 and 1 in (M, N):
        bias = Bias.VECTOR if M == 1 else Bias.COLUMN
    if (bias is Bias.VECTOR and N == 1) or (bias is Bias.COLUMN and M == 1):
        return Bias.SCALAR
    return bias
