"""Moves the activation behind a linear layer into the library's product.

cuBLAS can compute ReLU, and GELU by tanh, of a product and its bias before it writes the result
(`aten._addmm_activation`). Inductor computes them in a separate kernel, which reads and writes
the result once more. One op is made of both where

- all that reads the activation is products, which need it in memory, so that nothing else would be
  computed in that kernel;
- Diode would take the library's kernel for the product (a kernel of Triton's computes the
  activation itself);
- the operands have 16-bit types and strides of whole 16 bytes, as in all that was measured
  (docs/notes/library-algorithms.md).

An activation is recognised by its values, so that each way to write it counts.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any, NamedTuple

import torch
from torch._inductor import compile_fx, config

from diode_engine.core.operand import DType
from diode_engine.core.operators import named
from diode_engine.errors import IntegrationError
from diode_engine.inductor.choosing import search
from diode_engine.inductor.choosing.compile_options import chooses_in_any_mode, is_batch_invariant
from diode_engine.inductor.choosing.current import chooser_for, report_failure
from diode_engine.inductor.choosing.outside_graph import choose_outside_graph
from diode_engine.inductor.choosing.product_chooser import ProductChooser
from diode_engine.inductor.guard import STOCK, guard
from diode_engine.inductor.lowering.candidates import problem_from
from diode_engine.inductor.patches import Patches, is_named_in
from diode_engine.inductor.torch_internals.dispatcher import (
    PRODUCT_WITH_ACTIVATION,
    without_modes,
)
from diode_engine.inductor.torch_internals.wrapped_functions import REWRITES_GRAPH

Node = torch.fx.Node

_aten, _prims = torch.ops.aten, torch.ops.prims
_VIEWS = (_aten.reshape.default, _aten.view.default, _aten.permute.default, _aten.t.default)
_RESHAPES = _VIEWS[:2]
_PRODUCTS = (_aten.mm.default, _aten.addmm.default, _aten.bmm.default, _aten.baddbmm.default)
_MOST_NODES = 12  # of an activation; GELU has 11
_PRECISION = 1e-6  # GELU by tanh differs from the exact one by up to 5e-4


class Activation(NamedTuple):
    """What is computed of a product: the nodes from it to the activation's result."""

    product: Node
    nodes: tuple[Node, ...]
    is_gelu: bool


def check_place() -> None:
    """Find the function. Raises IntegrationError where this torch does not call it."""
    if not is_named_in(compile_fx, REWRITES_GRAPH):
        raise IntegrationError(f"this torch does not call {REWRITES_GRAPH}.")


def apply(patches: Patches) -> None:
    """Wrap the passes of Inductor that rewrite a graph before it is lowered."""
    patches.wrap(compile_fx, REWRITES_GRAPH, _wrap)


def _wrap(theirs: Callable[..., Any]) -> Callable[..., Any]:
    @guard("activations were not moved into products", stock=theirs, report=report_failure)
    def rewrite(graph_module: Any, *_: Any, **__: Any) -> Any:
        if _is_wanted():
            for activation in list(find_activations(graph_module.graph)):
                chooser = chooser_for(activation.product.meta["val"].device)
                if chooser is not None and _takes_library(chooser, activation.product):
                    _replace(activation)
                    chooser.outcomes.stats.count("activations_moved")
        return STOCK

    return rewrite


def _is_wanted() -> bool:
    tuning = config.max_autotune or config.max_autotune_gemm or chooses_in_any_mode()
    # With emulate_precision_casts the product is to be rounded before the activation.
    keeps = is_batch_invariant() or config.emulate_precision_casts
    return bool(tuning) and not keeps


def find_activations(graph: torch.fx.Graph) -> Iterator[Activation]:
    """Yield the activations of linear layers whose results only products read, in the graph before
    it is lowered."""
    for product in graph.find_nodes(op="call_function", target=_aten.addmm.default):
        nodes = _read_pointwise(product)
        if len(nodes) < 2 or not all(map(_is_in_memory, nodes[-1].users)):
            continue
        before, after = nodes[0].meta["val"], nodes[-1].meta["val"]
        if (before.shape, before.dtype) != (after.shape, after.dtype):
            continue
        values = _values_of(nodes)
        for is_gelu, wanted in enumerate(_wanted_values()):
            if values is not None and torch.allclose(values, wanted, rtol=0, atol=_PRECISION):
                yield Activation(product, nodes, bool(is_gelu))


