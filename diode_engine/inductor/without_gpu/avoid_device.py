"""Turns off the parts of torch that would use the device although nothing runs on it."""

from __future__ import annotations

from typing import Any

from torch._inductor import config
from torch._inductor.select_algorithm import TritonTemplate
from torch._subclasses.fake_tensor import FakeTensorMode

from diode_engine.inductor import torch_versions


def avoid_the_device() -> None:
    """Turns off these parts, until the process ends."""
    import torch._inductor.fx_passes.fuse_attention as fuse_attention
    import torch._inductor.fx_passes.misc_patterns as misc_patterns
    import torch._subclasses.fake_tensor as fake_tensor
    import torch.utils._triton

    # A tensor without data on the GPU would initialise the GPU.
    for name in torch_versions.context_initialisers(fake_tensor):
        setattr(fake_tensor, name, _nothing)
    torch._C._ensureCUDADeviceGuardSet()  # a guard that does nothing, on a torch with CUDA
    # The patterns of these passes are traced with real tensors.
    setattr(fuse_attention, "_sfdp_init", _nothing)  # noqa: B010
    setattr(misc_patterns, "_misc_patterns_init", _nothing)  # noqa: B010
    config.compile_threads = 1  # nothing is compiled
    if not torch_versions.renders_without_device():
        generate = TritonTemplate.generate

        def without_data(*args: Any, **kwargs: Any) -> Any:
            with FakeTensorMode():
                return generate(*args, **kwargs)

        setattr(TritonTemplate, "generate", without_data)  # noqa: B010
    # The launcher in C++ would open libcuda.
    for name in torch_versions.static_launchers(config):
        setattr(config, name, False)
    # These may have cached that there is no device.
    for name in ("has_triton", "has_triton_package"):
        getattr(torch.utils._triton, name).cache_clear()


def _nothing(*_: Any, **__: Any) -> None:
    """Replaces functions that would use the device."""
