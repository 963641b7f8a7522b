"""The kernels that were chosen for a product: how Inductor gets them, and which of all that it has
rendered are taken.

An op can ask for kernels several times. Every rendered kernel carries what it was chosen from to
`final_choice`, which sees the complete list of one op.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from torch._inductor.kernel_template_choice import (  # type: ignore[attr-defined]
    DictKernelTemplateParams,
    KernelTemplateChoice,
)
from torch._inductor.select_algorithm import TritonTemplateCaller
from torch.utils._ordered_set import OrderedSet

from diode_engine.choosing.choice import Choice, Why
from diode_engine.choosing.frozen_kernel import FrozenKernel
from diode_engine.choosing.outcomes import Outcomes
from diode_engine.choosing.policy import Comparison
from diode_engine.choosing.stats import Fallback
from diode_engine.core.candidate import Candidate
from diode_engine.core.problem import Problem
from diode_engine.core.templates import template_of
from diode_engine.inductor.choosing import trace
from diode_engine.inductor.choosing.compile_options import is_batch_invariant, other_backends
from diode_engine.inductor.choosing.default_mode import leave_to_default
from diode_engine.inductor.choosing.product import Request
from diode_engine.inductor.fusion import registers
from diode_engine.inductor.guard import Report, guard
from diode_engine.inductor.lowering import branches, layouts
from diode_engine.inductor.lowering.branches import Branch
from diode_engine.inductor.lowering.candidates import annotation_of, tf32_allowed
from diode_engine.inductor.torch_internals.templates import parts_of_choices

ANNOTATION = "diode"


@dataclass(frozen=True)
class ChosenKernel:
    """The annotation of a rendered kernel, which `final_choice` reads.

    It is the candidate at `place` of the comparison that the choice was made from. `uid` and
    `params` are Inductor's name of its template and its parameters, `library` the library's kernel
    that may have to be taken in its place. `frozen` is the frozen kernel of the product. Where
    `choice.by_rows` says that the program chooses, it takes the kernel up to `most_rows` rows.
    """

    choice: Choice
    comparison: Comparison
    place: int
    uid: str
    params: Any
    outcomes: Outcomes  # of the installed choices
    library: ChosenKernel | None = None
    frozen: FrozenKernel | None = None
    most_rows: int | None = None

    @property
    def candidate(self) -> Candidate:
        """The kernel's candidate."""
        return self.comparison.candidates[self.place]

    def as_remembered(self) -> ChosenKernel:
        """Return the same kernel for another product of the same problem."""
        library = self.library and self.library.as_remembered()
        choice = replace(self.choice, remembered=True)
        return replace(self, choice=choice, library=library)

    @property
    def cost_us(self) -> float:
        """Its predicted time with what it costs not to fuse, for the hints of dynamic sizes."""
        return float(self.comparison.costs_us[0, self.place])


def chosen_kernel_of(choice: Any) -> ChosenKernel | None:
    """Return what Diode chose, of one of Inductor's rendered choices; None where Diode did not
    choose it."""
    kernel: ChosenKernel | None = annotation_of(choice, ANNOTATION)
    return kernel


def takes_library(choices: Sequence[Any]) -> bool:
    """Return whether Diode takes a library's kernel for the product, and no other may be taken: of
    these rendered choices by a benchmark, or of another backend."""
    kernels = [chosen_kernel_of(choice) for choice in choices]
    return (
        bool(kernels)
        and all(k is not None and k.candidate.is_extern and k.comparison.keep == 1 for k in kernels)
        and not other_backends()
    )


def annotate(choices: list[Any], kernels: Sequence[ChosenKernel]) -> list[Any]:
    """Return the same choices of Inductor, each with its chosen kernel."""
    for choice, kernel in zip(choices, kernels, strict=True):
        choice.annotations[ANNOTATION] = kernel
    return choices


def make_template_choices(kernels: Sequence[ChosenKernel], request: Request) -> list[Any]:
    """Return the KernelTemplateChoices of the kernels, as their templates' generators would yield
    them. Where a template's operands will get another layout, the library's kernel is added;
    `final_choice` then takes that."""
    if len(kernels) == 1 and kernels[0].library is not None:
        moves = layouts.will_move(request.kernel_inputs.nodes())
        kernels = [kernels[0], kernels[0].library] if moves else kernels
    choices = [
        KernelTemplateChoice(
            params=_with_overrides(k.params, request, k.uid),
            **_parts_of_choices(request.offers[k.uid]),
        )
        for k in kernels
    ]
    return annotate(choices, kernels)


def _with_overrides(params: Any, request: Request, uid: str) -> Any:
    """Return the parameters with those that the op sets for the template, as its generator does.
    Parameters that were made from a list of configs have only a config's: their kernels would add
    up in another order than that of the product."""
    given = (request.overrides or {}).get(uid)
    return DictKernelTemplateParams({**params.to_kwargs(), **given}) if given else params


