"""The private functions of Inductor that Diode wraps or overrides, by name."""

from __future__ import annotations

from typing import Any

# The method of InductorChoices that is asked which kernels are to be rendered. Diode's classes of
# choices override it.
HOOK = "_finalize_template_configs"
# Another one of its methods: whether an output's layout is fixed before it is known what reads it.
FIXES_LAYOUT = "_need_to_fix_layout"
# Of torch._inductor.utils: whether Inductor uses kernels of a backend, which it takes by name.
USES_BACKEND = "_use_autotune_backend"
# Of torch._inductor.kernel.mm_grouped: lowers a product of groups.
LOWERS_GROUPS = "_tuned_grouped_mm_common"
# Of the same module: cuts the list of its configs, and takes the kernel from the rendered ones.
CUTS_GROUPS, SELECTS_GROUPS = "early_config_prune", "autotune_select_algorithm"
# Of torch._inductor.fx_passes.pad_mm: whether a product is faster with padded operands.
SHOULD_PAD = "_should_pad"
# Of torch._inductor.kernel.conv: makes a product of a 1×1 convolution.
MAKES_PRODUCT = "convert_1x1_conv_to_mm"
# Of torch._inductor.kernel.mm_plus_mm: lowers mm_plus_mm, which is no op of torch's.
LOWERS_SUM = "tuned_mm_plus_mm"
# Of torch._inductor.decomposition: copies the table of decompositions, and keeps the copy.
TABLE_COPY = "fast_random_decomps"
# Of torch._inductor.fx_passes.joint_graph: makes mm of bmm with a batch of one.
MAKES_MM = "bmm_to_mm"
# Of torch._inductor.fx_passes.post_grad: whether a sum of two products becomes one op.
IS_SUM = "is_valid_mm_plus_mm"
# Of torch._inductor.compile_fx: rewrites a graph before it is lowered.
REWRITES_GRAPH = "post_grad_passes"
# Of torch._inductor.codegen.triton's TritonScheduling: generates a template's kernel and its call.
GENERATES_TEMPLATE = "codegen_template"
# Of torch._inductor.codegen.wrapper: the call of a kernel, before it is written.
KERNEL_CALL = "KernelCallLine"


def hook_of(choices: Any) -> Any:
    """Return the hook of a class of InductorChoices, or of what super() returns in one; None before
    torch 2.10, which does not ask for choices."""
    return getattr(choices, HOOK, None)
