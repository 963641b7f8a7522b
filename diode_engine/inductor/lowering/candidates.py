"""From Inductor's problems and candidates to Diode's records.

`problem_of` reads the problem from Inductor's kernel inputs, `candidate_of` the candidate from a
KernelTemplateChoice, and `candidate_from` from the parts of one. `template_choice_of` finds the
KernelTemplateChoice of a rendered choice.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import sympy
import torch
from torch._inductor.kernel_inputs import MMKernelInputs

from diode_engine.core.candidate import Candidate
from diode_engine.core.operand import INNER, Bias, DType, Layout, Operand
from diode_engine.core.operators import OPERATORS, Operator
from diode_engine.core.operators.specification import Matrix, Scalar, TensorShape, dense
from diode_engine.core.problem import Problem
from diode_engine.core.templates import template_of
from diode_engine.errors import RecordError
from diode_engine.inductor.torch_internals.versions import at_least


@cache
def dtype_of(dtype: torch.dtype) -> DType | None:
    """Return Diode's type; None where it has none."""
    try:
        return DType(str(dtype).removeprefix("torch."))
    except ValueError:
        return None


def tf32_allowed() -> bool:
    """Return whether float32 products may use TF32 in the present compile."""
    # Inductor reads this one too. The older `allow_tf32` raises where a program has set this one
    # (from torch 2.9 on).
    return str(torch.backends.cuda.matmul.fp32_precision) == "tf32"


def tf32_in_convolutions_only() -> bool:
    """Return whether float32 convolutions may use TF32 and products may not, as by torch's
    defaults."""
    cudnn: Any = torch.backends.cudnn
    return str(cudnn.conv.fp32_precision) == "tf32" and not tf32_allowed()


def problem_of(
    kernel_inputs: Any,
    op_name: str,
    overrides: Mapping[str, Mapping[str, Any]] | None = None,
) -> Problem | None:
    """Return the problem for which Inductor asks under `op_name`; dynamic shapes count by their
    hints. `overrides` are the kwargs that it sets, by template. None where Diode has no such
    problem: another op or dtype, or a matrix without a batch whose strides are both larger than
    one."""
    if op_name not in OPERATORS or not isinstance(kernel_inputs, MMKernelInputs):
        return None
    return problem_from(
        OPERATORS[op_name],
        _sizes(kernel_inputs),
        _strides(kernel_inputs),
        kernel_inputs.dtypes(),
        kernel_inputs.out_dtype(),
        attributes_from(op_name, overrides),
    )


def attributes_from(
    op_name: str, overrides: Mapping[str, Mapping[str, Any]] | None
) -> tuple[tuple[str, Scalar], ...]:
    """Return those attributes of a problem of this op that do not follow from its tensors. They are
    read from `overrides`, the kwargs that Inductor sets for its templates."""
    kwargs = {name: value for each in (overrides or {}).values() for name, value in each.items()}
    return tuple((OPERATORS[op_name].read_kwargs(kwargs) or {}).items())


def is_broadcast(kernel_inputs: Any, op_name: str) -> bool:
    """Return whether a matrix of a batched product stands for the whole batch, with a stride of 0.
    It is read once, while a Problem has as many matrices as the batch."""
    op = OPERATORS[op_name]
    if not op.batched:
        return False
    given = zip(op.inputs, _sizes(kernel_inputs), _strides(kernel_inputs), strict=False)
    return any(
        isinstance(each, Matrix) and len(shape) == 3 and shape[0] > 1 and stride[0] == 0
        for each, shape, stride in given
    )


def _sizes(kernel_inputs: Any) -> Sequence[Sequence[int]]:
    """Return the sizes of all operands by their hints."""
    sizes: Sequence[Sequence[int]] | None = _numbers(kernel_inputs.shapes_symbolic())
    return kernel_inputs.shapes_hinted() if sizes is None else sizes


def _strides(kernel_inputs: Any) -> Sequence[Sequence[int]]:
    """Return the strides of all operands by their hints. A bias that Inductor has yet to compute
    has none (torch up to 2.12 asks so where nothing is autotuned); it will be a tensor without
    gaps."""
    try:
        strides: Sequence[Sequence[int]] | None = _numbers(kernel_inputs.strides_symbolic())
        return kernel_inputs.strides_hinted() if strides is None else strides
    except NotImplementedError:
        _, *matrices = kernel_inputs.nodes()
        without_gaps = dense(tuple(_sizes(kernel_inputs)[0]))
        return [without_gaps, *type(kernel_inputs)(matrices).strides_hinted()]


def _numbers(rows: Sequence[Sequence[Any]]) -> list[tuple[int, ...]] | None:
    """Return the rows as whole numbers; None where one of them is a symbol. (To ask Inductor for
    the hint of a number takes 20 µs.)"""
    if all(isinstance(x, (int, sympy.Integer)) for row in rows for x in row):
        return [tuple(map(int, row)) for row in rows]
    return None


