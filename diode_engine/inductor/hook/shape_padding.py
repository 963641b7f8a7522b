"""Whether to pad a product's sizes to the alignment that tensor cores want, by the model.

With the option shape_padding Inductor times the product as it is and padded, on the device,
before it lowers anything. Where Diode chooses kernels, it predicts both instead:

    pad, where  taken(problem) > margin · (taken(padded problem) + copies)

`taken` is the predicted time of the kernel that would be taken. The margin is that of a choice of
which the model is not sure (MARGIN of `choosing/policy.py`), since two predictions take part; and
_LIBRARY_MARGIN where both kernels are the library's, of which neither is a risk, on tensor cores.
Without these (float32 without TF32) padding gains little: less than a prediction may be wrong by.

A padded operand keeps the order of its dimensions, as Inductor lays it out. Where that is not
row-major, the library's kernel is taken (`lowering/layouts.py`). A copy reads the operand and
writes the padded one at memory bandwidth, and is a launch. An operand that can be made padded from
the start is a launch, which fills what is added.

Where the model is less sure of a choice than diode_confidence_threshold asks, Inductor times both.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from math import inf, prod
from types import SimpleNamespace
from typing import Any

from torch._inductor import config
from torch._inductor.fx_passes import pad_mm

from diode_engine.choosing.choice import Choice
from diode_engine.choosing.policy import MARGIN
from diode_engine.core.operand import DType
from diode_engine.core.operators import find_operator
from diode_engine.core.operators.specification import Matrix, dense
from diode_engine.inductor.choosing import search
from diode_engine.inductor.choosing.compile_options import (
    chooses_in_any_mode,
    has_frozen_choices,
    is_batch_invariant,
    takes_one_kernel,
)
from diode_engine.inductor.choosing.current import current_chooser, report_failure
from diode_engine.inductor.choosing.outside_graph import choose_outside_graph, is_sure
from diode_engine.inductor.choosing.product_chooser import ProductChooser
from diode_engine.inductor.fusion.epilogue import LAUNCH_US
from diode_engine.inductor.guard import STOCK
from diode_engine.inductor.lowering.candidates import problem_from
from diode_engine.inductor.patches import Patches, check_called, patch_attribute
from diode_engine.inductor.torch_internals.wrapped_functions import SHOULD_PAD

# By how much the library's padded product must be faster on tensor cores. It loses the least
# against what timing would decide (docs/notes/margins.md).
_LIBRARY_MARGIN = 1.05


def check_place() -> None:
    """Have Inductor's decision call a dummy."""
    with patch_attribute(pad_mm, "can_pad", lambda *_: True):
        nothing: Any = None
        match: Any = SimpleNamespace(output_node=lambda: SimpleNamespace(meta={}))
        decide = functools.partial(pad_mm.should_pad, match, nothing, nothing, nothing)
        check_called(pad_mm, SHOULD_PAD, decide)


def apply(patches: Patches) -> None:
    """Wrap Inductor's benchmark."""
    patches.guard(pad_mm, SHOULD_PAD, _should_pad, "padding was not decided", report_failure)


def _should_pad(match: Any, mat1: Any, mat2: Any, op: Any, bias: Any = None) -> Any:
    chooser = current_chooser()
    answer = None if chooser is None else _decide(chooser, match, mat1, mat2, op, bias)
    return STOCK if answer is None else answer


def _decide(
    chooser: ProductChooser, match: Any, mat1: Any, mat2: Any, op: Any, bias: Any
) -> bool | None:
    """Return whether to pad; None where Inductor decides: Diode does not or cannot choose here, or
    Inductor needs no benchmark for its answer."""
    tuning = bool(config.max_autotune or config.max_autotune_gemm)
    if not (tuning or chooses_in_any_mode()):
        return None
    if config.force_shape_pad or "pad_aten_mm_pass" in config.post_grad_fusion_options:
        return None
    if is_batch_invariant():
        return False
    answer = _predict(chooser, match, mat1, mat2, op, bias)
    if answer is None:
        # fast_autotune benchmarks nothing unless the threshold asks for it
        options: Any = config
        may_time = tuning or options.diode_confidence_threshold > 0
        return None if may_time and not takes_one_kernel() else False
    chooser.outcomes.stats.count("padding_decided")
    return answer


