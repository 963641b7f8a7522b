"""What Inductor offers for products of groups. It does not use its hook for these.

torch/_inductor/kernel/mm_grouped.py makes the list of choices itself. In its function that cuts the
list of configs (`early_config_prune`) a config can be dropped before it is rendered.
"""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch._inductor.kernel import mm_grouped
from torch._inductor.kernel_inputs import MMKernelInputs
from torch._inductor.kernel_template_choice import (  # type: ignore[attr-defined]
    DictKernelTemplateParams,
    KernelTemplateChoice,
)
from torch._inductor.lowering import lowerings

from diode_engine.core.operators import GROUPED, SCALED_GROUPED, Operator
from diode_engine.core.operators.specification import Fields
from diode_engine.core.templates import templates_for
from diode_engine.inductor.patches import patch_attribute
from diode_engine.inductor.torch_internals import DEVICE_TYPE
from diode_engine.inductor.torch_internals.wrapped_functions import CUTS_GROUPS, SELECTS_GROUPS

# Inductor's templates by their uids.
_TEMPLATES = {
    template.uid: template
    for template in (
        mm_grouped.aten__grouped_mm, mm_grouped.aten__scaled_grouped_mm,
        mm_grouped.triton_grouped_mm_template, mm_grouped.triton_scaled_grouped_mm_template,
    )
}  # fmt: skip


@dataclass(frozen=True)
class GroupedRequest:
    """A product of groups that Inductor is asked to lower."""

    op: Operator
    kernel_inputs: MMKernelInputs  # in the op's order
    overrides: Mapping[str, Mapping[str, Any]]  # the kwargs that it sets, by template


def read_request(signature: inspect.Signature, args: Any, kwargs: Any) -> GroupedRequest | None:
    """Return what `_tuned_grouped_mm_common`, of this signature, is called for; None where that is
    not for a device that Diode chooses for."""
    given = signature.bind(*args, **kwargs).arguments
    a, b = given["mat_a"], given["mat_b"]
    if a.get_device().type != DEVICE_TYPE:
        return None
    scales = [given[name] for name in ("scale_a", "scale_b") if given.get(name) is not None]
    op = find_op(len(a.get_size()), len(b.get_size()), scaled=bool(scales))
    offsets = [] if given.get("offs") is None else [given["offs"]]
    inputs = MMKernelInputs(
        [a, b, *scales, *offsets],
        out_dtype=given.get("out_dtype") or a.get_dtype(),
        mat1_idx=0,
        mat2_idx=1,
    )
    fast = bool(given.get("use_fast_accum"))
    return GroupedRequest(op, inputs, {uid_of(op): {"USE_FAST_ACCUM": fast}})


class _LoweringEnded(Exception):
    """Raised to end the lowering when everything that is needed is known."""


def find_op(a_dims: int, b_dims: int, *, scaled: bool) -> Operator:
    """Return the op of operands with these numbers of dimensions."""
    return next(
        op
        for op in (SCALED_GROUPED if scaled else GROUPED)
        if tuple(len(matrix.dims) for matrix in op.matrices) == (a_dims, b_dims)
    )


def uid_of(op: Operator, *, is_library: bool = False) -> str:
    """Return the uid of Triton's template, or of the library's call."""
    return next(each.name for each in templates_for(op) if each.extern is is_library)


def offer(op: Operator, config: Any, inputs: Any, layout: Any = None, **given: Any) -> Any:
    """Return the KernelTemplateChoice of a config of Inductor's, or of the library's call (None),
    with the `given` kwargs. Without a layout it cannot be rendered."""
    uid, kwargs = uid_of(op, is_library=config is None), {}
    if config is not None:
        kwargs = {**config.kwargs, "num_stages": config.num_stages, "num_warps": config.num_warps}
    params = DictKernelTemplateParams(kwargs)
    return KernelTemplateChoice(_TEMPLATES[uid], params, given, layout, inputs)


def list_offers(op: Operator, operands: Sequence[Any], fields: Fields) -> list[Any]:
    """Return the KernelTemplateChoices for the op of these TensorBoxes, the library's call first;
    `fields` are as in `kernels.read_offers`. Call it inside `kernels.graph_for`, with options under
    which Inductor offers kernels."""
    found: list[Any] = []
    cut: Any = mm_grouped.early_config_prune
    configs_kept: list[tuple[Any, Mapping[str, Any]]] = []

    def note_configs(g: Any, m: Any, itemsize: int, configs: Any, named: Any) -> list[Any]:
        kept = cut(g, m, itemsize, configs, named)
        configs_kept.extend((config, dict(named)) for config in kept)
        return []

    def note_choices(name: str, choices: list[Any], nodes: Any, layout: Any, **_: Any) -> None:
        inputs = MMKernelInputs(list(nodes), mat1_idx=0, mat2_idx=1)
        offers = [*((None, each.kwargs) for each in choices), *configs_kept]
        found.extend(offer(op, config, inputs, layout, **given) for config, given in offers)
        raise _LoweringEnded

    with (
        patch_attribute(mm_grouped, CUTS_GROUPS, note_configs),
        patch_attribute(mm_grouped, SELECTS_GROUPS, note_choices),
        contextlib.suppress(_LoweringEnded),
    ):
        lower = lowerings[getattr(torch.ops.aten, op.aten).default]
        lower(*operands, **op.keywords(torch, fields))
    return found
