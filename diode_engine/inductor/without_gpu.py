"""Inductor's real lowering on a machine without a GPU.

`pretend` makes this process believe that it has a given GPU; `lower` then drives the whole of
torch.compile over tensors without data, up to the generated source. No kernel is compiled or
launched, and nothing is timed: what is shown this way is which kernels would be chosen.

Checked on torch 2.10 to 2.15 with the Triton that belongs to each.
"""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any
from unittest import mock

import torch
import torch._dynamo.device_interface as device_interface
from torch._guards import TracingContext
from torch._inductor import compile_fx, config
from torch._inductor.graph import GraphLowering
from torch._inductor.select_algorithm import AlgorithmSelectorCache, TritonTemplate
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

from diode_engine.core.hardware import H200, Hardware, detect
from diode_engine.core.problem import Candidate
from diode_engine.errors import IntegrationError
from diode_engine.inductor.choosing.decision import Prediction, prediction_of
from diode_engine.inductor.lowering.candidates import candidate_of

_BUS_BITS = 6144  # any width: detection multiplies it with the clock that is made to fit
_pretended: Hardware | None = None


@dataclass(frozen=True)
class Seen:
    """The choices that were left of one GEMM: one, or those to be benchmarked."""

    candidates: tuple[Candidate, ...]
    predicted_us: tuple[float | None, ...]  # None where Diode did not choose


@dataclass
class Lowered:
    """What came of lowering: each graph's generated program, its Triton kernels inside, and
    the choices of every GEMM."""

    sources: list[str] = field(default_factory=list)
    seen: list[Seen] = field(default_factory=list)


def pretend(hardware: Hardware = H200) -> None:
    """Makes torch believe, until the process ends, that its one device is this GPU.

    Raises IntegrationError where there is a GPU (it would be hidden, and could be used by
    accident), where another one is pretended already, or where `hardware` is not NVIDIA's.
    """
    global _pretended
    if _pretended == hardware:
        return
    if _pretended is not None:
        raise IntegrationError(f"This process pretends to have a {_pretended.name} already.")
    if torch.cuda.is_available():
        raise IntegrationError("There is a GPU here: compile for it instead of pretending.")
    if hardware.backend != "cuda":
        raise IntegrationError(f"{hardware.name} is not an NVIDIA GPU; only those are pretended.")
    properties = _properties(hardware)
    _replace_torch_cuda(properties)
    _replace_device_interface(properties)
    _avoid_the_device()
    _replace_triton_driver(hardware)
    detect.cache_clear()
    _pretended = hardware


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
        torch._dynamo.reset()
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
    """While it is open Inductor generates programs and compiles none of them; what it
    generated and chose is collected. Raises IntegrationError where no GPU is pretended.

    `options` are set in torch._inductor.config. `benchmark` stands in for the timing of several
    choices that are left (milliseconds, made up); without it having to time something is an
    IntegrationError.
    """
    if _pretended is None:
        raise IntegrationError("Call pretend() first: there is no device to lower for.")
    lowered = Lowered()
    settings = {
        "force_disable_caches": True,
        "benchmark_epilogue_fusion": False,
        "shape_padding": False,  # times matrix products on the device before it pads them
    }
    with (
        _codegen_only(lowered),
        _inputs_of_one_mode(),
        _recorded(lowered),
        _timed_by(benchmark),
        config.patch({**settings, **(options or {})}),
        warnings.catch_warnings(),
    ):
        warnings.filterwarnings("ignore", "dynamo_pgo force disabled")
        yield lowered


def without_data(module: torch.nn.Module) -> torch.nn.Module:
    """The module, its parameters and buffers replaced by ones on the GPU without data or
    gradient; for `build`, since parameters cannot be initialised or moved there. Make the
    module on the meta device."""
    for part in module.modules():
        for name, parameter in part.named_parameters(recurse=False):
            moved = torch.empty_like(parameter, device="cuda")
            setattr(part, name, torch.nn.Parameter(moved, requires_grad=False))
        for name, buffer in part.named_buffers(recurse=False):
            setattr(part, name, torch.empty_like(buffer, device="cuda"))
    return module


class _DataNeeded(Exception):
    """The compiled graph is to be run: this is as far as it goes without data."""


class _Module:
    """Stands in for the compiled graph."""

    runner = None

    def call(self, args: list[Any]) -> list[Any]:
        raise _DataNeeded


@contextlib.contextmanager
def _codegen_only(lowered: Lowered) -> Iterator[None]:
    def compile_to_module(graph: Any) -> _Module:
        source, _ = graph.codegen()
        lowered.sources.append(getattr(source, "value", source))
        return _Module()

    with mock.patch.object(GraphLowering, "compile_to_module", compile_to_module):
        yield