def _predict(
    chooser: ProductChooser, match: Any, mat1: Any, mat2: Any, op: Any, bias: Any
) -> bool | None:
    """Return whether padding is predicted to be faster; None where that cannot be predicted surely
    enough, or the program has changed Inductor's search."""
    if search.find_alteration() is not None:
        return None
    tensors = [t for t in (bias, mat1, mat2) if t is not None]
    shapes = [tuple(_hint(size) for size in t.shape) for t in tensors]
    strides = [tuple(_hint(step) for step in t.stride()) for t in tensors]
    if any(x is None for each in (*shapes, *strides) for x in each):
        return None
    (m, k), n = shapes[-2][-2:], shapes[-1][-1]
    sizes = {"M": mat1.shape[-2], "K": mat1.shape[-1], "N": mat2.shape[-1], "B": mat1.shape[0]}
    dynamic = {name for name, size in sizes.items() if not isinstance(size, int)}
    is_for_all_sizes = bool(dynamic) and has_frozen_choices()
    if not is_for_all_sizes and not pad_mm.is_mm_compute_bound(m, k, n, mat1.dtype):
        return False
    align = pad_mm.get_alignment_size(mat1)
    more = {name: pad_mm.get_padded_length(sizes[name], align) for name in "MK"}
    more["N"] = pad_mm.get_padded_length(sizes["N"], pad_mm.get_alignment_size(mat2))
    operator = find_operator(op.__name__)
    padded_shapes, padded_strides, copies_us = [], [], 0.0
    for given, t, shape, stride in zip(operator.inputs, tensors, shapes, strides, strict=True):
        grown = _padded_shape(given, shape, operator.output, more)
        padded_shapes.append(grown)
        padded_strides.append(stride if grown == shape else _without_gaps(grown, stride))
        if grown != shape:
            theirs = {"a": "mat1", "b": "mat2"}.get(given.name)
            free = theirs is not None and pad_mm.should_exclude_padding_time(match, theirs)
            moved = 0 if free else (prod(shape) + prod(grown)) * t.dtype.itemsize
            copies_us += moved / max(chooser.hardware.memory_gb_s * 1e3, 1.0) + LAUNCH_US
    moves = any(
        grown != shape and stride != dense(grown)
        for shape, grown, stride in zip(shapes, padded_shapes, padded_strides, strict=True)
    )
    dtypes = [t.dtype for t in tensors]
    before = problem_from(operator, shapes, strides, dtypes, mat1.dtype)
    after = problem_from(operator, padded_shapes, padded_strides, dtypes, mat1.dtype)
    if before is None or after is None:
        return None

    def by_model() -> bool | None:
        plain, padded = (
            choose_outside_graph(chooser, problem, mat1.device) for problem in (before, after)
        )
        if plain is None or padded is None or not (is_sure(plain) and is_sure(padded)):
            return None
        return is_faster_padded(plain, padded, copies_us, moves=moves)

    return chooser.decide("pad", before, by_model, dynamic)


def is_faster_padded(plain: Choice, padded: Choice, copies_us: float, *, moves: bool) -> bool:
    """Return whether a product is to be padded, by the choices without and with that. Where an
    operand of the padded product `moves` to another layout, the library's kernel is taken."""
    padded_us, by_library = padded.predicted_us[0], padded.candidates[0].is_extern
    if moves and not by_library and padded.library_us is not None:
        padded_us, by_library = padded.library_us, True
    by_library = by_library and plain.candidates[0].is_extern
    problem = plain.problem
    tensor_cores = problem.dtype is not DType.FLOAT32 or problem.allow_tf32
    margin = _LIBRARY_MARGIN if by_library and tensor_cores else MARGIN
    return plain.predicted_us[0] > margin * (padded_us + copies_us)


def _padded_shape(
    given: Any, shape: tuple[int, ...], output: Sequence[str], more: Mapping[str, int]
) -> tuple[int, ...]:
    """Return the shape of an operand of which the dimensions get `more` elements."""
    dims = given.dims if isinstance(given, Matrix) else output
    added = [more.get(dim, 0) for dim in dims][-len(shape) :]
    if not isinstance(given, Matrix):  # dimensions along which a bias is broadcast are not padded
        added = [a if size != 1 else 0 for a, size in zip(added, shape, strict=True)]
    return tuple(size + a for size, a in zip(shape, added, strict=True))


def _hint(size: Any) -> Any:
    """Return the value of a size in the present tensors; None where it is not known."""
    return size if isinstance(size, int) else size.node.hint


def _without_gaps(shape: Sequence[int], like: Sequence[int]) -> tuple[int, ...]:
    """Return the strides without gaps in the order of the strides `like`, of which those of 0 come
    last."""
    order = sorted(range(len(shape)), key=lambda dim: (like[dim] or inf, -dim))
    return tuple(
        prod(shape[inner] for inner in order[: order.index(dim)]) for dim in range(len(shape))
    )