def _read_pointwise(product: Node) -> tuple[Node, ...]:
    """Return the product, or its view, and the pointwise ops of it alone, up to one whose result is
    all that others read; () where there is none."""
    users = list(product.users)
    first = users[0] if len(users) == 1 and users[0].target in _RESHAPES else product
    found = [first]
    while len(found) <= _MOST_NODES:
        known = set(found)
        following = [user for node in found for user in node.users if user not in known]
        ready = [n for n in following if _is_pointwise(n) and known.issuperset(n.all_input_nodes)]
        if not ready:
            is_whole = all(known.issuperset(node.users) for node in found[:-1])
            return tuple(found) if is_whole else ()
        found.append(ready[0])
    return ()


def _is_pointwise(node: Node) -> bool:
    target: Any = node.target
    is_type = target is _prims.convert_element_type.default
    return is_type or torch.Tag.pointwise in getattr(target, "tags", ())


def _is_in_memory(user: Node) -> bool:
    """Return whether the user reads the activation from memory in any case."""
    if user.target in _VIEWS:
        return all(map(_is_in_memory, user.users))
    return user.op == "output" or user.target in _PRODUCTS


@cache
def _wanted_values() -> tuple[torch.Tensor, torch.Tensor]:
    """Return ReLU and GELU by tanh of the probes."""
    with without_modes():
        x = _probes()
        return x.relu(), torch.nn.functional.gelu(x, approximate="tanh")


def _probes() -> torch.Tensor:
    return torch.linspace(-8, 8, 101, dtype=torch.float64, device="cpu")


def _values_of(nodes: tuple[Node, ...]) -> torch.Tensor | None:
    """Return what the nodes compute of the probes, without the rounding between them; None where
    they compute something of other types."""
    values: dict[Node, Any] = {}
    with without_modes(), contextlib.suppress(RuntimeError, TypeError):
        values[nodes[0]] = _probes()
        for node in nodes[1:]:
            compute: Any = node.target
            args, kwargs = torch.fx.map_arg((node.args, node.kwargs), values.__getitem__)
            is_type = compute is _prims.convert_element_type.default
            values[node] = args[0] if is_type else compute(*args, **kwargs)
    result = values.get(nodes[-1])
    return result if result is not None and result.dtype == torch.float64 else None


def _takes_library(chooser: ProductChooser, product: Node) -> bool:
    """Return whether the library's kernel would be taken, and computes activations itself; False
    also where the program has changed Inductor's search."""
    if product.kwargs or len(product.args) != 3 or search.find_alteration() is not None:
        return False
    tensors: list[Any] = [arg.meta["val"] for arg in product.args if isinstance(arg, Node)]
    if len(tensors) != 3 or tensors[0].dim() != 1:
        return False
    shapes, strides = [x.shape for x in tensors], [x.stride() for x in tensors]
    if not all(isinstance(n, int) for each in (*shapes, *strides) for n in each):
        return False
    dtypes = [x.dtype for x in tensors]
    problem = problem_from(named("addmm"), shapes, strides, dtypes, product.meta["val"].dtype)
    if problem is None or problem.dtype not in (DType.FLOAT16, DType.BFLOAT16):
        return False
    steps = [step for each in strides[1:] for step in each if step != 1] + [problem.N]
    if any(step * problem.dtype.itemsize % 16 for step in steps) or strides[0] != (1,):
        return False

    def by_model() -> bool:
        choice = choose_outside_graph(chooser, problem, tensors[1].device)
        return choice is not None and choice.candidates[0].is_extern

    return bool(chooser.decide("move the activation", problem, by_model))


def _replace(activation: Activation) -> None:
    """Put one op in the place of the product and the activation."""
    product, (first, *_, last), is_gelu = activation
    graph = product.graph
    with graph.inserting_before(product):
        new = graph.call_function(PRODUCT_WITH_ACTIVATION, product.args, {"use_gelu": is_gelu})
    new.meta.update(product.meta)
    product.replace_all_uses_with(new)
    last.replace_all_uses_with(first if first is not product else new)
    for node in (*reversed(activation.nodes[1:]), product):
        graph.erase_node(node)
