"""What fusing a product's epilogue saves, read from the graph around the product.

Inductor fuses pointwise ops that follow a Triton template into its kernel; after a kernel of a
library they are a kernel of their own. So a library's kernel can be faster than a template by
itself, and slower together with the ops that follow. The difference is the traffic of the product's
own output, which a fused kernel keeps in registers:

    saved_us = (bytes written + bytes read) / memory bandwidth + a launch
               - instructions / the device's rate - bytes of other operands / memory bandwidth

at the rates of the data sheet. The chooser adds it to the predicted time of every candidate
that cannot fuse. The two terms that are subtracted are what fusing costs: functions such as erf,
and the loads of a residual. A separate pointwise kernel does these while other loads and stores
are under way; a product's kernel, whose tiles all end at the same time, does not. (On an H200,
from 0.8 million elements on, GELU made fused kernels 1.1 to 3.4 microseconds per million elements
slower than ReLU, and a SiLU gate 0.3 to 2.0 slower than ReLU and a residual;
docs/notes/README.md.)

It counts only where Inductor does fuse (the scheduler's `can_fuse_vertical` and the inlining into
reductions decide that): for pointwise ops with as many elements as the product, whose result is
needed in memory. Nothing is saved where the ops end in a reduction, such as a normalisation: after
a library's kernel Inductor computes them inside the reduction's kernel, and after a template the
reduction still reads as much. Where the product itself is needed too, for example by the backward,
a fused kernel still writes it, and only the reading is saved. Ops that follow several products are
fused into one of them; it counts for the last product in the graph.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from math import prod
from typing import Any

import torch
from torch._inductor import config

from diode_engine.core.hardware import Hardware
from diode_engine.core.operators import OPERATORS
from diode_engine.core.problem import Problem
from diode_engine.inductor.torch_internals.versions import fuses_behind_split_dimensions

aten = torch.ops.aten

# About how many instructions a function takes for an element; the others take few.
_INSTRUCTIONS = {
    aten.erf: 50, aten.gelu: 50, aten.exp: 25, aten.expm1: 25, aten.log: 25, aten.log1p: 25,
    aten.sigmoid: 25, aten.silu: 25, aten.tanh: 25, aten.pow: 25, aten.sin: 25, aten.cos: 25,
}  # fmt: skip
_LANES = 128  # instructions that a multiprocessor begins in a clock cycle
LAUNCH_US = 1.0  # of one more kernel in a busy stream: the gap before it, and until it runs fully
_MAX_NODES = 64  # around a product that are looked at

_CHOSEN = {op: packet for op in OPERATORS.values() if (packet := getattr(aten, op.aten, None))}
_PRODUCTS = frozenset(packet.default for op, packet in _CHOSEN.items() if op.fuses_epilogue)
# Views that keep the order of elements, so that pointwise ops behind them still fuse.
_RESHAPES = frozenset(
    (
        aten.view.default, aten._unsafe_view.default, aten.reshape.default, aten.alias.default,
        aten.unsqueeze.default, aten.squeeze.default, aten.squeeze.dim, aten.squeeze.dims,
    )
)  # fmt: skip
_REORDERINGS = frozenset((aten.permute.default, aten.transpose.int, aten.t.default))
# Ops that read their operands from memory, so that the result of a chain before them is written.
_READERS = frozenset(
    (
        *_CHOSEN.values(),
        aten.convolution, aten.convolution_backward, aten.copy_,
        aten._scaled_dot_product_flash_attention, aten._scaled_dot_product_efficient_attention,
        aten._scaled_dot_product_cudnn_attention,
    )
)  # fmt: skip


@dataclass(frozen=True)
class Epilogue:
    """The pointwise ops that Inductor will fuse into a product that is a Triton template. `reads`
    and `writes` say how many times fewer the product's output is read and written then.
    `instructions` are those of its functions for each element; `operands` is how many other tensors
    of the output's size it reads."""

    writes: int
    reads: int
    instructions: int = 0
    operands: int = 0

    def __str__(self) -> str:
        return ", ".join(f"{name} {value}" for name, value in vars(self).items())

    def saved_us(self, problem: Problem, hardware: Hardware) -> float:
        """Return the microseconds that fusing it saves, negative where it costs time; 0 where the
        device's rates are not known."""
        rate = hardware.multiprocessors * _LANES * hardware.clock_mhz  # instructions per µs
        if not hardware.memory_gb_s or not rate:
            return 0.0
        elements = problem.B * problem.M * problem.N
        moved = elements * problem.out_dtype.itemsize * (self.writes + self.reads - self.operands)
        computed_us = elements * self.instructions / rate
        return moved / (hardware.memory_gb_s * 1e3) + LAUNCH_US - computed_us


