"""Makes torch and Triton believe that a GPU is in this machine."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import torch
import torch._dynamo.device_interface as device_interface
from torch._inductor import config
from torch._inductor.select_algorithm import TritonTemplate
from torch._subclasses.fake_tensor import FakeTensorMode

from diode_engine.core.hardware import H200, Hardware, detect
from diode_engine.errors import IntegrationError
from diode_engine.inductor.torch_internals import device as torch_device
from diode_engine.inductor.torch_internals import versions

_BUS_BITS = 6144  # any width: the memory clock is computed so that the bandwidth is right
_pretended: Hardware | None = None


def pretend(hardware: Hardware = H200) -> None:
    """Make torch believe, until the process ends, that its one device is this GPU.

    Raises IntegrationError where there is a real GPU (it would be hidden, and could be used by
    accident), where another one is pretended already, or where `hardware` is not NVIDIA's.
    """
    global _pretended
    if _pretended == hardware:
        return
    if _pretended is not None:
        raise IntegrationError(f"This process pretends to have a {_pretended.name} already.")
    if torch.cuda.is_available():
        raise IntegrationError("There is a GPU here: compile for it instead of pretending.")
    if not hardware.is_supported:
        raise IntegrationError(f"{hardware.name} is not an NVIDIA GPU; only those are pretended.")
    capability = tuple(int(part) for part in hardware.arch.split("."))
    _replace_questions(hardware, capability)
    _avoid_device()
    _replace_triton_driver(hardware, capability)
    detect.cache_clear()
    _pretended = hardware


def is_pretended() -> bool:
    """Return whether `pretend` was called."""
    return _pretended is not None


def _replace_questions(hardware: Hardware, capability: tuple[int, ...]) -> None:
    """Replace torch's functions that ask for the device."""
    interface: Any = device_interface.CudaInterface
    answers = {
        "is_available": True,
        "is_initialized": True,
        "device_count": 1,
        "current_device": 0,
        "get_device_properties": _properties(hardware, capability),
        "get_device_capability": capability,
        "get_compute_capability": 10 * capability[0] + capability[1],
        "get_device_name": hardware.name,
        "synchronize": None,
        "set_device": None,
        "exchange_device": 0,
        "maybe_exchange_device": 0,
        "is_bf16_supported": True,
        "set_rng_state": None,
        "is_current_stream_capturing": False,
    }
    for owner in (torch.cuda, interface, interface.Worker):
        for name in answers.keys() & set(dir(owner)):
            answer = _answer(answers[name])
            setattr(owner, name, answer if owner is torch.cuda else staticmethod(answer))
    for module, functions in torch_device.device_functions():
        for name, value in functions.items():
            setattr(module, name, _answer(value))
    torch.cuda.get_rng_state = lambda *_, **__: torch.zeros(16, dtype=torch.uint8)
    torch.accelerator.is_available = _answer(False)
    if torch.version.cuda is None:
        torch.version.cuda = "13.0"
    for name in ("cuda", "cuda:0"):
        device_interface.register_interface_for_device(name, interface)
    torch_device.keep_device_interfaces()


def _properties(hardware: Hardware, capability: tuple[int, ...]) -> SimpleNamespace:
    """Return what torch.cuda.get_device_properties returns for the GPU."""
    return SimpleNamespace(
        name=hardware.name,
        gcnArchName=hardware.name,
        major=capability[0],
        minor=capability[1],
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


def _avoid_device() -> None:
    """Turn off the parts of torch that would use the device although nothing runs on it."""
    import torch._subclasses.fake_tensor as fake_tensor
    from torch.utils._triton import has_triton, has_triton_package

    # A tensor without data on the GPU would initialise the GPU.
    for name in versions.context_initialisers(fake_tensor):
        setattr(fake_tensor, name, _answer(None))
    torch_device.guard_without_device()
    for module, name in torch_device.traced_patterns():
        setattr(module, name, _answer(None))
    config.compile_threads = 1  # nothing is compiled
    if not versions.renders_without_device():
        generate = TritonTemplate.generate

        def without_data(*args: Any, **kwargs: Any) -> Any:
            with FakeTensorMode():
                return generate(*args, **kwargs)

        setattr(TritonTemplate, "generate", without_data)  # noqa: B010
    # The launcher in C++ would open libcuda.
    for name in versions.static_launchers(config):
        setattr(config, name, False)
    # These may have cached that there is no device.
    has_triton.cache_clear()
    has_triton_package.cache_clear()


def _replace_triton_driver(hardware: Hardware, capability: tuple[int, ...]) -> None:
    """Give Triton a driver that knows its target and can launch nothing."""
    from triton.backends.compiler import GPUTarget
    from triton.backends.nvidia.driver import CudaDriver

    properties = {
        "max_shared_mem": hardware.shared_bytes_block,
        "max_num_regs": hardware.registers_multiprocessor,
        "multiprocessor_count": hardware.multiprocessors,
        "warpSize": 32,
        "sm_clock_rate": hardware.clock_mhz * 1000,
    }

    class TargetOnlyDriver(CudaDriver):  # type: ignore[misc]
        def __init__(self) -> None:
            self.get_current_stream = _answer(0)
            self.get_current_device = _answer(0)
            self.set_current_device = _answer(None)
            self.get_device_capability = _answer(capability)
            self.utils = SimpleNamespace(get_device_properties=_answer(properties))

        def get_current_target(self) -> GPUTarget:
            return GPUTarget("cuda", 10 * capability[0] + capability[1], 32)

        @classmethod
        def is_active(cls) -> bool:
            return True

    torch_device.set_triton_driver(TargetOnlyDriver())
