"""Keeps a 1×1 convolution from becoming a slower product.

With max-autotune Inductor computes a 1×1 convolution of tensors in channels-last order as a
product. Where Diode chooses, it stays the convolution of plain torch.compile

- where Diode would take a library's kernel for the product: then nothing is gained, and on an H200
  a model with such convolutions was slower by up to 7 % (docs/notes/programs.md);
- in float32, where the convolution may use TF32 (torch.backends.cudnn) and the product may not
  (torch.backends.cuda.matmul), as by torch's defaults.
"""

from __future__ import annotations

from math import prod
from typing import Any

import torch
from torch._inductor import config
from torch._inductor.kernel import conv
from torch._inductor.utils import use_aten_gemm_kernels

from diode_engine.core.operators import ADDMM, MM
from diode_engine.errors import IntegrationError
from diode_engine.inductor.choosing import search
from diode_engine.inductor.choosing.compile_options import is_batch_invariant
from diode_engine.inductor.choosing.current import chooser_for, report_failure
from diode_engine.inductor.choosing.outside_graph import choose_outside_graph
from diode_engine.inductor.choosing.product_chooser import ProductChooser
from diode_engine.inductor.guard import STOCK
from diode_engine.inductor.lowering.candidates import problem_from, tf32_in_convolutions_only
from diode_engine.inductor.patches import Patches, is_named_in
from diode_engine.inductor.torch_internals.wrapped_functions import MAKES_PRODUCT


def check_place() -> None:
    """Check that the lowering of convolutions makes products. Raises IntegrationError where it does
    not."""
    if not is_named_in(conv, MAKES_PRODUCT):
        raise IntegrationError(f"this torch lowers convolutions without {MAKES_PRODUCT}.")


def apply(patches: Patches) -> None:
    """Wrap the function that makes the product."""
    patches.guard(
        conv, MAKES_PRODUCT, _lower_convolution, "a convolution was not decided", report_failure
    )


def _lower_convolution(x: Any, weight: Any, bias: Any) -> Any:
    chooser = chooser_for(x.get_device())
    if chooser is None or not _should_keep(chooser, x, weight, bias):
        return STOCK
    dims = len(weight.get_size()) - 2
    with config.patch(max_autotune=False, max_autotune_gemm=False):
        kept = conv.convolution(
            x, weight, bias,
            stride=[1] * dims, padding=[0] * dims, dilation=[1] * dims,
            transposed=False, output_padding=[0] * dims, groups=1,
        )  # fmt: skip
    chooser.outcomes.stats.count("convolutions_kept")
    return kept


def _should_keep(chooser: ProductChooser, x: Any, weight: Any, bias: Any) -> bool:
    # The program may ask for products itself (conv_1x1_as_mm), or for no kernel of a library.
    if config.conv_1x1_as_mm or not use_aten_gemm_kernels():
        return False
    if is_batch_invariant():
        return True
    if x.get_dtype() == torch.float32 and tf32_in_convolutions_only():
        return True
    return _is_library_taken(chooser, x, weight, bias)


def _is_library_taken(chooser: ProductChooser, x: Any, weight: Any, bias: Any) -> bool:
    """Return whether the kernel that Diode would take for the product is a library's. False where
    Diode does not choose it."""
    operator = MM if bias is None else ADDMM
    if search.find_alteration() is not None or not chooser.knows(str(operator)):
        return False
    images, weights, steps = x.get_size(), weight.get_size(), weight.maybe_get_stride()
    if any(getattr(size, "free_symbols", ()) for size in (*images, *weights, *(steps or ()))):
        return False
    k, n = int(images[1]), int(weights[0])
    by_output, by_input = map(int, steps[:2]) if steps else (k, 1)  # None: computed from another
    rows = prod(map(int, images)) // k  # a pixel in each, as channels-last order has them
    shapes: list[tuple[int, ...]] = [(rows, k), (k, n)]
    strides: list[tuple[int, ...]] = [(k, 1), (by_input, by_output)]
    if bias is not None:
        shapes, strides = [(n,), *shapes], [(1,), *strides]
    dtype = x.get_dtype()
    problem = problem_from(operator, shapes, strides, [dtype] * len(shapes), dtype)
    if problem is None:
        return False

    def by_model() -> bool:
        choice = choose_outside_graph(chooser, problem, x.get_device())
        return choice is not None and choice.candidates[0].is_extern

    return bool(chooser.decide("keep the convolution", problem, by_model))