def current_epilogue(graph: Any) -> Epilogue | None:
    """Return the epilogue of the product that Inductor's graph is lowering now; None where it has
    none."""
    node = graph.current_node
    if node is None or node.target not in _PRODUCTS:
        return None
    return find_epilogue(node)


def find_epilogue(product: torch.fx.Node) -> Epilogue | None:
    """Return the epilogue of a node of Inductor's post-grad graph; None where it has none."""
    if not any(_is_pointwise(user) or user.target in _RESHAPES for user in product.users):
        return None
    size = _size(product)
    plain = [product]  # the output and its views
    chain: list[torch.fx.Node] = []  # pointwise ops and the views of their outputs
    kept = written = False
    members = {product}
    while plain or chain:
        pointwise = not plain
        node = chain.pop() if pointwise else plain.pop()
        for user in node.users:
            if user in members:
                continue
            target: Any = user.target
            if target in _RESHAPES or (pointwise and target in _REORDERINGS):
                (chain if pointwise else plain).append(user)
                members.add(user)
            elif _is_pointwise(user) and _size(user) == size:
                if any(other > product for other in _products_before(user, members)):
                    return None
                chain.append(user)
                members.add(user)
            elif not pointwise:
                kept = True
            elif user.op == "output" or _packet(user) in _READERS:
                written = True
            else:  # a reduction, or an op that may compute the chain again for itself
                return None
            if len(members) > _MAX_NODES:
                return None
    if not written:
        return None
    functions = [node for node in members if _is_pointwise(node)]
    operands = {
        operand
        for node in functions
        for operand in node.all_input_nodes
        if operand not in members and _size(operand) == size
    }
    return Epilogue(
        writes=0 if kept else 1,
        reads=1,
        instructions=sum(_INSTRUCTIONS.get(_packet(node), 0) for node in functions),
        operands=len(operands),
    )


def _packet(node: torch.fx.Node) -> Any:
    return getattr(node.target, "overloadpacket", None)


def _is_pointwise(node: torch.fx.Node) -> bool:
    return node.op == "call_function" and _has_tag(node.target)


@cache
def _has_tag(target: Any) -> bool:
    return torch.Tag.pointwise in getattr(target, "tags", ())


def _products_before(node: torch.fx.Node, known: set[torch.fx.Node]) -> Iterator[torch.fx.Node]:
    """Return the products that are operands of a pointwise node, directly or through other
    pointwise ops."""
    waiting, seen = [node], {node}
    while waiting:
        for operand in waiting.pop().all_input_nodes:
            if operand in seen or operand in known or len(seen) > _MAX_NODES:
                continue
            seen.add(operand)
            if operand.target in _PRODUCTS:
                yield operand
            elif operand.target in _RESHAPES or _is_pointwise(operand):
                waiting.append(operand)


def _size(node: torch.fx.Node) -> Any:
    """Return what two nodes must have in common to be fused: the number of elements, and before
    torch 2.13 the shape. (There, with loop_ordering_after_fusion, its default, a view that splits a
    dimension keeps what follows from being fused.) Symbols are compared as expressions, which adds
    no guard; a node without a tensor has nothing in common with any other."""
    value = node.meta.get("val")
    if not isinstance(value, torch.Tensor):
        return node
    shape = [s if isinstance(s, int) else s.node.expr for s in value.shape]
    return prod(shape) if fuses_behind_split_dimensions(config) else tuple(shape)
