"""What is asked, what can answer it, and how long the answer took.

A `Problem` is one GEMM, a `Candidate` one kernel that can compute it, a `Timing` what a
GPU said. All three are immutable, validated when made, and keyed by their content, so that
the same thing met twice (in collection, in a file, at compile time) is the same thing.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from types import MappingProxyType
from typing import Any, TypeVar

from diode_engine.core.templates import template_of
from diode_engine.core.templates.template import TILE
from diode_engine.errors import RecordError

MAX_DIM = 2**31 - 1
KWARG_INTS = range(-(2**63), 2**64)  # what msgpack carries
MAX_US = 3.6e9  # an hour: longer than any kernel, so a mistake in the unit
ALIGNMENTS = (1, 2, 4, 8, 16)

Scalar = bool | int | float | str | None
_E = TypeVar("_E", bound=StrEnum)


class Op(StrEnum):
    """The four GEMM operators of torch.aten that Diode chooses kernels for."""

    MM = "mm"
    ADDMM = "addmm"
    BMM = "bmm"
    BADDBMM = "baddbmm"

    @property
    def batched(self) -> bool:
        return self in (Op.BMM, Op.BADDBMM)

    @property
    def biased(self) -> bool:
        return self in (Op.ADDMM, Op.BADDBMM)


class DType(StrEnum):
    """Element types, by their torch names."""

    FLOAT16 = "float16"
    BFLOAT16 = "bfloat16"
    FLOAT32 = "float32"
    FLOAT64 = "float64"
    INT8 = "int8"
    INT32 = "int32"
    FLOAT8_E4M3FN = "float8_e4m3fn"
    FLOAT8_E5M2 = "float8_e5m2"

    @property
    def itemsize(self) -> int:
        """Bytes of one element."""
        return _ITEMSIZE[self]


_ITEMSIZE = {
    DType.FLOAT16: 2,
    DType.BFLOAT16: 2,
    DType.FLOAT32: 4,
    DType.FLOAT64: 8,
    DType.INT8: 1,
    DType.INT32: 4,
    DType.FLOAT8_E4M3FN: 1,
    DType.FLOAT8_E5M2: 1,
}


class Layout(StrEnum):
    """Which dimension of a matrix is contiguous: ROW the last one, COL the one before."""

    ROW = "row"
    COL = "col"


class Bias(StrEnum):
    """The shape of the first argument of addmm and baddbmm."""

    NONE = "none"  # mm and bmm
    SCALAR = "scalar"  # one element
    VECTOR = "vector"  # N elements, one a column: nn.Linear's bias
    COLUMN = "column"  # M×1, one a row
    MATRIX = "matrix"  # M×N, or B×M×N


class Failure(StrEnum):
    """Why a candidate has no time."""

    COMPILE_ERROR = "compile_error"
    OUT_OF_RESOURCES = "out_of_resources"  # shared memory or registers
    OUT_OF_MEMORY = "out_of_memory"  # device memory
    LAUNCH_ERROR = "launch_error"
    ILLEGAL_ACCESS = "illegal_access"
    WRONG_RESULT = "wrong_result"
    TIMEOUT = "timeout"
    CRASH = "crash"  # the worker died
    CUT_SHORT = "cut_short"  # hopeless after its first launches
    NOT_TIMED = "not_timed"  # only asked about, as in a dataset to predict


def content_key(kind: str, fields: Mapping[str, Any]) -> str:
    """32 hex digits: the first half of the SHA-256 of the fields as canonical JSON."""
    text = json.dumps([kind, fields], sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def shown(value: object) -> str:
    """A value in a sentence; not the thousands of digits that a number may have."""
    if isinstance(value, int) and abs(value) > 2**64:
        return "a number of more than 64 bits"
    return repr(value)


def _require(ok: bool, sentence: str) -> None:
    if not ok:
        raise RecordError(sentence)


def _is_int(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _enum(kind: type[_E], value: object, what: str) -> _E:
    try:
        return kind(str(value))
    except ValueError:
        known = ", ".join(kind)
        raise RecordError(f"{what} is {value!r}; it must be one of {known}.") from None


@dataclass(frozen=True)
class Operand:
    """How one matrix lies in memory: which dimension is contiguous, and the largest power of
    two, up to 16 elements, that divides the stride of the other one."""

    layout: Layout
    align: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "layout", _enum(Layout, self.layout, "An operand's layout"))
        _require(
            _is_int(self.align) and self.align in ALIGNMENTS,
            f"An operand's alignment is {self.align!r}; it must be one of 1, 2, 4, 8, 16.",
        )

    @classmethod
    def contiguous(cls, layout: Layout, rows: int, cols: int) -> Operand:
        """A rows×cols matrix without gaps."""
        return cls(layout, math.gcd(cols if layout is Layout.ROW else rows, 16))

    @classmethod
    def from_strides(cls, rows: int, cols: int, stride: tuple[int, int]) -> Operand | None:
        """The operand with these strides (in elements), or None where no dimension is
        contiguous. The stride of a dimension of length 1 says nothing and is not looked at."""
        row, col = stride
        if rows == 1:
            if col == 1 or cols == 1:
                return cls.contiguous(Layout.ROW, rows, cols)
            return _columns(col)
        if cols == 1:
            return cls.contiguous(Layout.COL, rows, cols) if row == 1 else _rows(row)
        if col == 1:
            return _rows(row)
        return _columns(col) if row == 1 else None

    def canonical(self, rows: int, cols: int) -> Operand:
        """The one name of all operands that lie like this as a rows×cols matrix: a single row
        or column without gaps is contiguous in its own direction, whatever its other stride."""
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


def _rows(stride: int) -> Operand:
    return Operand(Layout.ROW, math.gcd(stride, 16))


def _columns(stride: int) -> Operand:
    return Operand(Layout.COL, math.gcd(stride, 16))


def _canonical_bias(bias: Bias, B: int, M: int, N: int) -> Bias:
    """Of the forms that are the same with these sizes, the one with the fewest dimensions."""
    if bias is Bias.MATRIX and B == 1 and 1 in (M, N):
        bias = Bias.VECTOR if M == 1 else Bias.COLUMN
    if (bias is Bias.VECTOR and N == 1) or (bias is Bias.COLUMN and M == 1):
        return Bias.SCALAR
    return bias


@dataclass(frozen=True)
class Problem:
    """out[B, M, N] = a[B, M, K] @ b[B, K, N] (+ bias), as Inductor is asked for it.

    The output is row-major and has no gaps. `allow_tf32` says whether a float32 product may
    be computed in TF32; it is False for all other types, to which it means nothing. Where a
    dimension of length 1 makes two layouts or two forms of the bias the same, one stands for
    both.

    Raises RecordError where a field is impossible (a batch for mm, a bias for bmm, …).
    """

    op: Op
    B: int
    M: int
    N: int
    K: int
    dtype: DType
    out_dtype: DType
    a: Operand
    b: Operand
    allow_tf32: bool
    bias: Bias

    def __post_init__(self) -> None:
        put = object.__setattr__
        put(self, "op", _enum(Op, self.op, "A problem's op"))
        put(self, "dtype", _enum(DType, self.dtype, "A problem's dtype"))
        put(self, "out_dtype", _enum(DType, self.out_dtype, "A problem's out_dtype"))
        put(self, "bias", _enum(Bias, self.bias, "A problem's bias"))
        for name in ("B", "M", "N", "K"):
            value = getattr(self, name)
            _require(
                _is_int(value) and 1 <= value <= MAX_DIM,
                f"A problem's {name} is {shown(value)}; it must be a whole number from 1 to "
                f"{MAX_DIM}.",
            )
        _require(
            self.op.batched or self.B == 1,
            f"A problem of op {self.op} has B = {self.B}; only bmm and baddbmm have a batch.",
        )
        _require(
            self.op.biased == (self.bias is not Bias.NONE),
            f"A problem of op {self.op} has bias {self.bias}; addmm and baddbmm have one, "
            "mm and bmm have none.",
        )
        for name in ("a", "b"):
            _require(
                isinstance(getattr(self, name), Operand), f"A problem's {name} must be an Operand."
            )
        _require(isinstance(self.allow_tf32, bool), "A problem's allow_tf32 must be true or false.")
        if self.dtype is not DType.FLOAT32:
            put(self, "allow_tf32", False)
        put(self, "a", self.a.canonical(self.M, self.K))
        put(self, "b", self.b.canonical(self.K, self.N))
        put(self, "bias", _canonical_bias(self.bias, self.B, self.M, self.N))

    @classmethod
    def make(
        cls,
        op: Op | str,
        M: int,
        N: int,
        K: int,
        dtype: DType | str,
        *,
        B: int = 1,
        out_dtype: DType | str | None = None,
        a_layout: Layout | str = Layout.ROW,
        b_layout: Layout | str = Layout.ROW,
        a_align: int | None = None,
        b_align: int | None = None,
        allow_tf32: bool = False,
        bias: Bias | str | None = None,
    ) -> Problem:
        """A problem with the usual things filled in: contiguous operands, the output in the
        operands' type, a vector as the bias of addmm and a full one as that of baddbmm."""
        op = _enum(Op, op, "A problem's op")
        for name, value in (("M", M), ("N", N), ("K", K)):
            _require(
                _is_int(value), f"A problem's {name} is {shown(value)}; it must be a whole number."
            )
        if bias is None:
            bias = {Op.ADDMM: Bias.VECTOR, Op.BADDBMM: Bias.MATRIX}.get(op, Bias.NONE)
        la = _enum(Layout, a_layout, "An operand's layout")
        lb = _enum(Layout, b_layout, "An operand's layout")
        a = Operand.contiguous(la, M, K) if a_align is None else Operand(la, a_align)
        b = Operand.contiguous(lb, K, N) if b_align is None else Operand(lb, b_align)
        return cls(
            op, B, M, N, K,
            dtype,  # type: ignore[arg-type]  # __post_init__ makes the enums
            out_dtype or dtype,  # type: ignore[arg-type]
            a, b, allow_tf32,
            bias,  # type: ignore[arg-type]
        )  # fmt: skip

    def to_dict(self) -> dict[str, Scalar]:
        """The flat form that files and keys hold; `from_dict` is its inverse."""
        return {
            "op": str(self.op),
            "B": self.B,
            "M": self.M,
            "N": self.N,
            "K": self.K,
            "dtype": str(self.dtype),
            "out_dtype": str(self.out_dtype),
            "a_layout": str(self.a.layout),
            "a_align": self.a.align,
            "b_layout": str(self.b.layout),
            "b_align": self.b.align,
            "allow_tf32": self.allow_tf32,
            "bias": str(self.bias),
        }

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> Problem:
        """Raises RecordError on a missing, unknown or impossible field. What `make` can fill
        in may be left out."""
        given = dict(fields)
        unknown = sorted(set(given) - _PROBLEM_FIELDS)
        _require(not unknown, f"A problem has unknown fields: {', '.join(unknown)}.")
        missing = [name for name in ("op", "M", "N", "K", "dtype") if name not in given]
        _require(not missing, f"A problem lacks the fields {', '.join(missing)}.")
        return cls.make(**given)

    @cached_property
    def key(self) -> str:
        """Content key: 32 hex digits."""
        return content_key("problem", self.to_dict())

    @property
    def flops(self) -> float:
        """Floating-point operations: 2·B·M·N·K."""
        return 2.0 * self.B * self.M * self.N * self.K

    def __str__(self) -> str:
        batch = f"{self.B}×" if self.op.batched else ""
        tf32 = " tf32" if self.allow_tf32 else ""
        return (
            f"{self.op} {batch}{self.M}×{self.N}×{self.K} {self.dtype}{tf32} "
            f"{self.a.layout}{self.a.align}/{self.b.layout}{self.b.align}"
        )