def _parts_of_choices(offer: Any) -> dict[str, Any]:
    """Return the arguments of a template's KernelTemplateChoices. From torch 2.13 on Inductor uses
    TF32 only where it knows that there are 16 rows or more; where results must not depend on the
    batch, it is used wherever it is allowed."""
    parts = parts_of_choices(offer)
    if is_batch_invariant() and "ALLOW_TF32" in parts["extra_kwargs"]:
        parts["extra_kwargs"] = parts["extra_kwargs"] | {"ALLOW_TF32": tf32_allowed()}
    return parts


def _leave_to_default(choices: list[Any]) -> list[Any]:
    leave_to_default()
    return choices


def _report(choices: list[Any]) -> Report | None:
    """Return the function that reports to the outcomes of the first chosen kernel; None where Diode
    chose none."""
    first = next((k for k in map(chosen_kernel_of, choices) if k is not None), None)
    return None if first is None else first.outcomes.report_failure


@guard("the last choice failed", stock=_leave_to_default, report=_report)
def final_choice(choices: list[Any]) -> list[Any]:
    """Return the rendered kernels to take, of the complete list of one op. Inductor calls it before
    it benchmarks.

    Where it fails, the product is lowered as in the default mode; where the program asks for a
    search, the list stays as it is, and Inductor benchmarks the choices. So it stays where another
    backend (CUTLASS, an external matmul, …) has added a kernel: the user who turned that backend on
    wants it considered, and no prediction compares it with the others. Frozen choices do not
    consider it. Raises FrozenChoicesError where the frozen kernel is not in the list.
    """
    kernels = [kernel for kernel in map(chosen_kernel_of, choices) if kernel is not None]
    if not kernels:
        return choices
    outcomes, frozen = kernels[0].outcomes, kernels[0].frozen
    if frozen is not None:
        choices = [choice for choice in choices if chosen_kernel_of(choice) is not None]
    if len(kernels) < len(choices):
        outcomes.fall_back(
            Fallback.FOREIGN_CHOICE, "another backend offers kernels that the model cannot predict"
        )
        return choices
    comparison = Comparison.join([(kernel.comparison, kernel.place) for kernel in kernels])
    places, why = _choose_rendered(kernels, comparison)
    if len(places) == 1 and not kernels[places[0]].candidate.is_extern:
        library = comparison.find_library()
        if library is not None and layouts.will_move(choices[places[0]].input_nodes):
            places, why = [library], Why.LAYOUT
        else:
            _prepare(choices, kernels, places[0], comparison.problems[0])
    largest = max(kernels, key=lambda kernel: len(kernel.comparison.candidates))
    if any(comparison.saved_us):
        by_fusing = largest.comparison.is_decided_by_fusing or comparison.is_decided_by_fusing
        outcomes.stats.count("fusion_decided", int(by_fusing))
    choice = comparison.choice(places, why)
    if choice.library_us is None:  # it was not rendered
        known = largest.choice.library_us if frozen is None else frozen.choice.library_us
        choice = replace(choice, library_us=known)
    remembered, by_rows = kernels[places[0]].choice.remembered, kernels[0].choice.by_rows
    choice = replace(choice, remembered=remembered, by_rows=by_rows)
    outcomes.stats.record_choice(choice)
    trace.trace_choice(choice)
    return [choices[i] for i in places]


def _choose_rendered(
    kernels: Sequence[ChosenKernel], comparison: Comparison
) -> tuple[list[int], Why]:
    """Return the indices of the rendered kernels to take, best first, and why. Raises
    FrozenChoicesError where the frozen kernel is not among them."""
    first, frozen = kernels[0].choice, kernels[0].frozen
    if frozen is None and not first.by_rows:
        places, why = comparison.choose()
        return places, first.why if why is Why.FASTEST and len(kernels) == 1 else why
    if frozen is not None:
        places = [i for i, each in enumerate(kernels) if each.candidate == frozen.choice.kernel]
        if len(kernels) < len(frozen.choice.by_rows) or not places:
            frozen.refuse()
    if first.by_rows:
        places = [i for i, each in enumerate(kernels) if each.candidate in first.candidates][:1]
    return places, first.why


def _prepare(
    choices: Sequence[Any], kernels: Sequence[ChosenKernel], place: int, problem: Problem
) -> None:
    """Prepare the one kernel that is taken, at this place: what Inductor may fuse into it, and the
    kernels that the program takes for other numbers of rows."""
    choice, kernel = choices[place], kernels[place]
    known = template_of(kernel.uid)
    # Inductor would fuse pointwise ops before a product into a template that is the only choice,
    # into its loads, without timing that, and a kernel that converts or computes what it loads can
    # take five times as long. (With several choices it times both forms.)
    if known.fuses_prologue and isinstance(choice, TritonTemplateCaller):
        choice.allowed_prologue_inps = OrderedSet()
    if known.tma:
        layouts.freeze(choice.input_nodes)
    if is_batch_invariant():
        registers.keep_alone(choice)
    if kernel.choice.by_rows:
        found = map(Branch, choices, [each.most_rows for each in kernels])
        branches.attach(list(found), choice)
    registers.note_accumulators(choice, kernel.candidate, problem)
