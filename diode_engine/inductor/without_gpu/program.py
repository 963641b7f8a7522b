"""Runs torch.compile up to the generated program, and collects the choices on the way."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch._guards import TracingContext
from torch._inductor import compile_fx, config
from torch._inductor.graph import GraphLowering
from torch._inductor.select_algorithm import AlgorithmSelectorCache
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

from diode_engine.core.candidate import Candidate
from diode_engine.errors import IntegrationError
from diode_engine.inductor.choosing.chosen_kernels import ChosenKernel, chosen_kernel_of
from diode_engine.inductor.lowering.candidates import candidate_of, template_choice_of
from diode_engine.inductor.patches import patch_attribute
from diode_engine.inductor.torch_internals import versions
from diode_engine.inductor.without_gpu.device import is_pretended


@dataclass(frozen=True)
class Seen:
    """The remaining choices of one product: one, or those to be benchmarked."""

    candidates: tuple[Candidate, ...]
    predicted_us: tuple[float | None, ...]  # None where Diode did not choose


@dataclass
class Lowered:
    """The result of lowering: each graph's generated program, its Triton kernels, and the choices
    of every product."""

    sources: list[str] = field(default_factory=list)
    seen: list[Seen] = field(default_factory=list)


def lower(
    build: Callable[[], tuple[Callable[..., Any], Sequence[Any]]],
    *,
    dynamic: bool | None = None,
    mode: str = "max-autotune-no-cudagraphs",
    options: dict[str, Any] | None = None,
    benchmark: Callable[[Candidate], float] | None = None,
) -> Lowered:
    """Lower a function's first graph as torch.compile would, after `pretend`.

    `build` returns the function and its arguments; it runs where `torch.empty(…,
    device="cuda")` makes a tensor without data. For `options` and `benchmark` see `lowering`.

    There is no backward: autograd itself asks for a device on a torch that was built without.
    """
    with lowering(options, benchmark) as lowered:
        torch.compiler.reset()
        with FakeTensorMode(allow_non_fake_inputs=True), torch.no_grad():
            function, args = build()
            with contextlib.suppress(_DataNeeded):
                torch.compile(function, mode=mode, dynamic=dynamic)(*args)
    return lowered


@contextlib.contextmanager
def lowering(
    options: dict[str, Any] | None = None,
    benchmark: Callable[[Candidate], float] | None = None,
) -> Iterator[Lowered]:
    """While it is open, have Inductor generate programs and compile none of them, and collect what
    it generates and chooses. Raises IntegrationError where no GPU is pretended.

    `options` are set in torch._inductor.config. `benchmark` replaces the timing of several
    remaining choices (milliseconds, made up); without it a timing raises IntegrationError.
    """
    if not is_pretended():
        raise IntegrationError("Call pretend() first: there is no device to lower for.")
    lowered = Lowered()
    settings = {
        "force_disable_caches": True,
        "benchmark_epilogue_fusion": False,
        "shape_padding": False,  # times matrix products on the device before it pads them
    }
    functions = (
        (GraphLowering, "compile_to_module", _generate_only(lowered)),
        (AlgorithmSelectorCache, "__call__", _record_choices(lowered)),
        (AlgorithmSelectorCache, "benchmark", _time_by(benchmark)),
        (AlgorithmSelectorCache, "make_precompile_fn", lambda *_, **__: dict),
        (compile_fx, "compile_fx", _convert_inputs_of(compile_fx.compile_fx)),
    )
    with contextlib.ExitStack() as stack:
        for patch in functions:
            stack.enter_context(patch_attribute(*patch))
        stack.enter_context(config.patch({**settings, **(options or {})}))
        stack.enter_context(warnings.catch_warnings())
        warnings.filterwarnings("ignore", "dynamo_pgo force disabled")
        yield lowered


def without_data(module: torch.nn.Module) -> torch.nn.Module:
    """Return the module, with its parameters and buffers replaced by tensors on the GPU without
    data or gradient. For use in `build`, where parameters cannot be initialised or moved. Make the
    module on the meta device."""
    for part in module.modules():
        for name, parameter in part.named_parameters(recurse=False):
            moved = torch.empty_like(parameter, device="cuda")
            setattr(part, name, torch.nn.Parameter(moved, requires_grad=False))
        for name, buffer in part.named_buffers(recurse=False):
            setattr(part, name, torch.empty_like(buffer, device="cuda"))
    return module


class _DataNeeded(Exception):
    """Raised when the compiled graph is to be run, since there is no data."""


class _Module:
    """Takes the place of the compiled graph."""

    runner = None

    def call(self, args: list[Any]) -> list[Any]:
        raise _DataNeeded


def _generate_only(lowered: Lowered) -> Callable[[Any], _Module]:
    def compile_to_module(graph: Any) -> _Module:
        source, _ = graph.codegen()
        lowered.sources.append(source.value)
        return _Module()

    return compile_to_module


def _record_choices(lowered: Lowered) -> Callable[..., Any]:
    """Return Inductor's selection of an algorithm, which also records the remaining choices after
    all preprocessing functions."""

    def record(choices: list[Any]) -> list[Any]:
        known = [c for c in choices if template_choice_of(c)]
        if known:
            chosen: list[ChosenKernel | None] = [chosen_kernel_of(c) for c in known]
            lowered.seen.append(
                Seen(
                    tuple(candidate_of(template_choice_of(c)) for c in known),
                    tuple(None if each is None else each.cost_us for each in chosen),
                )
            )
        return choices

    select = AlgorithmSelectorCache.__call__

    def recording(self: Any, *args: Any, **kwargs: Any) -> Any:
        functions = self.preprocessing_fns
        if record in functions:  # called while another op's choices are selected
            return select(self, *args, **kwargs)
        functions.append(record)
        try:
            return select(self, *args, **kwargs)
        finally:
            functions.remove(record)

    return recording


def _time_by(benchmark: Callable[[Candidate], float] | None) -> Callable[..., Any]:
    def times(self: Any, choices: Sequence[Any], *_: Any, **__: Any) -> dict[Any, float]:
        if benchmark is None:
            raise IntegrationError(
                f"{len(choices)} choices are left to be timed, and there is no GPU to time them on."
            )
        return {c: benchmark(candidate_of(template_choice_of(c))) for c in choices}

    return times


def _convert_inputs_of(compile_graph: Callable[..., Any]) -> Callable[..., Any]:
    def converted(graph: Any, inputs: Sequence[Any], *args: Any, **kwargs: Any) -> Any:
        return compile_graph(graph, convert_inputs(inputs), *args, **kwargs)

    return converted


def convert_inputs(inputs: Sequence[Any]) -> Sequence[Any]:
    """Return the inputs of a backend of torch.compile as Inductor requires them: with torch 2.10 of
    the mode with which Dynamo has traced, if it is tracing. Later versions convert them."""
    context = TracingContext.try_get()
    if versions.converts_inputs_without_data() or context is None:
        return inputs
    return [_convert(each, context) for each in inputs]


def _convert(value: Any, context: TracingContext) -> Any:
    mode = context.fake_mode
    if mode is None or not isinstance(value, FakeTensor) or value.fake_mode is mode:
        return value
    symbolic = context.tensor_to_context.get(value)
    source = getattr(symbolic, "tensor_source", None)
    return mode.from_tensor(value, symbolic_context=symbolic, source=source)
