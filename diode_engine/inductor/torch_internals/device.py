"""The GPU as torch and Triton know it: what initialises or asks it, and keeps it busy."""

from __future__ import annotations

from typing import Any

import torch


def wait_on_device(cycles: int) -> None:
    """Enqueue a kernel in the current stream that does nothing for this many clock cycles."""
    torch.cuda._sleep(cycles)


def current_stream(index: int) -> int:
    """Return the address of the current stream of a device, faster than torch.cuda does."""
    stream: int = torch._C._cuda_getCurrentRawStream(index)
    return stream


def device_functions() -> list[tuple[Any, dict[str, Any]]]:
    """Return private functions that ask or initialise the device, by the module that has them, and
    what each returns where the one device is number 0."""
    return [
        (torch.cuda, {"_lazy_init": None, "_exchange_device": 0, "_maybe_exchange_device": 0}),
        (
            torch._C,
            {
                "_cuda_getDevice": 0,
                "_cuda_exchangeDevice": 0,
                "_cuda_maybeExchangeDevice": 0,
                "_cuda_setDevice": None,
                "_cuda_getDeviceCount": 1,
                "_cuda_getCurrentRawStream": 0,
            },
        ),
    ]


def traced_patterns() -> list[tuple[Any, str]]:
    """Return (module, name) of the functions by which passes of Inductor trace their patterns, with
    real tensors on the device."""
    import torch._inductor.fx_passes.fuse_attention as fuse_attention
    import torch._inductor.fx_passes.misc_patterns as misc_patterns

    return [(fuse_attention, "_sfdp_init"), (misc_patterns, "_misc_patterns_init")]


def guard_without_device() -> None:
    """On a torch with CUDA, makes the guard of the current device one that does nothing."""
    torch._C._ensureCUDADeviceGuardSet()


def keep_device_interfaces() -> None:
    """Have Dynamo keep the device interfaces that are registered now. Else it registers its own
    when it is first asked for one."""
    import torch._dynamo.device_interface as device_interface

    device_interface._device_initialized = True


def set_triton_driver(pretended: Any) -> None:
    """Make this Triton's driver, also after its active driver is reset."""
    from triton.runtime.driver import driver

    driver.set_active(pretended)
    driver._default = pretended