_PROBLEM_FIELDS = {
    "op", "B", "M", "N", "K", "dtype", "out_dtype",
    "a_layout", "a_align", "b_layout", "b_align", "allow_tf32", "bias",
}  # fmt: skip


@dataclass(frozen=True)
class Candidate:
    """A kernel that can compute a problem: a template of Inductor and what it is given.

    `template` is Inductor's uid (`aten::mm`, `triton::mm`, `triton::mm_persistent_tma`,
    `decompose_k`, …) and `kwargs` its tunable parameters (BLOCK_M, num_warps, k_split, …).
    What follows from the problem (EVEN_K, ALLOW_TF32, ACC_TYPE) is not among them.
    """

    template: str
    kwargs: tuple[tuple[str, Scalar], ...] = ()

    def __post_init__(self) -> None:
        _require(
            isinstance(self.template, str) and 0 < len(self.template) <= 200,
            f"A candidate's template is {self.template!r}; it must be a name.",
        )
        _require(isinstance(self.kwargs, tuple), "A candidate's kwargs must be (name, value)s.")
        for item in self.kwargs:
            _require(
                isinstance(item, tuple) and len(item) == 2 and isinstance(item[0], str),
                f"A candidate's kwarg is {item!r}; it must be a (name, value).",
            )
            name, value = item
            _require(
                value is None or isinstance(value, (bool, int, float, str)),
                f"A candidate's kwarg {name} is {value!r}; it must be a number, a text, true, "
                "false or null.",
            )
            _require(
                not isinstance(value, float) or math.isfinite(value),
                f"A candidate's kwarg {name} is not finite.",
            )
            _require(
                not isinstance(value, int) or value in KWARG_INTS,
                f"A candidate's kwarg {name} is a whole number of more than 64 bits.",
            )
        ordered = tuple(sorted(self.kwargs, key=lambda item: item[0]))
        _require(len({name for name, _ in ordered}) == len(ordered), "A candidate repeats a kwarg.")
        object.__setattr__(self, "kwargs", ordered)

    @classmethod
    def make(cls, template: str, **kwargs: Scalar) -> Candidate:
        return cls(template, tuple(kwargs.items()))

    @cached_property
    def config(self) -> Mapping[str, Scalar]:
        """The kwargs as a mapping."""
        return MappingProxyType(dict(self.kwargs))

    @cached_property
    def tile(self) -> Mapping[str, Any] | None:
        """The kwargs of a kernel that has a tile, by the names that the table of templates has for
        their columns (block_m, block_n, block_k, stages, warps, …); None where it has no tile."""
        return template_of(self.template).tile_of(self.config)

    def to_dict(self) -> dict[str, Any]:
        return {"template": self.template, "kwargs": dict(self.kwargs)}

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> Candidate:
        """Raises RecordError on a missing, unknown or impossible field."""
        unknown = sorted(set(fields) - {"template", "kwargs"})
        _require(not unknown, f"A candidate has unknown fields: {', '.join(unknown)}.")
        _require("template" in fields, "A candidate lacks the field template.")
        kwargs = fields.get("kwargs", {})
        _require(isinstance(kwargs, Mapping), "A candidate's kwargs must be a mapping.")
        return cls(fields["template"], tuple(kwargs.items()))

    @cached_property
    def key(self) -> str:
        """Content key: 32 hex digits."""
        return content_key("candidate", self.to_dict())

    @property
    def is_extern(self) -> bool:
        """Whether a library (cuBLAS through ATen) computes it, not a generated kernel."""
        return template_of(self.template).extern

    def __str__(self) -> str:
        if self.tile is not None:
            block = "×".join(str(self.tile.get(column)) for column in TILE)
            return f"{self.template} {block} s{self.tile.get('stages')} w{self.tile.get('warps')}"
        rest = " ".join(f"{name}={value}" for name, value in self.kwargs)
        return f"{self.template} {rest}".rstrip()


