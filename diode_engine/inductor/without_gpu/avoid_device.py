"""Turns off the parts of torch that would use the device although nothing runs on it."""

from __future__ import annotations

from typing import Any

from torch._inductor import config
from torch._inductor.select_algorithm import TritonTemplate
from torch._subclasses.fake_tensor import FakeTensorMode

from diode_engine.inductor.torch_internals import device, versions


def avoid_the_device() -> None:
    """Turns off these parts, until the process ends."""
    import torch._subclasses.fake_tensor as fake_tensor
    from torch.utils._triton import has_triton, has_triton_package

    # A tensor without data on the GPU would initialise the GPU.
    for name in versions.context_initialisers(fake_tensor):
        setattr(fake_tensor, name, _nothing)
    device.guard_without_device()
    for module, name in device.traced_patterns():
        setattr(module, name, _nothing)
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


def _nothing(*_: Any, **__: Any) -> None:
    """Replaces functions that would use the device."""
