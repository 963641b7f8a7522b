"""Makes ATen compute each product that Inductor lowers in this process, so that nothing is
benchmarked while a program is captured. What it lowers is noted by `hook.product_notes`."""

from __future__ import annotations

import functools
import os
import sys
from typing import Any

from diode_engine.core.templates import template_of
from diode_engine.inductor.guard import STOCK, guard
from diode_engine.inductor.on_import import when_imported
from diode_engine.inductor.patches import Function, Patches
from diode_engine.inductor.torch_internals.versions import part
from diode_engine.inductor.torch_internals.wrapped_functions import (
    CUTS_GROUPS,
    HOOK,
    LOWERS_GROUPS,
    hook_of,
)

VARIABLE = "DIODE_CAPTURE"  # the environment variable that is set in a captured program
_BENCHMARKED = "a library's kernel was not taken"
_ALL_RENDERED = "more kernels than the library's are rendered"


def begin() -> None:
    """Take ATen's kernels in this process, if its program is captured."""
    if os.environ.get(VARIABLE):
        when_imported("torch._inductor.choices", attach)


def attach() -> None:
    """Wrap the hook of InductorChoices, below everything that may be derived from it."""
    kind: Any = sys.modules["torch._inductor.choices"].InductorChoices
    if hook_of(kind) is not None:
        patches = Patches()  # never restored
        patches.wrap(kind, HOOK, _wrap_hook)
        groups = functools.partial(_attach_grouped, patches)
        when_imported("torch._inductor.kernel.mm_grouped", groups)


def _wrap_hook(theirs: Function) -> Function:
    def libraries(*args: Any, **kwargs: Any) -> list[Any]:
        return _libraries(theirs(*args, **kwargs))

    return guard(_BENCHMARKED, stock=libraries)(_add_prefer_aten)


def _attach_grouped(patches: Patches) -> None:
    """Wrap two functions for products of groups, whose choices Inductor makes without asking: the
    one that lowers such a product, and the one that cuts the list of its configs."""
    module: Any = sys.modules["torch._inductor.kernel.mm_grouped"]
    if part(module, LOWERS_GROUPS) is not None and part(module, CUTS_GROUPS) is not None:
        patches.guard(module, LOWERS_GROUPS, _add_prefer_aten, _BENCHMARKED)
        patches.guard(module, CUTS_GROUPS, _cut, _ALL_RENDERED)


def _cut(*_: Any, **__: Any) -> Any:
    from torch._inductor.utils import use_aten_gemm_kernels

    # The library's kernel is in the list already; the others need not be rendered.
    return [] if use_aten_gemm_kernels() else STOCK


def _add_prefer_aten(*_: Any, **__: Any) -> Any:
    from diode_engine.inductor.lowering import preprocessing

    preprocessing.add(prefer_aten)
    return STOCK


def _as_offered(choices: list[Any]) -> list[Any]:
    return choices


@guard(_ALL_RENDERED, stock=_as_offered)
def _libraries(choices: list[Any]) -> list[Any]:
    """Return the libraries' kernels where there are any: the other choices need not be rendered,
    which would take most of the time."""
    return [c for c in choices if template_of(c.template.uid).extern] or choices


@guard(_BENCHMARKED, stock=_as_offered)
def prefer_aten(choices: list[Any]) -> list[Any]:
    """Preprocess a list of choices for Inductor: a library's kernel where there is one, so that
    nothing is benchmarked."""
    from torch._inductor.select_algorithm import ExternKernelCaller

    return [c for c in choices if isinstance(c, ExternKernelCaller)][:1] or choices
