"""A product of matrices. It is immutable, validated when it is made, and has a key made of its
content."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from diode_engine.core.checks import is_int, member, require, shown
from diode_engine.core.content_key import content_key
from diode_engine.core.operand import INNER, Bias, DType, Layout, Operand, canonical_bias
from diode_engine.core.operators import OPERATORS, Operator, find_operator
from diode_engine.core.operators.specification import Attribute, Scalar, TensorShape
from diode_engine.errors import RecordError

MAX_DIM = 2**31 - 1  # of a size
SIZES = ("B", "M", "N", "K")


@dataclass(frozen=True)
class Problem:
    """out[B, M, N] = a[B, M, K] @ b[B, K, N] (+ bias), or the result of another op on such
    operands, as a program asks Inductor for it.

    The output is row-major and has no gaps. The matrices of a batch lie one after another, unless
    an attribute says that the batch is innermost (docs/dataset-format.md). `allow_tf32` says
    whether a float32 product may be computed in TF32; it is False for all other types, where it has
    no meaning. Where a dimension of length 1 makes two layouts or two forms of the bias the same,
    the record has always the same one of them. `attributes` are (name, value)s of the op's own
    fields, without those that have their usual value.

    Raises RecordError where a field is impossible (a batch for mm, a bias for bmm, …).
    """

    op: Operator
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
    attributes: tuple[tuple[str, Scalar], ...] = ()

    def __post_init__(self) -> None:
        put = object.__setattr__
        op = self.op if isinstance(self.op, Operator) else find_operator(self.op)
        put(self, "op", op)
        put(self, "dtype", member(DType, self.dtype, "A problem's dtype"))
        put(self, "out_dtype", member(DType, self.out_dtype, "A problem's out_dtype"))
        put(self, "bias", member(Bias, self.bias, "A problem's bias"))
        for name in SIZES:
            value = getattr(self, name)
            if not (is_int(value) and 1 <= value <= MAX_DIM):
                raise RecordError(
                    f"A problem's {name} is {shown(value)}; it must be a whole number from 1 to "
                    f"{MAX_DIM}."
                )
        if self.B > 1 and not op.batched:
            batched = ", ".join(each for each in OPERATORS.values() if each.batched)
            raise RecordError(
                f"A problem of op {op} has B = {self.B}; only {batched} have a batch."
            )
        for name, allowed in (("dtype", op.dtypes), ("bias", op.biases)):
            if (value := getattr(self, name)) not in allowed:
                raise RecordError(
                    f"A problem of op {op} has {name} {value}; it must be one of "
                    f"{', '.join(allowed)}."
                )
        for name in ("a", "b"):
            if not isinstance(getattr(self, name), Operand):
                raise RecordError(f"A problem's {name} must be an Operand.")
        require(isinstance(self.allow_tf32, bool), "A problem's allow_tf32 must be true or false.")
        if self.dtype is not DType.FLOAT32:
            put(self, "allow_tf32", False)
        if (self.a.layout, self.b.layout) not in op.layouts:
            known = ", ".join(f"{a}/{b}" for a, b in op.layouts)
            raise RecordError(
                f"A problem of op {op} has the layouts {self.a.layout}/{self.b.layout}; they must "
                f"be {known}."
            )
        if self.attributes:
            put(self, "attributes", _unusual(op, self.attributes))
            self._settle_inner_batches()
        put(self, "a", self.a.canonical(self.M, self.K))
        put(self, "b", self.b.canonical(self.K, self.N))
        bias = canonical_bias(self.bias, self.B, self.M, self.N)
        if bias in op.biases:
            put(self, "bias", bias)

    def _settle_inner_batches(self) -> None:
        """Gives each operand whose batch is innermost its one form: with the alignment 1, since no
        vectors can be loaded; or without the attribute, where the batch, the rows or the columns
        have the length 1."""
        put = object.__setattr__
        for name, rows, cols in (("a", self.M, self.K), ("b", self.K, self.N)):
            if name not in self.inner_batches:
                continue
            operand: Operand = getattr(self, name)
            if min(self.B, rows, cols) > 1:
                put(self, name, Operand(operand.layout, 1))
                continue
            _, row, col = operand.inner_strides(self.B, rows, cols)
            put(self, name, Operand.from_strides(rows, cols, (row, col)))
            others = tuple(each for each in self.attributes if each[0] != f"{name}_batch")
            put(self, "attributes", others)

    @classmethod
    def make(
        cls,
        op: Operator | str,
        M: int,
        N: int,
        K: int,
        dtype: DType | str,
        *,
        B: int = 1,
        out_dtype: DType | str | None = None,
        a_layout: Layout | str | None = None,
        b_layout: Layout | str | None = None,
        a_align: int | None = None,
        b_align: int | None = None,
        allow_tf32: bool = False,
        bias: Bias | str | None = None,
        **attributes: Scalar,
    ) -> Problem:
        """A problem with defaults filled in: contiguous operands, the output in the operands' type,
        and the op's usual bias (a vector for addmm, a full matrix for baddbmm). `attributes` are
        those of the op."""
        op = find_operator(op)
        for name, value in (("M", M), ("N", N), ("K", K)):
            if not is_int(value):
                raise RecordError(
                    f"A problem's {name} is {shown(value)}; it must be a whole number."
                )
        dtype = member(DType, dtype, "A problem's dtype")
        usual = op.layouts[0]
        la = member(Layout, a_layout or usual[0], "An operand's layout")
        lb = member(Layout, b_layout or usual[1], "An operand's layout")
        a = Operand.contiguous(la, M, K) if a_align is None else Operand(la, a_align)
        b = Operand.contiguous(lb, K, N) if b_align is None else Operand(lb, b_align)
        return cls(
            op, B, M, N, K,
            dtype,
            out_dtype or op.out_dtypes.get(dtype, dtype),  # type: ignore[arg-type]
            a, b, allow_tf32,
            op.biases[0] if bias is None else bias,  # type: ignore[arg-type]
            tuple(attributes.items()),
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
            **dict(self.attributes),
        }

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> Problem:
        """Raises RecordError on a missing, unknown or impossible field. What `make` can fill
        in may be left out."""
        given = dict(fields)
        unknown = set(given) - FIELDS
        if unknown and "op" in given:
            unknown -= {attribute.name for attribute in find_operator(given["op"]).attributes}
        require(not unknown, f"A problem has unknown fields: {', '.join(sorted(unknown))}.")
        missing = [name for name in ("op", "M", "N", "K", "dtype") if name not in given]
        require(not missing, f"A problem lacks the fields {', '.join(missing)}.")
        return cls.make(**given)

    @cached_property
    def key(self) -> str:
        """Content key: 32 hex digits."""
        return content_key("problem", self.to_dict())

    @property
    def sizes(self) -> dict[str, int]:
        """B, M, N and K by their names."""
        return {"B": self.B, "M": self.M, "N": self.N, "K": self.K}

    @property
    def inner_batches(self) -> tuple[str, ...]:
        """The names of the operands ("a", "b") whose batch is the innermost dimension."""
        if not self.attributes:
            return ()
        given = dict(self.attributes)
        return tuple(name for name in ("a", "b") if given.get(f"{name}_batch") == INNER)

    @property
    def one_group(self) -> tuple[int, int, int]:
        """M, N and K of one group: the size that is divided among the groups is its mean part,
        rounded down."""
        sizes = {dim: getattr(self, dim) for dim in "MNK"}
        if self.op.divided:
            sizes[self.op.divided] //= self.B
        return sizes["M"], sizes["N"], sizes["K"]

    @property
    def flops(self) -> float:
        """Floating-point operations: 2·B·M·N·K for each product that the op makes."""
        flops: float = self.op.flops(self.sizes)
        return flops

    @property
    def op_fields(self) -> dict[str, Any]:
        """The bias, the output's type and all attributes of the op, usual ones too."""
        return self.op.fields(self.bias, self.out_dtype, self.attributes)

    def input_shapes(self) -> dict[str, TensorShape]:
        """The tensors that the op is given, by name, in its order."""
        operands = {"a": self.a, "b": self.b}
        return self.op.input_shapes(self.sizes, self.dtype, self.op_fields, operands)

    @property
    def output_size(self) -> tuple[int, ...]:
        """The sizes of the output's dimensions."""
        return self.op.output_of(self)

    @property
    def moved_bytes(self) -> tuple[int, int]:
        """Two numbers of bytes that are moved at least, with each input read once: those of the
        matrices that are multiplied, and those of all inputs and the output."""
        op, size = self.op, self.out_dtype.itemsize
        operands = self.dtype.itemsize * sum([math.prod(of(self)) for of in op.matrices_of])
        moved: int = operands + math.prod(op.output_of(self)) * size
        if op.side_inputs:
            sizes, fields = self.sizes, self.op_fields
            for each in op.side_inputs:
                shape = each.shape(sizes, fields)
                if shape is not None:
                    # an input without a type of its own counts as if it had the output's
                    own = each.dtype if isinstance(each.dtype, DType) else None
                    moved += math.prod(shape) * (own.itemsize if own else size)
        return operands, moved

    def __str__(self) -> str:
        batch = f"{self.B}×" if self.op.batched else ""
        tf32 = " tf32" if self.allow_tf32 else ""
        unusual = "".join(f" {name}={value}" for name, value in self.attributes)
        return (
            f"{self.op} {batch}{self.M}×{self.N}×{self.K} {self.dtype}{tf32} "
            f"{self.a.layout}{self.a.align}/{self.b.layout}{self.b.align}{unusual}"
        )


def _unusual(op: Operator, given: tuple[tuple[str, Scalar], ...]) -> tuple[tuple[str, Scalar], ...]:
    """The attributes that do not have their usual value, sorted by name. Raises RecordError where
    one is unknown or has an impossible value."""
    known: dict[str, Attribute] = {attribute.name: attribute for attribute in op.attributes}
    for name, value in given:
        require(name in known, f"A problem of op {op} has no field {name}.")
        require(
            known[name].allows(value),
            f"A problem of op {op} has {name} = {shown(value)}; it must be {known[name].must_be}.",
        )
    return tuple(sorted((name, value) for name, value in given if value != known[name].usual))


# The fields that problems of all ops have.
FIELDS = {
    "op", "B", "M", "N", "K", "dtype", "out_dtype",
    "a_layout", "a_align", "b_layout", "b_align", "allow_tf32", "bias",
}  # fmt: skip
