"""Moves the activation behind a linear layer into the library's product.

cuBLAS can compute ReLU, and GELU by tanh, of a product and its bias before it writes the result
(`aten._addmm_activation`). Inductor computes them in a separate kernel, which reads and writes
the result once more. One op is made of both where

- all that reads the activation is products, which need it in memory, so that nothing else would be
  computed in that kernel;
- Diode would take the library's kernel for the product (a kernel of Triton's computes the
  activation itself);
- the operands have 16-bit types and strides of whole 16 bytes, and the product has as many rows as
  all that was measured (docs/notes/library-algorithms.md);
- torch would call cuBLASLt: without it the op copies the bias, and computes the activation in a
  kernel as well.

An activation is recognised by its values, so that each way to write it counts. On the CPU the op's
GELU is the exact one.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from functools import cache
from typing import Any, NamedTuple

import torch
from torch._inductor import compile_fx, config, lowering
from torch._inductor.virtualized import V

from diode_engine.choosing.choice import Choice, Why
from diode_engine.core.operand import DType
from diode_engine.core.operators import ADDMM
from diode_engine.core.problem import Problem
from diode_engine.errors import IntegrationError
from diode_engine.inductor.choosing import search
from diode_engine.inductor.choosing.compile_options import chooses_in_any_mode, is_batch_invariant
from diode_engine.inductor.choosing.current import chooser_for, current_chooser, report_failure
from diode_engine.inductor.choosing.outside_graph import choose_outside_graph, is_sure
from diode_engine.inductor.choosing.product_chooser import ProductChooser
from diode_engine.inductor.guard import STOCK
from diode_engine.inductor.lowering.candidates import problem_from
from diode_engine.inductor.patches import Patches, is_named_in
from diode_engine.inductor.torch_internals.dispatcher import (
    PRODUCT_WITH_ACTIVATION,
    calls_cublaslt,
    without_modes,
)
from diode_engine.inductor.torch_internals.wrapped_functions import REWRITES_GRAPH

Node = torch.fx.Node

_aten, _prims = torch.ops.aten, torch.ops.prims
_VIEWS = (_aten.reshape.default, _aten.view.default, _aten.permute.default, _aten.t.default)
_RESHAPES = _VIEWS[:2]
_PRODUCTS = (_aten.mm.default, _aten.addmm.default, _aten.bmm.default, _aten.baddbmm.default)
_MOST_NODES = 16  # of an activation; GELU has 11
_PRECISION = 1e-6  # of GELU: that by tanh differs from the exact one by up to 5e-4
_MOVED = "diode_moved"  # of a node: what `Stats.record_moved` takes
_LEAST_ROWS = 64  # of what was measured; with one row torch does not call cuBLASLt


class Activation(NamedTuple):
    """What is computed of a product: the nodes from it to the activation's result."""

    product: Node
    problem: Problem
    nodes: tuple[Node, ...]
    is_gelu: bool


def check_place() -> None:
    """Find the functions. Raises IntegrationError where this torch does not call the passes, or
    cannot lower the op."""
    if not is_named_in(compile_fx, REWRITES_GRAPH):
        raise IntegrationError(f"this torch does not call {REWRITES_GRAPH}.")
    if PRODUCT_WITH_ACTIVATION not in lowering.lowerings:
        raise IntegrationError(f"this torch cannot lower {PRODUCT_WITH_ACTIVATION}.")


def apply(patches: Patches) -> None:
    """Wrap the passes of Inductor that rewrite a graph before it is lowered, and the lowering of
    the op, where reports learn of it."""
    patches.guard(
        compile_fx, REWRITES_GRAPH, _move_activations, "activations were not moved into products",
        report_failure,
    )  # fmt: skip
    patches.guard(
        lowering.lowerings, PRODUCT_WITH_ACTIVATION, _note_moved,
        "a moved activation was not noted", report_failure,
    )  # fmt: skip


def _move_activations(graph_module: Any, *_: Any, **__: Any) -> Any:
    if _is_wanted():
        for activation in list(find_activations(graph_module.graph)):
            chooser = chooser_for(activation.product.meta["val"].device)
            if chooser is not None:
                _decide(chooser, activation)
    return STOCK


def _note_moved(*_: Any, **__: Any) -> Any:
    chooser, moved = current_chooser(), V.graph.current_node.meta.get(_MOVED)
    if chooser is not None and moved is not None:
        chooser.outcomes.stats.record_moved(*moved)
    return STOCK


def _is_wanted() -> bool:
    tuning = config.max_autotune or config.max_autotune_gemm or chooses_in_any_mode()
    # With emulate_precision_casts the product is to be rounded before the activation.
    keeps = is_batch_invariant() or config.emulate_precision_casts
    return bool(tuning) and not keeps and calls_cublaslt()


def find_activations(graph: torch.fx.Graph) -> Iterator[Activation]:
    """Yield the activations of linear layers whose results only products read, in the graph before
    it is lowered."""
    for product in graph.find_nodes(op="call_function", target=_aten.addmm.default):
        problem = _read_problem(product)  # before the values, which take longer
        nodes = () if problem is None else _read_pointwise(product)
        if problem is None or len(nodes) < 2 or not _is_in_memory(nodes[-1]):
            continue
        before, after = nodes[0].meta["val"], nodes[-1].meta["val"]
        if (before.shape, before.dtype) != (after.shape, after.dtype):
            continue
        values = _values_of(nodes)
        for is_gelu, wanted in enumerate(_wanted_values()):
            near = _PRECISION * is_gelu
            if values is not None and torch.allclose(values, wanted, near, near, equal_nan=True):
                yield Activation(product, problem, nodes, bool(is_gelu))


