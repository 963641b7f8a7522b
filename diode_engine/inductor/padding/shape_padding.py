"""Whether to pad a product's sizes to the alignment that tensor cores want, by the model.

With the option shape_padding Inductor times the product as it is and padded, on the device,
before it lowers anything. Where Diode chooses kernels, it predicts both instead:

    pad, where  taken(problem) > margin · (taken(padded problem) + copies)

`taken` is the predicted time of the kernel that would be taken; a copy reads an operand and writes
the padded one at memory bandwidth, and is a launch. An operand that can be made padded from the
start is not copied. The margin is that of a choice (`models/preference.py`): 1.1, as Inductor has
it for what else padding brings along, and more in float32, where predictions are less certain.
"""

from __future__ import annotations

import functools
import importlib
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from math import prod
from typing import Any

import torch
from torch._inductor import config

from diode_engine.core.encoding import CandidateTable
from diode_engine.core.problem import Problem
from diode_engine.inductor.choosing import search
from diode_engine.inductor.choosing.chooser import Chooser, current
from diode_engine.inductor.fusion.epilogue import LAUNCH_US
from diode_engine.inductor.lowering import kernels
from diode_engine.inductor.lowering.candidates import problem_from
from diode_engine.inductor.lowering.space import Spaces
from diode_engine.models.preference import margin

_MODULE = "torch._inductor.fx_passes.pad_mm"
_FUNCTION = "_should_pad"

_replaced: list[tuple[Callable[..., bool], Callable[..., bool]]] = []  # ours, theirs


def attach() -> None:
    """Puts itself before Inductor's benchmark, once."""
    module = importlib.import_module(_MODULE)
    original = getattr(module, _FUNCTION, None)
    if original is None or _replaced:
        return

    @functools.wraps(original)
    def should_pad(match: Any, mat1: Any, mat2: Any, op: Any, bias: Any = None) -> bool:
        answer = _answer_or_none(match, mat1, mat2, op, bias)
        return bool(original(match, mat1, mat2, op, bias)) if answer is None else answer

    _replaced.append((should_pad, original))
    setattr(module, _FUNCTION, should_pad)


def detach() -> None:
    """Puts back what was there, unless somebody has replaced it since."""
    for ours, original in _replaced:
        if getattr(sys.modules[_MODULE], _FUNCTION) is ours:
            setattr(sys.modules[_MODULE], _FUNCTION, original)
    _replaced.clear()


def _answer_or_none(match: Any, mat1: Any, mat2: Any, op: Any, bias: Any) -> bool | None:
    """None where it is Inductor's to say: Diode does not choose here or cannot, or Inductor
    needs no benchmark for its answer."""
    chooser = current()
    if chooser is None:
        return None
    try:
        return _answer(chooser, match, mat1, mat2, op, bias)
    except Exception as error:  # noqa: BLE001
        chooser.failed("padding was not decided", error)
        return None


def _answer(chooser: Chooser, match: Any, mat1: Any, mat2: Any, op: Any, bias: Any) -> bool | None:
    tuning = bool(config.max_autotune or config.max_autotune_gemm)
    if not (tuning or config.fast_autotune):  # type: ignore[attr-defined]
        return None
    if config.force_shape_pad or "pad_aten_mm_pass" in config.post_grad_fusion_options:
        return None
    answer = _predicted(chooser, match, mat1, mat2, op, bias)
    if answer is None:
        return None if tuning else False  # fast_autotune benchmarks nothing
    chooser.stats.count("padding_decided")
    return answer


def _predicted(
    chooser: Chooser, match: Any, mat1: Any, mat2: Any, op: Any, bias: Any
) -> bool | None:
    """Whether padding is predicted to pay; None where that cannot be predicted, or the search is
    somebody's."""
    if search.altered() is not None:
        return None
    module: Any = sys.modules[_MODULE]
    tensors = [t for t in (bias, mat1, mat2) if t is not None]
    shapes = [tuple(_hint(size) for size in t.shape) for t in tensors]
    strides = [tuple(_hint(step) for step in t.stride()) for t in tensors]
    if any(x is None for each in (*shapes, *strides) for x in each):
        return None
    (m, k), n = shapes[-2][-2:], shapes[-1][-1]
    if not module.is_mm_compute_bound(m, k, n, mat1.dtype):
        return False
    align = module.get_alignment_size(mat1)
    more = {
        "m": module.get_padded_length(mat1.shape[-2], align),
        "k": module.get_padded_length(mat1.shape[-1], align),
        "n": module.get_padded_length(mat2.shape[-1], module.get_alignment_size(mat2)),
    }
    padded_shapes, padded_strides, copies_us = [], [], 0.0
    dims = {2: ("m", "k"), 1: ("k", "n"), 3: ("m", "n")}  # by the place from the end
    for place, (t, shape, stride) in enumerate(zip(tensors, shapes, strides, strict=True)):
        from_end = len(tensors) - place
        added = [more[dim] for dim in dims[from_end]][-len(shape) :]
        added = [0] * (len(shape) - len(added)) + added
        if from_end == 3:  # a bias that is broadcast stays as it is
            added = [a if size != 1 else 0 for a, size in zip(added, shape, strict=True)]
        grown = tuple(size + a for size, a in zip(shape, added, strict=True))
        padded_shapes.append(grown)
        padded_strides.append(stride if grown == shape else _contiguous(grown))
        name = {2: "mat1", 1: "mat2"}.get(from_end)
        free = name is not None and module.should_exclude_padding_time(match, name)
        if grown != shape and not free:
            moved = (prod(shape) + prod(grown)) * t.dtype.itemsize
            copies_us += moved / max(chooser.hardware.memory_gb_s * 1e3, 1.0) + LAUNCH_US
    dtypes = [t.dtype for t in tensors]
    before = problem_from(op.__name__, shapes, strides, dtypes, mat1.dtype)
    after = problem_from(op.__name__, padded_shapes, padded_strides, dtypes, mat1.dtype)
    if before is None or after is None:
        return None
    plain, padded = (_taken_us(chooser, problem, mat1.device) for problem in (before, after))
    if not (plain > 0 and padded > 0):  # NaN
        return None
    return plain > margin(before) * (padded + copies_us)


def _taken_us(chooser: Chooser, problem: Problem, device: torch.device) -> float:
    known = chooser.padding_us.get(problem)
    if known is None:
        asked = _Asked(chooser.spaces)
        with kernels.graph_for(problem, device) as operands:
            kernels.ask(asked, problem.op, operands)
        offered = CandidateTable.joined(asked.tables)
        known = chooser.padding_us[problem] = chooser.taken_us(problem, offered)
    return known


class _Asked(kernels.Noting):
    def __init__(self, spaces: Spaces) -> None:
        super().__init__()
        self.tables: list[CandidateTable] = []
        self._spaces = spaces

    def note(self, offers: Mapping[str, Iterable[Any]], kernel_inputs: Any, op_name: str) -> None:
        space = self._spaces.find(
            op_name, kernel_inputs, tuple(offers), kernel_inputs.mnk_hinted(), offers.__getitem__
        )
        self.tables.append(space.candidates)


def _hint(size: Any) -> Any:
    """What a size is in the tensors at hand; None where nothing is known."""
    return size if isinstance(size, int) else size.node.hint


def _contiguous(shape: Sequence[int]) -> tuple[int, ...]:
    return tuple(prod(shape[place + 1 :]) for place in range(len(shape)))
