"""The private functions of Inductor that Diode wraps or overrides, by name."""

from __future__ import annotations

from typing import Any

# The method of InductorChoices that is asked which kernels are to be rendered. Diode's classes of
# choices override it.
HOOK = "_finalize_template_configs"
# The method of InductorChoices that says whether the layout of a product's output is fixed before
# it is known what reads it.
FIXES_LAYOUT = "_need_to_fix_layout"
# Of torch._inductor.utils: whether Inductor uses kernels of a backend, which it takes by name.
USES_BACKEND = "_use_autotune_backend"
# Of torch._inductor.kernel.mm_grouped: lowers a product of groups.
LOWERS_GROUPS = "_tuned_grouped_mm_common"
# Of torch._inductor.fx_passes.pad_mm: whether a product is faster with padded operands.
SHOULD_PAD = "_should_pad"


def hook_of(choices: Any) -> Any:
    """The hook of a class of InductorChoices, or of what super() returns in one; None before torch
    2.10, which does not ask for choices."""
    return getattr(choices, HOOK, None)
