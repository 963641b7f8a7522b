"""Keeps a 1×1 convolution from becoming a slower product.

With max-autotune Inductor computes a 1×1 convolution of tensors in channels-last order as a
product. By torch's defaults a float32 convolution may use TF32 (torch.backends.cudnn) and a product
may not (torch.backends.cuda.matmul). The product would then be slower than the convolution of plain
torch.compile, whichever kernel is chosen for it. Where this is so and Diode chooses, it stays a
convolution of the library.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch._inductor import config
from torch._inductor.kernel import conv

from diode_engine.inductor.choosing.current import current_chooser
from diode_engine.inductor.lowering.candidates import tf32_in_convolutions_only
from diode_engine.inductor.replaced import WrappedFunctions
from diode_engine.inductor.torch_internals.versions import part

_MAKES_PRODUCT = "convert_1x1_conv_to_mm"
_wrapped = WrappedFunctions()


def attach() -> None:
    """Wraps the function that makes the product, once."""
    if part(conv, _MAKES_PRODUCT) is not None:
        _wrapped.wrap(conv, _MAKES_PRODUCT, _before)


def detach() -> None:
    """Restores what was there, unless somebody has replaced it since."""
    _wrapped.give_back()


def _before(theirs: Callable[..., Any]) -> Callable[..., Any]:
    def ours(x: Any, weight: Any, bias: Any) -> Any:
        chooser = current_chooser()
        if chooser is None or not _stays(x):
            return theirs(x, weight, bias)
        chooser.outcomes.stats.count("convolutions_kept")
        dims = len(weight.get_size()) - 2
        with config.patch(max_autotune=False, max_autotune_gemm=False):
            return conv.convolution(
                x, weight, bias,
                stride=[1] * dims, padding=[0] * dims, dilation=[1] * dims,
                transposed=False, output_padding=[0] * dims, groups=1,
            )  # fmt: skip

    return ours


def _stays(x: Any) -> bool:
    # With the option conv_1x1_as_mm the program asks for products itself.
    return (
        x.get_dtype() == torch.float32
        and x.get_device().type == "cuda"
        and not config.conv_1x1_as_mm
        and tf32_in_convolutions_only()
    )