@dataclass(frozen=True)
class Timing:
    """What timing one candidate on one problem gave, in microseconds.

    A timing has a time (`min_us`, `median_us` or both) or a `failure`, never both.
    `spread_us` is the interquartile range over `repeats` launches.
    """

    min_us: float | None = None
    median_us: float | None = None
    spread_us: float | None = None
    repeats: int | None = None
    failure: Failure | None = None

    def __post_init__(self) -> None:
        for name in ("min_us", "median_us"):
            value = getattr(self, name)
            _require(
                value is None
                or (isinstance(value, (int, float)) and not isinstance(value, bool)
                    and 0 < value <= MAX_US),
                f"A timing's {name} is {value!r}; it must be a positive number, of microseconds "
                "in an hour at most.",
            )  # fmt: skip
        _require(
            self.min_us is None or self.median_us is None or self.min_us <= self.median_us,
            f"A timing's min_us is {self.min_us!r}, more than its median_us, {self.median_us!r}.",
        )
        spread = self.spread_us
        _require(
            spread is None or (isinstance(spread, (int, float)) and 0 <= spread <= MAX_US),
            f"A timing's spread_us is {spread!r}; it must be a number from 0 up, of microseconds "
            "in an hour at most.",
        )
        _require(
            self.repeats is None or (_is_int(self.repeats) and 0 <= self.repeats <= MAX_DIM),
            f"A timing's repeats is {self.repeats!r}; it must be a whole number from 0 to "
            f"{MAX_DIM}.",
        )
        if self.failure is not None:
            object.__setattr__(self, "failure", _enum(Failure, self.failure, "A timing's failure"))
        timed = self.min_us is not None or self.median_us is not None
        _require(timed != (self.failure is not None), "A timing has either a time or a failure.")

    @property
    def time_us(self) -> float | None:
        """The time that is compared and learned: the least, which other work on the machine
        disturbs least, else the median; None where it failed."""
        return self.min_us if self.min_us is not None else self.median_us
