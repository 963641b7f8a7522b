"""What an operator is: one record, from which all that depends on the op follows.

A module of this folder describes one operator, or a few that are alike, and the table of the
folder has a line for each of them: see docs/adding-an-operator.md.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from operator import attrgetter
from types import MappingProxyType
from typing import Any, NamedTuple

from diode_engine.core.checks import is_int, shown
from diode_engine.core.operand import Bias, DType, Layout, Operand
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
    """An input that is multiplied: a matrix, or one for each of a batch.

    Layout and alignment of "a" and "b" are fields of the problem. Any other matrix has no gaps; it
    is row-major, unless an attribute NAME_layout of the op says otherwise. All have the problem's
    type, unless an attribute NAME_dtype does."""

    name: str
    dims: tuple[str, ...]  # names of sizes: the batch, if it has one, then rows and columns


@dataclass(frozen=True)
class SideInput:
    """An input that is not multiplied, and has no gaps: a bias, scales, offsets of groups."""

    name: str
    # The sizes of its dimensions; None where the problem has no such input.
    shape: Callable[[Sizes, Fields], tuple[Any, ...] | None]
    # None: the type of the operands.
    dtype: DType | Callable[[Fields], DType] | None = None
    # One for timing, made of torch, the shape, the problem and a torch.Generator, on whose device
    # it is; None, or where it gives None: normal random numbers.
    values: Callable[[Any, TensorShape, Any, Any], Any] | None = None
    # More of them, made likewise: a candidate's time is the mean over all.
    others: Callable[[Any, TensorShape, Any, Any], list[Any]] | None = None
    # Names of its sizes, where no matrix tells these.
    dims: tuple[str, ...] = ()
    # The dimension whose elements lie side by side: -1, the last one, or of a matrix -2.
    contiguous: Callable[[Fields], int] = lambda fields: -1


@dataclass(frozen=True)
class Attribute:
    """A field that only the problems of one operator have. Where it has its usual value, which is
    the first of `values`, it is left out of keys, files and the store."""

    name: str
    values: tuple[Scalar, ...] | range  # a range: a whole number (of groups, for example)

    @property
    def usual(self) -> Scalar:
        return self.values[0]

    def allows(self, value: object) -> bool:
        """Whether it may have this value. 1, 1.0 and True are three values."""
        if isinstance(self.values, range):
            return is_int(value) and value in self.values
        return any(type(value) is type(each) and value == each for each in self.values)

    @property
    def must_be(self) -> str:
        """What it may have, for a sentence."""
        if isinstance(self.values, range):
            return f"a whole number from {self.values[0]} to {self.values[-1]}"
        return f"one of {', '.join(map(repr, self.values))}"


def gemm_flops(sizes: Sizes) -> Any:
    """Floating-point operations of a product for each of a batch: 2·B·M·N·K."""
    return 2.0 * sizes["B"] * sizes["M"] * sizes["N"] * sizes["K"]


def function_of_its_name(torch: Any, problem: Any) -> Callable[..., Any]:
    """torch.NAME."""
    function: Callable[..., Any] = getattr(torch, problem.op)
    return function


def no_attributes(told: Mapping[str, Any]) -> Fields | None:
    """Of an op that has none."""
    return {}


def no_keywords(torch: Any, fields: Fields) -> Mapping[str, Any]:
    """Of an op that takes its inputs only."""
    return {}


@dataclass(frozen=True, eq=False, repr=False)
class Operator(str):
    """An operator that Diode chooses kernels for. It is its name (a str): the one by which
    Inductor asks for choices, and which keys and files have.

    The output is row-major and has no gaps.
    """

    name: str
    # In the order of a call, in which Inductor gives them too; those that not all problems have
    # come last.
    inputs: tuple[Matrix | SideInput, ...]
    output: tuple[str, ...]  # names of sizes
    # Names of templates (core/templates) that Inductor offers for it and that do not name it.
    templates: tuple[str, ...] = ()
    # The biases that it may have; the first is meant where none is named.
    biases: tuple[Bias, ...] = (Bias.NONE,)
    attributes: tuple[Attribute, ...] = ()
    dtypes: tuple[DType, ...] = tuple(DType)  # of the operands
    # The output's type where none is named, by that of the operands; the same, if it is not here.
    out_dtypes: Mapping[DType, DType] = field(default_factory=dict)
    flops: Callable[[Sizes], Any] = gemm_flops
    # The reference: given torch and the problem, the function of the inputs that computes it.
    function: Callable[[Any, Any], Callable[..., Any]] = function_of_its_name
    # The attributes by what Inductor gives, the inputs by their names; None where that is no
    # problem of Diode's.
    read: Callable[[Mapping[str, TensorShape]], Fields | None] = no_attributes
    # The attributes that no tensor tells, by the kwargs that Inductor sets for the op's templates.
    read_kwargs: Callable[[Mapping[str, Any]], Fields | None] = no_attributes
    aten: str = ""  # its name in torch.ops.aten, whose lowering asks for choices; "": the same
    # The function that asks for choices, as "module:name", where ATen has no such op.
    lowering: str = ""
    # What the op is called with besides its inputs.
    keywords: Callable[[Any, Fields], Mapping[str, Any]] = no_keywords
    # What the operands a and b may lie like; the first is meant where none is named.
    layouts: tuple[tuple[Layout, Layout], ...] = _LAYOUTS
    divided: str = ""  # the size that B groups have parts of, which are not known when compiling
    # Inductor makes the op's choices itself and asks nobody for them (inductor's grouped.py).
    beside_hook: bool = False
    fuses_epilogue: bool = True  # into a Triton template: pointwise ops that follow
    # How often sources of problems draw it, in relation to the others, and which biases.
    drawn: int = 0
    drawn_biases: tuple[tuple[Bias, int], ...] = ()

    matrices: tuple[Matrix, ...] = field(init=False)
    side_inputs: tuple[SideInput, ...] = field(init=False)
    batched: bool = field(init=False)  # whether problems have a B
    biased: bool = field(init=False)  # whether all of them have a bias
    # Of a problem: the sizes of the output, and of each matrix.
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
        return named, (self.name,)

    def fields(
        self, bias: Bias, out_dtype: DType, given: tuple[tuple[str, Scalar], ...]
    ) -> dict[str, Any]:
        """What an op's functions are given of a problem, with the usual values of the attributes
        that are not given."""
        found: dict[str, Any] = {"bias": bias, "out_dtype": out_dtype}
        if self.attributes:
            found |= {attribute.name: attribute.usual for attribute in self.attributes}
            found |= dict(given)
        return found

    def input_shapes(
        self, sizes: Sizes, dtype: DType, fields: Fields, operands: Mapping[str, Operand]
    ) -> dict[str, TensorShape]:
        """The inputs by name, in their order. `operands` has "a" and "b". Where a matrix's
        contiguous size is a symbol it has no gaps."""

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
                stride = (lead, 1) if layout == Layout.ROW else (1, lead)
                if batch:
                    stride = (lead * outer, *stride)
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
    """Puts it into the table. Raises RecordError where its name is taken."""
    if operator.name in _TABLE:
        raise RecordError(f"There is an operator {operator} already.")
    _TABLE[operator.name] = operator
    return operator


def named(name: object) -> Operator:
    """The operator of this name. Raises RecordError where there is none."""
    found = _TABLE.get(name) if isinstance(name, str) else None
    if found is None:
        known = ", ".join(_TABLE)
        raise RecordError(f"A problem's op is {shown(name)}; it must be one of {known}.")
    return found
