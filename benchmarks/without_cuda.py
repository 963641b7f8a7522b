"""Replaces methods of tensors that ask for the device on a torch that was built without CUDA.

Where Inductor computes sizes, fake tensors of the pretended GPU pass through these C++ methods,
before PyTorch looks for what a fake tensor does instead.
"""

from __future__ import annotations

import functools
from typing import Any

import torch

aten = torch.ops.aten


@functools.cache
def replace_methods() -> None:
    """Replace them, once, until the process ends."""
    methods: Any = torch.Tensor
    contiguous, copy_, invert = methods.contiguous, methods.copy_, methods.__invert__
    getitem = methods.__getitem__

    def ours_contiguous(self: Any, memory_format: Any = torch.contiguous_format) -> Any:
        if self.device.type != "cuda" or self.is_contiguous(memory_format=memory_format):
            return contiguous(self, memory_format=memory_format)
        return aten.clone.default(self, memory_format=memory_format)

    def ours_copy(self: Any, source: Any, non_blocking: bool = False) -> Any:
        if self.device.type != "cuda":
            return copy_(self, source, non_blocking)
        return aten.copy_.default(self, source, non_blocking)

    def ours_invert(self: Any) -> Any:
        return aten.bitwise_not.default(self) if self.device.type == "cuda" else invert(self)

    def ours_getitem(self: Any, index: Any) -> Any:
        items = index if isinstance(index, tuple) else (index,)
        known = all(
            isinstance(item, slice) or item is None or item is Ellipsis or _is_number(item)
            or (isinstance(item, torch.Tensor) and item.ndim)
            for item in items
        )  # fmt: skip
        if self.device.type != "cuda" or not known:
            return getitem(self, index)
        return _indexed(self, items)

    methods.contiguous, methods.copy_ = ours_contiguous, ours_copy
    methods.__invert__, methods.__getitem__ = ours_invert, ours_getitem


def _is_number(item: Any) -> bool:
    return isinstance(item, (int, torch.SymInt)) and not isinstance(item, bool)


def _indexed(x: Any, items: tuple[Any, ...]) -> Any:
    named = sum(item is not None and item is not Ellipsis for item in items)
    dim, tensors = 0, {}
    for item in items:
        if item is Ellipsis:
            dim = x.ndim - named + dim
            continue
        named -= item is not None
        if item is None:
            x, dim = aten.unsqueeze.default(x, dim), dim + 1
        elif isinstance(item, slice):
            x = aten.slice.Tensor(x, dim, item.start, item.stop, item.step or 1)
            dim += 1
        elif isinstance(item, torch.Tensor):
            tensors[dim] = item
            dim += 1
        else:
            x = aten.select.int(x, dim, item)
    if tensors:
        x = aten.index.Tensor(x, [tensors.get(at) for at in range(max(tensors) + 1)])
    return x