@contextlib.contextmanager
def _inputs_of_one_mode() -> Iterator[None]:
    """Inductor of torch 2.10 wants its inputs without data to be of the mode that Dynamo has traced
    in; later it converts them itself."""
    if torch.__version__ >= "2.11":
        yield
        return
    compile_graph = compile_fx.compile_fx

    def converted(graph: Any, inputs: Sequence[Any], *args: Any, **kwargs: Any) -> Any:
        context = TracingContext.try_get()
        if context is not None and context.fake_mode is not None:
            inputs = [_converted(each, context) for each in inputs]
        return compile_graph(graph, inputs, *args, **kwargs)

    with mock.patch.object(compile_fx, "compile_fx", converted):
        yield


def _converted(value: Any, context: TracingContext) -> Any:
    mode = context.fake_mode
    if mode is None or not isinstance(value, FakeTensor) or value.fake_mode is mode:
        return value
    symbolic = context.tensor_to_context.get(value)
    source = getattr(symbolic, "tensor_source", None)
    return mode.from_tensor(value, symbolic_context=symbolic, source=source)


@contextlib.contextmanager
def _recorded(lowered: Lowered) -> Iterator[None]:
    """Records the choices that are left when all preprocessing functions have run."""

    def record(choices: list[Any]) -> list[Any]:
        known = [c for c in choices if (getattr(c, "annotations", None) or {}).get("ktc")]
        if known:
            predictions: list[Prediction | None] = [prediction_of(c) for c in known]
            lowered.seen.append(
                Seen(
                    tuple(candidate_of(c.annotations["ktc"]) for c in known),
                    tuple(None if p is None else p.pick.cost_us for p in predictions),
                )
            )
        return choices

    select = AlgorithmSelectorCache.__call__

    def recording(self: Any, *args: Any, **kwargs: Any) -> Any:
        functions = self.preprocessing_fns
        if record in functions:  # a choice inside a choice
            return select(self, *args, **kwargs)
        functions.append(record)
        try:
            return select(self, *args, **kwargs)
        finally:
            functions.remove(record)

    with mock.patch.object(AlgorithmSelectorCache, "__call__", recording):
        yield


@contextlib.contextmanager
def _timed_by(benchmark: Callable[[Candidate], float] | None) -> Iterator[None]:
    def times(self: Any, choices: Sequence[Any], *_: Any, **__: Any) -> dict[Any, float]:
        if benchmark is None:
            raise IntegrationError(
                f"{len(choices)} choices are left to be timed, and there is no GPU to time them on."
            )
        return {c: benchmark(candidate_of(c.annotations["ktc"])) for c in choices}

    def no_precompile(self: Any, *_: Any, **__: Any) -> Callable[[], dict[Any, float]]:
        return dict

    with (
        mock.patch.object(AlgorithmSelectorCache, "benchmark", times),
        mock.patch.object(AlgorithmSelectorCache, "make_precompile_fn", no_precompile),
    ):
        yield


def _properties(hardware: Hardware) -> SimpleNamespace:
    """What torch.cuda.get_device_properties answers for it."""
    major, minor = (int(part) for part in hardware.arch.split("."))
    return SimpleNamespace(
        name=hardware.name,
        gcnArchName=hardware.name,
        major=major,
        minor=minor,
        multi_processor_count=hardware.multiprocessors,
        clock_rate=hardware.clock_mhz * 1000,
        memory_bus_width=_BUS_BITS,
        memory_clock_rate=round(hardware.memory_gb_s * 1e9 * 8 / _BUS_BITS / 2e3),
        L2_cache_size=hardware.l2_bytes,
        shared_memory_per_block=48 * 1024,
        shared_memory_per_block_optin=hardware.shared_bytes_block,
        shared_memory_per_multiprocessor=hardware.shared_bytes_multiprocessor,
        regs_per_multiprocessor=hardware.registers_multiprocessor,
        total_memory=1 << 37,
        max_threads_per_multi_processor=2048,
        max_threads_per_block=1024,
        warp_size=32,
        is_integrated=0,
        is_multi_gpu_board=0,
        uuid="pretended",
        pci_bus_id=0,
        pci_device_id=0,
        pci_domain_id=0,
    )


def _answer(value: Any) -> Callable[..., Any]:
    return lambda *_, **__: value


