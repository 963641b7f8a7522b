"""Diode's choices for products of groups (torch._grouped_mm, torch._scaled_grouped_mm).

Inductor makes the list of their choices itself (kernel/mm_grouped.py) and has no hook for it. So
Diode wraps three functions of that module. One lowers such a product: Diode reads the product
there. One cuts the list of configs: only the chosen ones are rendered. One benchmarks the choices:
each choice gets its prediction as an annotation, for `final_choice`. Products that the model does
not know are lowered as in the default mode.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextvars import ContextVar
from typing import Any

from torch._inductor import config
from torch._inductor.kernel import mm_grouped
from torch._inductor.select_algorithm import ExternKernelCaller
from torch._inductor.utils import use_aten_gemm_kernels

from diode_engine.choosing.invariant import refusal
from diode_engine.core.templates import template_of
from diode_engine.errors import IntegrationError
from diode_engine.inductor.choosing.chosen_kernels import ANNOTATION, ChosenKernel, final_choice
from diode_engine.inductor.choosing.compile_options import is_batch_invariant
from diode_engine.inductor.choosing.current import current_chooser, report_failure
from diode_engine.inductor.choosing.default_mode import leave_to_default
from diode_engine.inductor.choosing.product_chooser import ProductChooser
from diode_engine.inductor.guard import STOCK, guard
from diode_engine.inductor.lowering import layouts, preprocessing
from diode_engine.inductor.lowering.grouped_offers import (
    GroupedRequest,
    offer,
    read_request,
    uid_of,
)
from diode_engine.inductor.patches import Patches, check_called, is_named_in
from diode_engine.inductor.torch_internals.wrapped_functions import (
    CUTS_GROUPS,
    LOWERS_GROUPS,
    SELECTS_GROUPS,
)


class _Product:
    """One product of groups that is being lowered."""

    def __init__(self, chooser: ProductChooser, request: GroupedRequest) -> None:
        self.chooser = chooser
        self._request = request
        self._inputs = request.kernel_inputs
        self._kernels: list[ChosenKernel] = []

    def _keep_all(self, configs: Sequence[Any]) -> list[Any]:
        leave_to_default()
        return list(configs)

    @guard("the choice failed", stock=_keep_all, report=report_failure)
    def keep_configs(self, configs: Sequence[Any]) -> list[Any]:
        """Return Inductor's configs that are to be rendered; all of them, where Diode cannot
        choose."""
        op, overrides = self._request.op, self._request.overrides
        offers = [offer(op, each, self._inputs) for each in configs]
        library = [offer(op, None, self._inputs)] if use_aten_gemm_kernels() else []
        every = [*library, *offers]
        self._kernels = self.chooser.choose_listed(op, self._inputs, overrides, every)
        preprocessing.add(final_choice)
        wanted = {id(each.params) for each in self._kernels}
        return [c for c, its in zip(configs, offers, strict=True) if id(its.params) in wanted]

    def annotate(self, choices: list[Any]) -> list[Any]:
        """Give the rendered choices their chosen kernels, and return them; without the library's
        where it is not wanted."""
        if not self._kernels:
            if is_batch_invariant() and all(isinstance(c, ExternKernelCaller) for c in choices):
                why = refusal("Inductor offers only the library's kernels")
                self.chooser.outcomes.report_failure("", why)
            return choices
        names = template_of(uid_of(self._request.op)).parameters
        by_config = {_values(names, k.params.to_kwargs()): k for k in self._kernels}
        library = self._kernels[0].library
        if library is not None and layouts.will_move(self._inputs.nodes()):
            # `final_choice` then takes the library's.
            by_config.setdefault((), library)
        kept = []
        for choice in choices:
            is_library = isinstance(choice, ExternKernelCaller)
            key = () if is_library else _values(names, _described_parameters(choice))
            kernel = by_config.get(key)
            if kernel is not None:
                choice.annotations[ANNOTATION] = kernel
            elif is_library:
                continue
            kept.append(choice)  # another backend's too, without a prediction
        return kept or choices


_lowered: ContextVar[_Product | None] = ContextVar("diode_grouped_product", default=None)


def check_place() -> None:
    """Have the lowering of a product call a dummy."""
    nothing: Any = None
    lower = functools.partial(mm_grouped.tuned_grouped_mm, nothing, nothing)
    check_called(mm_grouped, LOWERS_GROUPS, lower)
    for name in (CUTS_GROUPS, SELECTS_GROUPS):
        if not is_named_in(getattr(mm_grouped, LOWERS_GROUPS), name):
            raise IntegrationError(f"this torch lowers products of groups without {name}.")


def apply(patches: Patches) -> None:
    """Wrap the three functions."""
    patches.wrap(mm_grouped, LOWERS_GROUPS, _wrap_lowering)
    patches.wrap(mm_grouped, CUTS_GROUPS, _wrap_cut)
    patches.wrap(mm_grouped, SELECTS_GROUPS, _wrap_select)


def _wrap_lowering(theirs: Callable[..., Any]) -> Callable[..., Any]:
    signature = inspect.signature(theirs)

    def stock(*args: Any, **kwargs: Any) -> Any:
        leave_to_default()
        return theirs(*args, **kwargs)

    @guard("a product of groups could not be lowered", stock=stock, report=report_failure)
    def ours(*args: Any, **kwargs: Any) -> Any:
        product = _find_product(signature, args, kwargs)
        if product is None:
            return STOCK
        token = _lowered.set(product)
        try:
            return theirs(*args, **kwargs)
        finally:
            _lowered.reset(token)

    return ours


def _find_product(signature: inspect.Signature, args: Any, kwargs: Any) -> _Product | None:
    """Return the product that is being lowered; None where Diode cannot choose for it."""
    chooser = current_chooser()
    if chooser is None or not (config.max_autotune or config.max_autotune_gemm):
        return None
    request = read_request(signature, args, kwargs)
    if request is not None and chooser.knows(request.op):
        return _Product(chooser, request)
    if request is not None:
        chooser.outcomes.stats.count_passed(request.op.aten.removeprefix("_"))
    return None


def _wrap_cut(theirs: Callable[..., Any]) -> Callable[..., Any]:
    def ours(*args: Any, **kwargs: Any) -> Any:
        configs, product = theirs(*args, **kwargs), _lowered.get()
        return configs if product is None else product.keep_configs(configs)

    return ours


def _wrap_select(theirs: Callable[..., Any]) -> Callable[..., Any]:
    def ours(name: str, choices: list[Any], *args: Any, **kwargs: Any) -> Any:
        product = _lowered.get()
        annotated = choices if product is None else product.annotate(choices)
        return theirs(name, annotated, *args, **kwargs)

    return ours


def _described_parameters(choice: Any) -> dict[str, str]:
    """Return the parameters of a rendered choice, from its description."""
    parts = choice.description.split(", ")
    return dict(part.split("=", 1) for part in parts if "=" in part)


def _values(names: Iterable[str], kwargs: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the values of the tuned parameters, as texts; none for the library's."""
    return tuple(str(kwargs.get(name)) for name in names) if kwargs else ()
