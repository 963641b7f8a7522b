"""What an operator is: one record. All code that depends on the op reads it.

A module of this folder describes one operator, or a few similar ones. The table of the folder has a
line for each: see docs/extending.md.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from operator import attrgetter
from types import MappingProxyType
from typing import Any, NamedTuple

from diode_engine.core.checks import is_int, shown
from diode_engine.core.operand import INNER, Bias, DType, Layout, Operand
from diode_engine.errors import RecordError

Scalar = bool | int | float | str | None
# By "B", "M", "N" and "K": whole numbers, Inductor's symbols, or columns of the store.
Sizes = Mapping[str, Any]
# "bias", a Bias; "out_dtype", a DType; and the op's attributes by their names.
Fields = Mapping[str, Any]
_LAYOUTS = tuple((a, b) for a in Layout for b in Layout)


class TensorShape(NamedTuple):
    """A tensor without its data. Strides are in elements; the type is a DType, or None where
    Diode has no name for it."""

    size: tuple[Any, ...]
    stride: tuple[Any, ...]
    dtype: Any


@dataclass(frozen=True)
class Matrix:
    """An input that is multiplied: a matrix, or one for each element of a batch.

    The layout and alignment of "a" and "b" are fields of the problem. Any other matrix has no gaps;
    it is row-major, unless the op has an attribute NAME_layout that says otherwise. All have the
    problem's type, unless the op has an attribute NAME_dtype. The matrices of a batch lie one after
    another, unless the op has an attribute NAME_batch that says otherwise.
    """

    name: str
    dims: tuple[str, ...]  # names of sizes: the batch, if it has one, then rows and columns


@dataclass(frozen=True)
class SideInput:
    """An input that is not multiplied and has no gaps: a bias, scales, offsets of groups."""

    name: str
    # The sizes of its dimensions; None where the problem has no such input.
    shape: Callable[[Sizes, Fields], tuple[Any, ...] | None]
    # None: the type of the operands.
    dtype: DType | Callable[[Fields], DType] | None = None
    # Makes the tensor for timing, from torch, the shape, the problem and a torch.Generator, on
    # whose device the tensor is. Where it is None or returns None: normal random numbers.
    values: Callable[[Any, TensorShape, Any, Any], Any] | None = None
    # Makes more such tensors: a candidate's time is the mean over all of them.
    others: Callable[[Any, TensorShape, Any, Any], list[Any]] | None = None
    # The names of its sizes, where no matrix has these sizes.
    dims: tuple[str, ...] = ()
    # The dimension whose elements lie side by side: -1 is the last one; a matrix may have -2.
    contiguous: Callable[[Fields], int] = lambda fields: -1


@dataclass(frozen=True)
class Attribute:
    """A field that only the problems of one operator have. Its usual value is the first of
    `values`. A field with its usual value is left out of keys, files and the store."""

    name: str
    values: tuple[Scalar, ...] | range  # a range: a whole number (of groups, for example)

    @property
    def usual(self) -> Scalar:
        return self.values[0]

    def allows(self, value: object) -> bool:
        """Whether the field may have this value. 1, 1.0 and True are three different values."""
        if isinstance(self.values, range):
            return is_int(value) and value in self.values
        return any(type(value) is type(each) and value == each for each in self.values)

    @property
    def must_be(self) -> str:
        """The allowed values, as words of a sentence."""
        if isinstance(self.values, range):
            return f"a whole number from {self.values[0]} to {self.values[-1]}"
        return f"one of {', '.join(map(repr, self.values))}"


def gemm_flops(sizes: Sizes) -> Any:
    """Floating-point operations of a product, or of a batch of products: 2·B·M·N·K."""
    return 2.0 * sizes["B"] * sizes["M"] * sizes["N"] * sizes["K"]


@dataclass(frozen=True, eq=False, repr=False)
class Operator(str):
    """An operator that Diode chooses kernels for. The record is a str, too: the operator's name, as
    Inductor, keys and files have it.

    The output is row-major and has no gaps.
    """

    name: str
    # In the order of a call of the op; Inductor has the same order. Inputs that only some problems
    # have come last.
    inputs: tuple[Matrix | SideInput, ...]
    output: tuple[str, ...]  # names of sizes
    # Names of templates (core/templates) that Inductor offers for it, besides those whose record
    # names the operator.
    templates: tuple[str, ...] = ()
    # The biases that it may have; the first is the default.
    biases: tuple[Bias, ...] = (Bias.NONE,)
    attributes: tuple[Attribute, ...] = ()
    dtypes: tuple[DType, ...] = tuple(DType)  # of the operands
    # The default type of the output, by that of the operands; the same type, if it is not here.
    out_dtypes: Mapping[DType, DType] = field(default_factory=dict)
    flops: Callable[[Sizes], Any] = gemm_flops
    # The reference: from torch and the problem, it makes the function of the inputs. By default,
    # torch.NAME.
    function: Callable[[Any, Any], Callable[..., Any]] = lambda torch, p: getattr(torch, p.op)
    # Makes the attributes from the inputs that Inductor gives, by name; returns None where Diode
    # has no such problem.
    read: Callable[[Mapping[str, TensorShape]], Fields | None] = lambda tensors: {}
    # Makes the attributes that no tensor shows, from the kwargs that Inductor sets for templates.
    read_kwargs: Callable[[Mapping[str, Any]], Fields | None] = lambda kwargs: {}
    aten: str = ""  # its name in torch.ops.aten, whose lowering asks for choices; "": the same
    # The function that asks for choices, as "module:name", where ATen has no such op.
    lowering: str = ""
    # What the op is called with in addition to its inputs.
    keywords: Callable[[Any, Fields], Mapping[str, Any]] = lambda torch, fields: {}
    # The layouts that the operands a and b may have; the first pair is the default.
    layouts: tuple[tuple[Layout, Layout], ...] = _LAYOUTS
    # The size that is divided among B groups. How it is divided is not known when compiling.
    divided: str = ""
    # Inductor chooses for this op itself, without asking (see inductor/hook/grouped_products.py).
    bypasses_hook: bool = False
    fuses_epilogue: bool = True  # into a Triton template: pointwise ops that follow
    # How often sources of problems draw it (a weight; 0: never), and the biases that they draw,
    # each with its weight.
    drawn: int = 0
    drawn_biases: tuple[tuple[Bias, int], ...] = ()

    matrices: tuple[Matrix, ...] = field(init=False)
    side_inputs: tuple[SideInput, ...] = field(init=False)
    batched: bool = field(init=False)  # whether problems have a B
    biased: bool = field(init=False)  # whether all of them have a bias
    # Of a problem: the sizes of the output, and those of each matrix.
    output_of: Callable[[Any], tuple[int, ...]] = field(init=False)
    matrices_of: tuple[Callable[[Any], tuple[int, ...]], ...] = field(init=False)

    def __new__(cls, name: str, *_: Any, **__: Any) -> Operator:
        return super().__new__(cls, name)

    def __post_init__(self) -> None:
        put = object.__setattr__
        matrices = tuple(each for each in self.inputs if isinstance(each, Matrix))
        others = tuple(each for each in self.inputs if isinstance(each, SideInput))
        put(self, "aten", self.aten or self.name)
        put(self, "matrices", matrices)
        put(self, "side_inputs", others)
        put(self, "output_of", attrgetter(*self.output))
        put(self, "matrices_of", tuple(attrgetter(*matrix.dims) for matrix in matrices))
        put(
            self, "batched", any("B" in dims for dims in (self.output, *(m.dims for m in matrices)))
        )
        put(self, "biased", Bias.NONE not in self.biases)

    def __reduce__(self) -> tuple[Any, ...]:
        return find_operator, (self.name,)

    def fields(
        self, bias: Bias, out_dtype: DType, given: tuple[tuple[str, Scalar], ...]
    ) -> dict[str, Any]:
        """The fields of a problem that an op's functions are given. An attribute that is not in
        `given` has its usual value."""
        found: dict[str, Any] = {"bias": bias, "out_dtype": out_dtype}
        if self.attributes:
            found |= {attribute.name: attribute.usual for attribute in self.attributes}
            found |= dict(given)
        return found

    def input_shapes(
        self, sizes: Sizes, dtype: DType, fields: Fields, operands: Mapping[str, Operand]
    ) -> dict[str, TensorShape]:
        """The inputs by name, in the order of a call. `operands` has "a" and "b". Where the
        contiguous size of a matrix is one of Inductor's symbols, the matrix has no gaps."""

        def type_of(side: SideInput) -> DType:
            of = side.dtype
            return dtype if of is None else of if isinstance(of, DType) else of(fields)

        shapes: dict[str, TensorShape] = {}
        for each in self.inputs:
            if isinstance(each, Matrix):
                *batch, rows, cols = size = tuple(sizes[dim] for dim in each.dims)
                operand = operands.get(each.name)
                layout = operand.layout if operand else fields.get(f"{each.name}_layout", "row")
                inner, outer = (cols, rows) if layout == Layout.ROW else (rows, cols)
                lead = inner
                if operand and isinstance(inner, int):
                    lead = operand.leading_stride(inner, inner)
                stride: tuple[Any, ...] = (lead, 1) if layout == Layout.ROW else (1, lead)
                if batch:
                    stride = (lead * outer, *stride)
                    if operand and fields.get(f"{each.name}_batch") == INNER:
                        stride = operand.inner_strides(*size)
                own_type = DType(fields.get(f"{each.name}_dtype", dtype))
                shapes[each.name] = TensorShape(size, stride, own_type)
            else:
                found = each.shape(sizes, fields)
                if found is not None:
                    strides = dense(found)
                    if each.contiguous(fields) == -2:
                        strides = (1, found[0])
                    shapes[each.name] = TensorShape(found, strides, type_of(each))
        return shapes


def dense(size: tuple[Any, ...]) -> tuple[Any, ...]:
    """The strides of a row-major tensor without gaps."""
    strides = [1]
    for length in reversed(size[1:]):
        strides.append(strides[-1] * length)
    return tuple(reversed(strides[: len(size)]))


_TABLE: dict[str, Operator] = {}
OPERATORS: Mapping[str, Operator] = MappingProxyType(_TABLE)  # by name, in the table's order


def register(operator: Operator) -> Operator:
    """Puts the operator into the table. Raises RecordError where its name is taken."""
    if operator.name in _TABLE:
        raise RecordError(f"There is an operator {operator} already.")
    _TABLE[operator.name] = operator
    return operator


def find_operator(name: object) -> Operator:
    """The operator of this name. Raises RecordError where there is none."""
    found = _TABLE.get(name) if isinstance(name, str) else None
    if found is None:
        known = ", ".join(_TABLE)
        raise RecordError(f"A problem's op is {shown(name)}; it must be one of {known}.")
    return found