def problem_from(
    op: Operator,
    shapes: Sequence[Sequence[int]],
    strides: Sequence[Sequence[int]],
    dtypes: Sequence[torch.dtype],
    out_dtype: torch.dtype,
    attributes: tuple[tuple[str, Scalar], ...] = (),
) -> Problem | None:
    """Return the problem of the op with these inputs, in the op's order; `attributes` is what
    `attributes_from` returns. None as in `problem_of`."""
    given = {
        each.name: TensorShape(tuple(map(int, shape)), tuple(map(int, stride)), dtype_of(dtype))
        for each, shape, stride, dtype in zip(op.inputs, shapes, strides, dtypes, strict=False)
    }
    matrices = [given[matrix.name] for matrix in op.matrices]
    dtype, out = matrices[0].dtype, dtype_of(out_dtype)
    attributes_of_op = {attribute.name for attribute in op.attributes}
    if (
        dtype is None
        or out is None
        or any(
            given[matrix.name].dtype is not dtype
            for matrix in op.matrices
            if f"{matrix.name}_dtype" not in attributes_of_op
        )
    ):
        return None
    sizes: dict[str, int] = {}
    for matrix, (size, _, _) in zip(op.matrices, matrices, strict=True):
        for dim, length in zip(reversed(matrix.dims), reversed(size), strict=False):
            sizes.setdefault(dim, length)
    for side in op.side_inputs:
        if side.dims and side.name in given:
            for dim, length in zip(side.dims, given[side.name].size, strict=True):
                sizes.setdefault(dim, length)
    read = op.read(given)
    if read is None:
        return None
    a, b = (_operand(given[name], read.get(f"{name}_batch")) for name in ("a", "b"))
    if a is None or b is None:
        return None
    bias = given.get("bias")
    try:
        return Problem(
            op=op,
            B=sizes.get("B", 1),
            M=sizes["M"],
            N=sizes["N"],
            K=sizes["K"],
            dtype=dtype,
            out_dtype=out,
            a=a,
            b=b,
            allow_tf32=dtype is DType.FLOAT32 and tf32_allowed(),
            bias=Bias.NONE if bias is None else _bias(bias, sizes["M"], sizes["N"]),
            attributes=(*read.items(), *attributes),
        )
    except RecordError:  # an empty matrix
        return None


def _operand(matrix: TensorShape, batch: Scalar) -> Operand | None:
    (rows, cols), (row, col) = matrix.size[-2:], matrix.stride[-2:]
    if batch == INNER:
        return Operand(Layout.ROW if row >= col else Layout.COL, 1)
    return Operand.from_strides(rows, cols, (row, col))


def _bias(given: TensorShape, m: int, n: int) -> Bias:
    """Return the kind of a bias of an M × N output, which may be expanded to the output's size with
    strides of 0."""
    *batch, rows, cols = (
        size == 1 or step == 0
        for size, step in zip((1, 1, *given.size)[-3:], (0, 0, *given.stride)[-3:], strict=True)
    )
    # The batch's matrices have biases of their own: where M or N is 1, a row or a column is all of
    # such a bias.
    if not all(batch):
        rows, cols = rows and m > 1, cols and n > 1
    if rows and cols:
        return Bias.SCALAR
    if rows:
        return Bias.VECTOR
    return Bias.COLUMN if cols else Bias.MATRIX


@cache
def is_usable(uid: str) -> bool:
    """Return whether the template's kernels compute the product in this torch."""
    major, minor = template_of(uid).right_from
    return at_least(f"{major}.{minor}")


def candidate_of(choice: Any) -> Candidate:
    """Return the candidate of a KernelTemplateChoice: its template and tunable kwargs. From torch
    2.13 on aten::addmm gets a bias vector as a vector; before, as a matrix, for which cuBLAS is
    slower. The new call is the one that aten::bias_addmm makes before, so it gets that name."""
    uid = choice.template.uid
    with_vector = template_of(uid).recorded_with_bias_vector
    if with_vector and len(choice.inputs.nodes()[0].get_size()) == 1:
        uid = with_vector
    return candidate_from(uid, choice.params)


def candidate_from(uid: str, params: Any) -> Candidate:
    """Return the candidate of the template with these KernelTemplateParams."""
    tunable = template_of(uid).tunable
    kwargs: dict[str, Scalar] = {
        name: value for name, value in params.to_kwargs().items() if name in tunable
    }
    return Candidate.make(uid, **kwargs)


def annotation_of(choice: Any, name: str) -> Any:
    """Return what the code that made one of Inductor's rendered choices has noted in it under this
    name; None where there is nothing. Choices of others may have no annotations at all."""
    return (getattr(choice, "annotations", None) or {}).get(name)


def template_choice_of(choice: Any) -> Any:
    """Return the KernelTemplateChoice from which the choice was rendered; None where it was made in
    another way, such as another backend's kernels."""
    return annotation_of(choice, "ktc")
