"""A problem's kernels without a user's program: offered, rendered and compiled by Inductor.

`offered` asks Inductor's own lowering of the op which KernelTemplateChoices it would choose from;
`launchable` makes a function from one of them that runs it on given tensors.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from types import MappingProxyType
from typing import Any, TypeVar

import torch
from torch._inductor import config, ir
from torch._inductor.choices import InductorChoices
from torch._inductor.debug import DebugContext
from torch._inductor.graph import GraphLowering
from torch._inductor.lowering import lowerings
from torch._inductor.select_algorithm import (
    ExternKernelCaller,
    NoValidChoicesError,
    TritonTemplateCaller,
)
from torch._inductor.virtualized import V
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import ShapeEnv

from diode_engine.core.candidate import Candidate
from diode_engine.core.operators import Operator
from diode_engine.core.operators.specification import Fields, TensorShape
from diode_engine.core.problem import Problem
from diode_engine.core.templates import TEMPLATES, template_of
from diode_engine.inductor.lowering import grouped_offers
from diode_engine.inductor.lowering.candidates import candidate_of, is_usable, tf32_allowed
from diode_engine.inductor.lowering.sources import add_offers
from diode_engine.inductor.lowering.space import search_space
from diode_engine.inductor.torch_internals.templates import compiled_subgraph

T = TypeVar("T")
Offers = Mapping[str, Iterable[Any]]  # Inductor's generators of KernelTemplateChoices by template


def autotuning_options(*, optional: bool = False) -> dict[str, Any]:
    """Return the values of Inductor's options under which its lowering asks for choices of kernels,
    in the DEFAULT space. With `optional` it also asks for templates that need an option of their
    own; without, if that option is set.

    (In the EXHAUSTIVE space torch 2.15 asks for more: also for Triton's templates where K is so
    large that decompose_k splits it. A compile with Diode is not offered these.)
    """
    options: dict[str, Any] = {"max_autotune": True, "max_autotune_gemm_search_space": "DEFAULT"}
    if optional:
        options |= {t.option: True for t in TEMPLATES.values() if t.option}
    return options


def graph_for(
    problem: Problem, device: torch.device
) -> contextlib.AbstractContextManager[list[ir.TensorBox]]:
    """Return a graph of Inductor with the problem's operands as its inputs, in the op's order.
    Choices can be rendered while it is open."""
    return graph(problem.input_shapes(), device, allow_tf32=problem.allow_tf32)


@contextlib.contextmanager
def graph(
    shapes: Mapping[str, TensorShape],
    device: torch.device,
    *,
    allow_tf32: bool,
    shape_env: ShapeEnv | None = None,
) -> Iterator[list[ir.TensorBox]]:
    """A graph of Inductor with inputs of these shapes, whose sizes and strides may have symbols of
    `shape_env`."""
    traced = torch.fx.symbolic_trace(lambda: 0)
    lowering = GraphLowering(traced, shape_env=shape_env)
    # For a scaled product, torch 2.15 reads from this node whether another scale is folded in.
    lowering.current_node = next(iter(traced.graph.nodes))

    def buffer(name: str, shape: TensorShape) -> ir.TensorBox:
        dtype = getattr(torch, shape.dtype)
        layout = ir.FixedLayout(device, dtype, list(shape.size), list(shape.stride))
        box = ir.TensorBox.create(ir.InputBuffer(name=name, layout=layout))
        lowering.graph_inputs[name] = box
        return box

    # decompose_k is a subgraph. It is traced with fake tensors when it is rendered, and compiled
    # as a module of its own, which reports to the debug handler.
    with (
        V.set_graph_handler(lowering),
        V.set_fake_mode(FakeTensorMode()),
        V.set_debug_handler(DebugContext()),
        tf32(allow_tf32),
    ):
        yield [buffer(name, shape) for name, shape in shapes.items()]


def offered(
    op: Operator,
    operands: Sequence[ir.TensorBox],
    *,
    fields: Fields = MappingProxyType({}),
    space: str = "EXHAUSTIVE",
    optional: bool = True,
) -> dict[Candidate, Any]:
    """Return every candidate with its KernelTemplateChoice, as Inductor's lowering of the op offers
    them, without those that compute something else in this torch.

    The configs are those of `space`: EXHAUSTIVE (what Diode chooses among) or DEFAULT. `optional`
    is as in `autotuning_options`, `fields` as in `read_offers`. Call it inside `graph_for`.
    """
    if op.bypasses_hook:
        with config.patch(autotuning_options()):
            offers = grouped_offers.list_offers(op, operands, fields)
        return {candidate_of(offer): offer for offer in offers}

    def collect(offers: Offers, kernel_inputs: Any, _: str) -> list[Any]:
        choices = list(chain.from_iterable(offers.values()))
        for choice in choices:
            choice.layout = kernel_inputs.output_layout(flexible=False)
        return choices

    found = read_offers(collect, op, operands, fields=fields, space=space, optional=optional)
    choices = [each for each in chain.from_iterable(found) if is_usable(each.template.uid)]
    return {candidate_of(choice): choice for choice in choices}


def read_offers(
    read: Callable[[Offers, Any, str], T],
    op: Operator,
    operands: Sequence[ir.TensorBox],
    *,
    fields: Fields = MappingProxyType({}),
    space: str = "EXHAUSTIVE",
    optional: bool = False,
) -> list[T]:
    """Return what `read` makes of each question that Inductor's lowering of the op asks: it is
    called with what is offered in the `space` (also by Diode's sources), the kernel inputs and
    Inductor's name of the op. `fields` are a problem's op_fields, for an op that is called with
    more than its inputs; `optional` is as in `autotuning_options`. Call it in `graph_for`."""
    found: list[T] = []

    class Recording(InductorChoices):
        def _finalize_template_configs(
            self, template_choices: dict[str, Any], kernel_inputs: Any, templates: Any,
            op_name: str, kwarg_overrides: Any = None,
        ) -> list[Any]:  # fmt: skip
            offers = add_offers(op_name, template_choices, kwarg_overrides)
            with search_space(space):
                found.append(read(offers, kernel_inputs, op_name))
            return []

    with (
        config.patch(autotuning_options(optional=optional)),
        V.set_choices_handler(Recording()),
        contextlib.suppress(NoValidChoicesError),  # nothing was chosen
    ):
        _lowering_of(op)(*operands, **op.keywords(torch, fields))
    return found


def _lowering_of(op: Operator) -> Callable[..., Any]:
    if op.lowering:
        module, _, name = op.lowering.partition(":")
        found: Callable[..., Any] = getattr(importlib.import_module(module), name)
        return found
    lower: Callable[..., Any] = lowerings[getattr(torch.ops.aten, op.aten).default]
    return lower


@contextlib.contextmanager
def tf32(allowed: bool) -> Iterator[None]:
    """While the block runs, float32 products may use TF32, or not."""
    matmul = torch.backends.cuda.matmul
    if tf32_allowed() == allowed:
        yield
        return
    before = matmul.fp32_precision
    # The older switch sets both values, and parts of Inductor still read its own. It cannot be
    # read where a program has set only the newer one.
    matmul.allow_tf32 = allowed
    try:
        yield
    finally:
        matmul.allow_tf32 = not allowed
        matmul.fp32_precision = before


def library_call(choice: Any) -> Callable[..., Any] | None:
    """Return a function that calls a library, or Diode's own kernel, for a KernelTemplateChoice,
    given the operands and `out`; None where Inductor renders it or it has no variant with `out`."""
    known = template_of(choice.template.uid)
    if known.extern or known.own:
        caller = choice.choice
        if isinstance(caller, ExternKernelCaller) and caller.has_out_variant:
            return _as_compiled(caller)
    return None


def _as_compiled(caller: ExternKernelCaller) -> Callable[..., Any]:
    """Return the call as a compiled program makes it. Before torch 2.13 it gives aten::addmm the
    bias as a whole matrix, for which cuBLAS is slower than for the vector."""
    call: Callable[..., Any] = caller.to_callable()
    sizes = [tuple(map(int, node.get_size())) for node in caller.input_nodes]

    def with_sizes(*operands: torch.Tensor, **out: torch.Tensor) -> Any:
        return call(
            *(
                x if x.shape == size else x.expand(size)
                for x, size in zip(operands, sizes, strict=True)
            ),
            **out,
        )

    return with_sizes


def launchable(
    choice: Any, operands: Sequence[torch.Tensor], out: torch.Tensor
) -> Callable[[], Any]:
    """Compile a KernelTemplateChoice; the result launches it once on these tensors.

    The launch writes `out`, except where the kernel can only return a new tensor; then the result
    returns that. Call it inside `graph_for`. Raises whatever rendering or compiling raises, and
    LookupError where the template declines the config.
    """
    caller = choice.choice
    if caller is None:
        raise LookupError(f"Inductor's {choice.template.uid} declines this config.")
    if isinstance(caller, ExternKernelCaller):
        call = _as_compiled(caller)
        if caller.has_out_variant:
            return functools.partial(call, *operands, out=out)
        return functools.partial(call, *operands)
    if isinstance(caller, TritonTemplateCaller):
        with torch.cuda.device(out.device):
            caller.bmreq.precompile()
            run: Callable[[], Any] = caller.bmreq.make_run_fn(*operands, out=out)
            return run
    # a subgraph, such as decompose_k's batched product and sum
    module = compiled_subgraph(caller)
    return lambda: module.call([*operands])[0]
