"""The final choice for a product: which of all its rendered kernels are taken.

An op can ask for kernels several times. Every rendered kernel carries what it was chosen from to
`final_choice`, which sees the complete list of one op.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from torch._inductor.select_algorithm import TritonTemplateCaller
from torch.utils._ordered_set import OrderedSet

from diode_engine.choosing.choice import Why
from diode_engine.choosing.policy import Comparison
from diode_engine.choosing.stats import Fallback
from diode_engine.core.templates import template_of
from diode_engine.inductor.choosing import trace
from diode_engine.inductor.choosing.chosen_kernel import chosen_kernel_of
from diode_engine.inductor.choosing.default_mode import leave_to_default
from diode_engine.inductor.fusion import registers
from diode_engine.inductor.guard import Report, guard
from diode_engine.inductor.lowering import layouts


def _keep_as_predicted(choice: Any, uid: str) -> None:
    """Keeps Inductor from fusing pointwise ops before a product into a template that is the only
    choice. It would fuse them into the template's loads without timing that, and a kernel that
    converts or computes what it loads can take five times as long. (With several choices it times
    both forms.)"""
    known = template_of(uid)
    if known.fuses_prologue and isinstance(choice, TritonTemplateCaller):
        choice.allowed_prologue_inps = OrderedSet()
    if known.tma:
        layouts.freeze(choice.input_nodes)


def _leave_to_default(choices: list[Any]) -> list[Any]:
    leave_to_default()
    return choices


def _report(choices: list[Any]) -> Report | None:
    """Return the function that reports to the outcomes of the first chosen kernel; None where Diode
    chose none."""
    first = next((k for k in map(chosen_kernel_of, choices) if k is not None), None)
    return None if first is None else first.outcomes.failed


@guard("the last choice failed", stock=_leave_to_default, report=_report)
def final_choice(choices: list[Any]) -> list[Any]:
    """Return the rendered kernels to take, of the complete list of one op. Inductor calls it before
    it benchmarks.

    Where it fails, the product is lowered as in the default mode; where the program asks for a
    search, the list stays as it is, and Inductor benchmarks the choices. So it stays where another
    backend (CUTLASS, an external matmul, …) has added a kernel: the user who turned that backend on
    wants it considered, and no prediction compares it with the others.
    """
    kernels = [kernel for kernel in map(chosen_kernel_of, choices) if kernel is not None]
    if not kernels:
        return choices
    outcomes = kernels[0].outcomes
    if len(kernels) < len(choices):
        outcomes.fall_back(
            Fallback.FOREIGN_CHOICE, "another backend offers kernels that the model cannot predict"
        )
        return choices
    largest = max(kernels, key=lambda kernel: len(kernel.comparison.candidates))
    comparison = Comparison.join([(kernel.comparison, kernel.place) for kernel in kernels])
    places, why = comparison.choose()
    if why is Why.FASTEST and len(kernels) == 1:
        why = largest.choice.why
    first = kernels[places[0]]
    if len(places) == 1 and not first.candidate.is_extern:
        library = comparison.find_library()
        if library is not None and layouts.will_move(choices[places[0]].input_nodes):
            places, why = [library], Why.LAYOUT
        else:
            _keep_as_predicted(choices[places[0]], first.uid)
            registers.note_accumulators(choices[places[0]], first.candidate, comparison.problems[0])
    if any(comparison.saved_us):
        by_fusing = largest.comparison.is_decided_by_fusing or comparison.is_decided_by_fusing
        outcomes.stats.count("fusion_decided", int(by_fusing))
    choice = comparison.choice(places, why)
    if choice.library_us is None:  # it was not rendered
        choice = replace(choice, library_us=largest.choice.library_us)
    choice = replace(choice, remembered=kernels[places[0]].choice.remembered)
    outcomes.stats.selected(choice)
    trace.tell(choice)
    return [choices[i] for i in places]
