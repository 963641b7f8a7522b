"""What Inductor offers for products of groups, for which it does not use its hook.

torch/_inductor/kernel/mm_grouped.py makes the list of choices itself. Its function that cuts the
list of configs (`early_config_prune`) is where a config can be dropped before it is rendered.
"""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from types import SimpleNamespace
from typing import Any

import torch
from torch._inductor.kernel import mm_grouped
from torch._inductor.kernel_inputs import MMKernelInputs
from torch._inductor.lowering import lowerings

from diode_engine.core.operators import GROUPED, Operator
from diode_engine.core.templates import template_of
from diode_engine.inductor.replaced import replaced

LIBRARY, TRITON = "aten::_grouped_mm", "triton::grouped_mm"


class Params:
    """The kwargs, in the form of KernelTemplateParams."""

    def __init__(self, kwargs: Mapping[str, Any]) -> None:
        self._kwargs = dict(kwargs)

    def to_kwargs(self) -> dict[str, Any]:
        return dict(self._kwargs)


@dataclass(eq=False)
class OfferedKernel:
    """A choice that Inductor could render; the part of a KernelTemplateChoice that Diode uses."""

    uid: str
    params: Params
    # Makes Inductor's ChoiceCaller, or None where the template declines the config.
    render: Callable[[], Any] = lambda: None

    @property
    def template(self) -> Any:
        return SimpleNamespace(uid=self.uid)

    @cached_property
    def choice(self) -> Any:
        return self.render()


@dataclass(frozen=True)
class Asked:
    """What Inductor is asked to lower: one of Diode's products, unless it has `scales`."""

    op: Operator
    a: Any
    b: Any
    offsets: Any
    scales: bool
    out_dtype: Any

    @property
    def kernel_inputs(self) -> MMKernelInputs:
        nodes = [self.a, self.b] if self.offsets is None else [self.a, self.b, self.offsets]
        return MMKernelInputs(nodes, out_dtype=self.out_dtype, mat1_idx=0, mat2_idx=1)


def asked_of(signature: inspect.Signature, args: Any, kwargs: Any) -> Asked | None:
    """What `_tuned_grouped_mm_common`, of this signature, is called for; None where that is not
    for a CUDA device."""
    given = signature.bind(*args, **kwargs).arguments
    a, b = given["mat_a"], given["mat_b"]
    if a.get_device().type != "cuda":
        return None
    op = op_of(len(a.get_size()), len(b.get_size()))
    scales = given.get("scale_a") is not None
    out_dtype = given.get("out_dtype") or a.get_dtype()
    return Asked(op, a, b, given.get("offs"), scales, out_dtype)


class _Offered(Exception):
    """Raised to end the lowering when everything that is needed is known."""


def op_of(a_dims: int, b_dims: int) -> Operator:
    """The op of operands with these numbers of dimensions."""
    return next(
        op
        for op in GROUPED
        if tuple(len(matrix.dims) for matrix in op.matrices) == (a_dims, b_dims)
    )


def params_of(config: Any) -> Params:
    """The tuned parameters in one of Inductor's configs."""
    kwargs = {**config.kwargs, "num_stages": config.num_stages, "num_warps": config.num_warps}
    return Params({name: kwargs[name] for name in template_of(TRITON).parameters})


def offers(operands: Sequence[Any]) -> list[OfferedKernel]:
    """What Inductor offers for torch._grouped_mm of these TensorBoxes, the library's call first.
    Call it inside `kernels.graph_for`, with options under which Inductor offers kernels."""
    found: list[OfferedKernel] = []
    cut: Any = mm_grouped.early_config_prune
    triton: list[tuple[Any, Mapping[str, Any]]] = []

    def note_configs(g: Any, m: Any, itemsize: int, configs: Any, named: Any) -> list[Any]:
        kept = cut(g, m, itemsize, configs, named)
        triton.extend((config, dict(named)) for config in kept)
        return []

    def note_choices(name: str, choices: list[Any], nodes: Any, layout: Any, **_: Any) -> None:
        found.extend(
            OfferedKernel(LIBRARY, Params({}), partial(_same, choice)) for choice in choices
        )
        found.extend(
            OfferedKernel(
                TRITON, params_of(config), partial(_rendered, config, named, nodes, layout)
            )
            for config, named in triton
        )
        raise _Offered

    with (
        replaced(mm_grouped, "early_config_prune", note_configs),
        replaced(mm_grouped, "autotune_select_algorithm", note_choices),
        contextlib.suppress(_Offered),
    ):
        lowerings[torch.ops.aten._grouped_mm.default](*operands)
    return found


def _same(choice: Any) -> Any:
    return choice


def _rendered(config: Any, named: Mapping[str, Any], nodes: Any, layout: Any) -> Any:
    choices: list[Any] = []
    mm_grouped.triton_grouped_mm_template.maybe_append_choice(
        choices,
        input_nodes=nodes,
        layout=layout,
        num_stages=config.num_stages,
        num_warps=config.num_warps,
        **named,
        **config.kwargs,
    )
    return choices[0] if choices else None
