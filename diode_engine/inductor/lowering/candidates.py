"""Problems and candidates as Inductor knows them.

`problem_of` reads the problem from Inductor's kernel inputs, `candidate_of` the candidate from a
KernelTemplateChoice, and `candidate_from` from what that is made of.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch

from diode_engine.core.problem import Bias, Candidate, DType, Op, Operand, Problem, Scalar
from diode_engine.core.templates import template_of
from diode_engine.errors import RecordError


def dtype_of(dtype: torch.dtype) -> DType | None:
    """None where Diode has no name for it."""
    try:
        return DType(str(dtype).removeprefix("torch."))
    except ValueError:
        return None


def tf32_allowed() -> bool:
    """Whether float32 products may use TF32 in the compile under way."""
    # as Inductor asks; `allow_tf32` raises once a program has set this one (torch 2.9)
    return str(torch.backends.cuda.matmul.fp32_precision) == "tf32"


def problem_of(kernel_inputs: Any, op_name: str) -> Problem | None:
    """The problem that Inductor asks `op_name` for, dynamic shapes by their hints.

    None where Diode has no such problem: another op, dtype, or an operand whose strides are
    both larger than one.
    """
    if op_name not in tuple(Op) or not hasattr(kernel_inputs, "mnk_hinted"):
        return None
    return problem_from(
        op_name,
        kernel_inputs.shapes_hinted(),
        _strides(kernel_inputs),
        kernel_inputs.dtypes(),
        kernel_inputs.out_dtype(),
    )


def is_broadcast(kernel_inputs: Any) -> bool:
    """Whether a matrix of a batched product stands for the whole batch, by a stride of 0: it is
    read once, where a Problem's are as many as the batch."""
    shapes, strides = kernel_inputs.shapes_hinted()[-2:], _strides(kernel_inputs)[-2:]
    return any(
        len(shape) == 3 and shape[0] > 1 and stride[0] == 0
        for shape, stride in zip(shapes, strides, strict=True)
    )


def _strides(kernel_inputs: Any) -> Sequence[Sequence[int]]:
    """The strides of all operands by their hints. A bias that Inductor has yet to compute has none
    (on torch up to 2.12 it is asked about like that where nothing is autotuned): it is computed
    into a tensor without gaps."""
    try:
        strides: Sequence[Sequence[int]] = kernel_inputs.strides_hinted()
    except NotImplementedError:
        _, *matrices = kernel_inputs.nodes()
        shape = kernel_inputs.shapes_hinted()[0]
        without_gaps = [math.prod(shape[i + 1 :]) for i in range(len(shape))]
        return [without_gaps, *type(kernel_inputs)(matrices).strides_hinted()]
    return strides


def problem_from(
    op_name: str,
    shapes: Sequence[Sequence[int]],
    strides: Sequence[Sequence[int]],
    dtypes: Sequence[torch.dtype],
    out_dtype: torch.dtype,
) -> Problem | None:
    """The problem of the op with these operands, in its own order (the bias first, the matrices
    last); None as `problem_of`."""
    op = Op(op_name)
    given, out = dtype_of(dtypes[-2]), dtype_of(out_dtype)
    if given is None or out is None or dtypes[-1] != dtypes[-2]:
        return None
    a, b = (_operand(shapes[place], strides[place]) for place in (-2, -1))
    if a is None or b is None:
        return None
    (m, k), n = map(int, shapes[-2][-2:]), int(shapes[-1][-1])
    try:
        return Problem(
            op=op,
            B=int(shapes[-2][0]) if op.batched else 1,
            M=m,
            N=n,
            K=k,
            dtype=given,
            out_dtype=out,
            a=a,
            b=b,
            allow_tf32=given is DType.FLOAT32 and tf32_allowed(),
            bias=_bias(shapes[0], strides[0], m, n) if op.biased else Bias.NONE,
        )
    except RecordError:  # an empty matrix
        return None


def _operand(shape: Sequence[int], stride: Sequence[int]) -> Operand | None:
    rows, cols = int(shape[-2]), int(shape[-1])
    return Operand.from_strides(rows, cols, (int(stride[-2]), int(stride[-1])))


def _bias(shape: Sequence[int], stride: Sequence[int], m: int, n: int) -> Bias:
    """A bias comes as it is or already expanded to the output, by strides of 0."""
    *batch, rows, cols = (
        size == 1 or step == 0
        for size, step in zip((1, 1, *shape)[-3:], (0, 0, *stride)[-3:], strict=True)
    )
    if not all(batch):  # one for each of the batch, which a single row or column is all of
        rows, cols = rows and m > 1, cols and n > 1
    if rows and cols:
        return Bias.SCALAR
    if rows:
        return Bias.VECTOR
    return Bias.COLUMN if cols else Bias.MATRIX


def candidate_of(choice: Any) -> Candidate:
    """The candidate behind a KernelTemplateChoice: its template and tunable kwargs.

    From torch 2.13 on aten::addmm is given a bias that is a vector as it is, and not as a matrix,
    for which cuBLAS is slower. That is the call aten::bias_addmm makes before, and called so."""
    uid = choice.template.uid
    with_vector = template_of(uid).recorded_with_bias_vector
    if with_vector and len(choice.inputs.nodes()[0].get_size()) == 1:
        uid = with_vector
    return candidate_from(uid, choice.params)


def candidate_from(uid: str, params: Any) -> Candidate:
    """The candidate of the template with these KernelTemplateParams."""
    tunable = template_of(uid).tunable
    kwargs: dict[str, Scalar] = {
        name: value for name, value in params.to_kwargs().items() if name in tunable
    }
    return Candidate.make(uid, **kwargs)
