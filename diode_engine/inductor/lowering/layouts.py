"""Operands whose layout Inductor has not decided yet.

A buffer that Inductor computes itself has a flexible layout while the program is lowered: it counts
as contiguous, and kernels are offered, predicted and rendered for that. When everything is lowered,
the layout is decided by the layouts of the buffer's own inputs. A library's kernel takes any
layout. A template's kernel then has another speed than was predicted. And a template that reads
through TMA descriptors, which are made for the layout that it was offered with, computes wrong
results. With
several choices the scheduler checks that (`_has_layout_conflict_for_template`, torch 2.11 and
newer) and takes the library's. A template that is the only choice is not checked.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from torch._inductor import ir


def will_move(nodes: Iterable[Any]) -> bool:
    """Return whether one of the operands may get another layout than it counts as now."""
    return any(_moves(buffer) for buffer in _flexible(nodes))


def freeze(nodes: Iterable[Any]) -> None:
    """Fix the operands' layouts as they are now."""
    for buffer in _flexible(nodes):
        buffer.freeze_layout()


def _flexible(nodes: Iterable[Any]) -> Iterable[Any]:
    for node in nodes:
        while isinstance(node, (ir.TensorBox, ir.StorageBox)):
            node = node.data
        if isinstance(node, ir.Buffer) and isinstance(node.layout, ir.FlexibleLayout):
            yield node


def _moves(buffer: Any) -> bool:
    order = buffer.get_fill_order() if isinstance(buffer, ir.ComputedBuffer) else None
    if order is None:
        return False
    settled = ir.FlexibleLayout.fill_ordered(buffer.layout.size, order)
    return list(settled) != list(buffer.layout.stride)
