"""Runs torch.compile up to the generated program, and collects the choices on the way."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch._inductor import config
from torch._inductor.graph import GraphLowering
from torch._inductor.select_algorithm import AlgorithmSelectorCache
from torch._subclasses.fake_tensor import FakeTensorMode

from diode_engine.core.candidate import Candidate
from diode_engine.errors import IntegrationError
from diode_engine.inductor.choosing.decision import ChosenKernel, chosen_kernel_of
from diode_engine.inductor.lowering.annotations import template_choice_of
from diode_engine.inductor.lowering.candidates import candidate_of
from diode_engine.inductor.patches import patch_attribute
from diode_engine.inductor.without_gpu.device import is_pretended
from diode_engine.inductor.without_gpu.inputs import inputs_of_one_mode


@dataclass(frozen=True)
class Seen:
    """The remaining choices of one GEMM: one, or those to be benchmarked."""

    candidates: tuple[Candidate, ...]
    predicted_us: tuple[float | None, ...]  # None where Diode did not choose


@dataclass
class Lowered:
    """The result of lowering: each graph's generated program, its Triton kernels, and the choices
    of every GEMM."""

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
    """Lowers a function's first graph as torch.compile would, after `pretend`.

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
    """While it is open, Inductor generates programs and compiles none of them; what it generates
    and chooses is collected. Raises IntegrationError where no GPU is pretended.

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
    with (
        _codegen_only(lowered),
        inputs_of_one_mode(),
        _recorded(lowered),
        _timed_by(benchmark),
        config.patch({**settings, **(options or {})}),
        warnings.catch_warnings(),
    ):
        warnings.filterwarnings("ignore", "dynamo_pgo force disabled")
        yield lowered


def without_data(module: torch.nn.Module) -> torch.nn.Module:
    """The module, with its parameters and buffers replaced by tensors on the GPU without data or
    gradient. For use in `build`, where parameters cannot be initialised or moved. Make the module
    on the meta device."""
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


@contextlib.contextmanager
def _codegen_only(lowered: Lowered) -> Iterator[None]:
    def compile_to_module(graph: Any) -> _Module:
        source, _ = graph.codegen()
        lowered.sources.append(source.value)
        return _Module()

    with patch_attribute(GraphLowering, "compile_to_module", compile_to_module):
        yield


@contextlib.contextmanager
def _recorded(lowered: Lowered) -> Iterator[None]:
    """Records the remaining choices after all preprocessing functions."""

    def record(choices: list[Any]) -> list[Any]:
        known = [c for c in choices if template_choice_of(c)]
        if known:
            predictions: list[ChosenKernel | None] = [chosen_kernel_of(c) for c in known]
            lowered.seen.append(
                Seen(
                    tuple(candidate_of(template_choice_of(c)) for c in known),
                    tuple(None if p is None else p.pick.cost_us for p in predictions),
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

    with patch_attribute(AlgorithmSelectorCache, "__call__", recording):
        yield


@contextlib.contextmanager
def _timed_by(benchmark: Callable[[Candidate], float] | None) -> Iterator[None]:
    def times(self: Any, choices: Sequence[Any], *_: Any, **__: Any) -> dict[Any, float]:
        if benchmark is None:
            raise IntegrationError(
                f"{len(choices)} choices are left to be timed, and there is no GPU to time them on."
            )
        return {c: benchmark(candidate_of(template_choice_of(c))) for c in choices}

    def no_precompile(self: Any, *_: Any, **__: Any) -> Callable[[], dict[Any, float]]:
        return dict

    with (
        patch_attribute(AlgorithmSelectorCache, "benchmark", times),
        patch_attribute(AlgorithmSelectorCache, "make_precompile_fn", no_precompile),
    ):
        yield