def _replace_torch_cuda(properties: SimpleNamespace) -> None:
    capability = (properties.major, properties.minor)
    for name, value in {
        "is_available": True,
        "is_initialized": True,
        "device_count": 1,
        "current_device": 0,
        "get_device_properties": properties,
        "get_device_capability": capability,
        "get_device_name": properties.name,
        "synchronize": None,
        "set_device": None,
        "_lazy_init": None,
        "is_bf16_supported": True,
        "set_rng_state": None,
        "_exchange_device": 0,
        "_maybe_exchange_device": 0,
        "is_current_stream_capturing": False,
    }.items():
        setattr(torch.cuda, name, _answer(value))
    torch.cuda.get_rng_state = lambda *_, **__: torch.zeros(16, dtype=torch.uint8)
    torch.accelerator.is_available = _answer(False)
    for name, value in {
        "_cuda_getDevice": 0,
        "_cuda_exchangeDevice": 0,
        "_cuda_maybeExchangeDevice": 0,
        "_cuda_setDevice": None,
        "_cuda_getDeviceCount": 1,
        "_cuda_getCurrentRawStream": 0,
    }.items():
        setattr(torch._C, name, _answer(value))
    if torch.version.cuda is None:
        torch.version.cuda = "13.0"


def _replace_device_interface(properties: SimpleNamespace) -> None:
    cuda: Any = device_interface.CudaInterface
    for name, value in {
        "is_available": True,
        "device_count": 1,
        "current_device": 0,
        "get_compute_capability": 10 * properties.major + properties.minor,
        "get_device_properties": properties,
        "is_bf16_supported": True,
        "synchronize": None,
        "exchange_device": 0,
        "maybe_exchange_device": 0,
        "set_device": None,
    }.items():
        setattr(cuda, name, staticmethod(_answer(value)))
    for name, value in {
        "get_device_properties": properties,
        "current_device": 0,
        "set_device": None,
    }.items():
        setattr(cuda.Worker, name, staticmethod(_answer(value)))
    for device in ("cuda", "cuda:0"):
        device_interface.register_interface_for_device(device, cuda)
    device_interface._device_initialized = True


def _avoid_the_device() -> None:
    """Turns off what would touch the device while nothing is run on it."""
    import torch._inductor.fx_passes.fuse_attention as fuse_attention
    import torch._inductor.fx_passes.misc_patterns as misc_patterns
    import torch._subclasses.fake_tensor as fake_tensor
    import torch.utils._triton

    # a tensor without data on the GPU initialises it
    for name in ("init_gpu_context", "init_cuda_context"):  # until and from torch 2.12
        if hasattr(fake_tensor, name):
            setattr(fake_tensor, name, _answer(None))
    torch._C._ensureCUDADeviceGuardSet()  # a guard that does nothing, on a torch with CUDA
    # their patterns are traced with real tensors
    setattr(fuse_attention, "_sfdp_init", _answer(None))  # noqa: B010
    setattr(misc_patterns, "_misc_patterns_init", _answer(None))  # noqa: B010
    config.compile_threads = 1  # nothing is compiled
    if torch.__version__ < "2.11":  # it allocates a kernel's workspace when that is rendered
        generate = TritonTemplate.generate

        def without_data(*args: Any, **kwargs: Any) -> Any:
            with FakeTensorMode():
                return generate(*args, **kwargs)

        setattr(TritonTemplate, "generate", without_data)  # noqa: B010
    # the launcher in C++ opens libcuda
    for name in ("use_static_cuda_launcher", "use_static_triton_launcher"):
        entry = config._config.get(name)  # type: ignore[attr-defined]
        if entry is not None and entry.alias is None:
            setattr(config, name, False)
    # they remember that there was no device
    for name in ("has_triton", "has_triton_package"):
        getattr(torch.utils._triton, name).cache_clear()


def _replace_triton_driver(hardware: Hardware) -> None:
    """A Triton driver that knows its target and can launch nothing."""
    from triton.backends.compiler import GPUTarget
    from triton.backends.nvidia.driver import CudaDriver
    from triton.runtime.driver import driver

    major, minor = (int(part) for part in hardware.arch.split("."))

    class Driver(CudaDriver):  # type: ignore[misc]
        def __init__(self) -> None:
            self.get_current_stream = _answer(0)
            self.get_current_device = _answer(0)
            self.set_current_device = _answer(None)
            self.get_device_capability = _answer((major, minor))
            self.utils = SimpleNamespace(
                get_device_properties=_answer(
                    {
                        "max_shared_mem": hardware.shared_bytes_block,
                        "max_num_regs": hardware.registers_multiprocessor,
                        "multiprocessor_count": hardware.multiprocessors,
                        "warpSize": 32,
                        "sm_clock_rate": hardware.clock_mhz * 1000,
                    }
                )
            )

        def get_current_target(self) -> GPUTarget:
            return GPUTarget("cuda", 10 * major + minor, 32)

        @classmethod
        def is_active(cls) -> bool:
            return True

    pretended = Driver()
    driver.set_active(pretended)
    driver._default = pretended