def _read_pointwise(product: Node) -> tuple[Node, ...]:
    """Return the product, or its view, and the pointwise ops of it alone, up to one whose result is
    all that others read; () where there is none."""
    users = list(product.users)
    first = users[0] if len(users) == 1 and users[0].target in _RESHAPES else product
    types = (torch.float32, torch.float64, product.meta["val"].dtype)
    found = [first]
    while len(found) <= _MOST_NODES:
        known = set(found)
        following = [user for node in found for user in node.users if user not in known]
        ready = [n for n in following if known.issuperset(n.all_input_nodes)]
        ready = [n for n in ready if _is_pointwise(n, types)]
        if not ready:
            is_whole = all(known.issuperset(node.users) for node in found[:-1])
            return tuple(found) if is_whole else ()
        found.append(ready[0])
    return ()


def _is_pointwise(node: Node, types: tuple[torch.dtype, ...]) -> bool:
    """Return whether the node is a pointwise op of torch's. A conversion counts as one to these
    types only, in which Inductor computes: to another type it changes the values."""
    target: Any = node.target
    if target is _prims.convert_element_type.default:
        return node.args[-1] in types
    is_torchs = getattr(target, "namespace", "") in ("aten", "prims")
    return is_torchs and torch.Tag.pointwise in target.tags


def _is_in_memory(node: Node) -> bool:
    """Return whether all that reads the node reads it from memory in any case: products of which it
    is a matrix."""
    return all(
        user.op == "output"
        or (user.target in _PRODUCTS and node in user.args[-2:])
        or (user.target in _VIEWS and _is_in_memory(user))
        for user in node.users
    )


@cache
def _wanted_values() -> tuple[torch.Tensor, torch.Tensor]:
    """Return ReLU and GELU by tanh of the probes."""
    with without_modes():
        x = _probes()
        return x.relu(), torch.nn.functional.gelu(x, approximate="tanh")


def _probes() -> torch.Tensor:
    """Return numbers of all magnitudes of 16-bit types, more of them where activations bend."""
    double: dict[str, Any] = {"dtype": torch.float64, "device": "cpu"}
    near, far = torch.linspace(-8, 8, 101, **double), torch.logspace(-38, 38, 153, **double)
    special = torch.tensor([torch.inf, -torch.inf, torch.nan], **double)
    return torch.cat((near, far, -far, special))


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


def _read_problem(product: Node) -> Problem | None:
    """Return the problem of a product for which torch would call cuBLASLt with the activation, and
    that is like those that were measured; else None."""
    if product.kwargs or len(product.args) != 3:
        return None
    tensors: list[Any] = [arg.meta["val"] for arg in product.args if isinstance(arg, Node)]
    places = [(x.storage_offset(), *x.shape, *x.stride()) for x in tensors]
    if len(tensors) != 3 or not all(isinstance(n, int) for place in places for n in place):
        return None
    shapes, strides = [x.shape for x in tensors], [x.stride() for x in tensors]
    dtypes = [x.dtype for x in tensors]
    problem = problem_from(ADDMM, shapes, strides, dtypes, product.meta["val"].dtype)
    if problem is None or problem.dtype not in (DType.FLOAT16, DType.BFLOAT16):
        return None
    if problem.M < _LEAST_ROWS or (shapes[0], strides[0]) != ((problem.N,), (1,)):
        return None
    steps = [step for each in strides[1:] for step in each if step != 1]
    steps += [problem.N, *(place[0] for place in places)]
    return None if any(step * problem.dtype.itemsize % 16 for step in steps) else problem


def _decide(chooser: ProductChooser, activation: Activation) -> None:
    """Move the activation, if the library's kernel would be taken for the product; not where the
    program has changed Inductor's search."""
    problem = activation.problem
    choice = Choice(problem, (), (), None, None, Why.FROZEN)

    def by_model() -> bool | None:
        nonlocal choice
        if search.find_alteration() is not None:
            return None
        device = activation.product.meta["val"].device
        if (found := choose_outside_graph(chooser, problem, device)) is None:
            return False
        choice = found
        return choice.candidates[0].is_extern and is_sure(choice)

    if chooser.decide("move the activation", problem, by_model):
        name = "GELU by tanh" if activation.is_gelu else "ReLU"
        _replace(activation).meta[_MOVED] = name, problem, choice
        chooser.outcomes.stats.count("activations_moved")


def _replace(activation: Activation) -> Node:
    """Return one op that is now in the place of the product and the activation."""
    product, _, (first, *_, last), is_gelu = activation
    graph = product.graph
    with graph.inserting_before(product):
        new = graph.call_function(PRODUCT_WITH_ACTIVATION, product.args, {"use_gelu": is_gelu})
    new.meta.update(product.meta)
    product.replace_all_uses_with(new)
    last.replace_all_uses_with(first if first is not product else new)
    for node in (*reversed(activation.nodes[1:]), product):
        graph.erase_node(node)
    return new
