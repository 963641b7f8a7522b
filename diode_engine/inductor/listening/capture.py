"""The GEMMs that Inductor lowers in this process, written down as they come.

It works in the processes of somebody's program, which it must not disturb. It only takes notes,
and makes ATen compute each GEMM, so that nothing is benchmarked. Every process writes a file of its
own into one folder, with a JSON object on each line:

    {"python": path}        this process is watched
    {"inductor": version}   it has imported Inductor, of the torch of this version
    {"too_old": version}    whose Inductor does not say what it lowers
    {"problem": {…}}        it compiled this
    {"left_out": sentence}  it compiled a GEMM that is no problem of Diode's
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import json
import os
import sys
from pathlib import Path
from typing import Any

from diode_engine.core.operators import OPERATORS
from diode_engine.core.problem import Problem
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

_NOT_RECORDED = "a product was not recorded"
_ALL_RENDERED = "more kernels than the library's are rendered"

FOLDER = "DIODE_CAPTURE"  # the environment variable that names the folder


def begin() -> None:
    """Watch this process from the moment when it imports Inductor; costs nothing before."""
    folder = os.environ.get(FOLDER)
    if folder and Path(folder).is_dir():
        note = functools.partial(write_note, Path(folder))
        note(python=sys.executable)
        when_imported("torch._inductor.choices", functools.partial(_attach, note))


def write_note(folder: Path, **record: Any) -> None:
    """Append a record to this process's file in the folder; nothing where that is impossible."""
    # Opened for each record: a forked process has another number, and so another file.
    with contextlib.suppress(OSError), (folder / f"{os.getpid()}.jsonl").open("a") as file:
        file.write(json.dumps(record) + "\n")


def _attach(note: Any) -> None:
    """Wrap the hook of InductorChoices, below everything that may be derived from it."""
    torch: Any = sys.modules["torch"]
    kind: Any = sys.modules["torch._inductor.choices"].InductorChoices
    version = str(torch.__version__)
    if hook_of(kind) is None:
        note(too_old=version)
        return
    note(inductor=version)
    patches = Patches()  # never restored
    patches.wrap(kind, HOOK, functools.partial(_wrap_hook, note))
    groups = functools.partial(_attach_grouped, note, patches)
    when_imported("torch._inductor.kernel.mm_grouped", groups)


def _wrap_hook(note: Any, theirs: Function) -> Function:
    def stock(*args: Any, **kwargs: Any) -> Any:
        return _libraries(theirs(*args, **kwargs))

    @guard(_NOT_RECORDED, stock=stock)
    def hook(
        self: Any, template_choices: Any, kernel_inputs: Any, templates: Any, op_name: str,
        kwarg_overrides: Any = None,
    ) -> Any:  # fmt: skip
        _record(note, kernel_inputs, op_name, kwarg_overrides)
        _add_prefer_aten()
        return STOCK

    return hook


def _attach_grouped(note: Any, patches: Patches) -> None:
    """Wrap two functions for products of groups, whose choices Inductor makes without asking: the
    one that lowers such a product, and the one that cuts the list of its configs."""
    module: Any = sys.modules["torch._inductor.kernel.mm_grouped"]
    if part(module, LOWERS_GROUPS) is not None and part(module, CUTS_GROUPS) is not None:
        patches.wrap(module, LOWERS_GROUPS, functools.partial(_wrap_lowering, note))
        patches.wrap(module, CUTS_GROUPS, _wrap_cut)


def _wrap_lowering(note: Any, theirs: Function) -> Function:
    signature = inspect.signature(theirs)

    @guard(_NOT_RECORDED, stock=theirs)
    def lowered(*args: Any, **kwargs: Any) -> Any:
        _record_grouped(note, signature, args, kwargs)
        _add_prefer_aten()
        return STOCK

    return lowered


def _wrap_cut(theirs: Function) -> Function:
    @guard(_ALL_RENDERED, stock=theirs)
    def cut(*args: Any, **kwargs: Any) -> Any:
        from torch._inductor.utils import use_aten_gemm_kernels

        # The library's kernel is in the list already; the others need not be rendered.
        return [] if use_aten_gemm_kernels() else STOCK

    return cut


def _record_grouped(note: Any, signature: inspect.Signature, args: Any, kwargs: Any) -> None:
    from diode_engine.inductor.lowering import grouped_offers

    asked = grouped_offers.read_request(signature, args, kwargs)
    if asked is not None:
        _record(note, asked.kernel_inputs, asked.op, asked.overrides)


def _record(note: Any, kernel_inputs: Any, op_name: str, overrides: Any) -> None:
    if op_name in OPERATORS:
        problem = read_problem(kernel_inputs, op_name, overrides)
        if isinstance(problem, str):
            note(left_out=problem)
        else:
            note(problem=problem.to_dict())


def read_problem(kernel_inputs: Any, op_name: str, overrides: Any) -> Problem | str:
    """Return the problem for which Inductor asks, or a description where Diode has none."""
    from diode_engine.inductor.lowering.candidates import problem_of

    try:
        problem = problem_of(kernel_inputs, op_name, overrides)
    except Exception as error:  # noqa: BLE001  # an unbacked size, or anything in a future torch
        return f"{op_name}: {type(error).__name__}: {error}"[:300]
    if problem is not None:
        return problem
    shapes = [tuple(shape) for shape in kernel_inputs.shapes_symbolic()]
    return f"{op_name} of {kernel_inputs.dtypes()}, {shapes}"[:300]


def _add_prefer_aten() -> None:
    from diode_engine.inductor.lowering import preprocessing

    preprocessing.add(prefer_aten)


def _as_offered(choices: list[Any]) -> list[Any]:
    return choices


@guard(_ALL_RENDERED, stock=_as_offered)
def _libraries(choices: list[Any]) -> list[Any]:
    """Return the libraries' kernels where there are any: the other choices need not be rendered,
    which would take most of the time."""
    return [c for c in choices if template_of(c.template.uid).extern] or choices


@guard("a library's kernel was not taken", stock=_as_offered)
def prefer_aten(choices: list[Any]) -> list[Any]:
    """Preprocess a list of choices for Inductor: a library's kernel where there is one, so that
    nothing is benchmarked."""
    from torch._inductor.select_algorithm import ExternKernelCaller

    return [c for c in choices if isinstance(c, ExternKernelCaller)][:1] or choices
