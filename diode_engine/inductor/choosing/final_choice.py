"""The final decision on a product: which of all its rendered choices are taken.

An op can ask for choices several times. Every choice carries its decision to `final_choice`, which
sees the complete list of one op.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
from torch._inductor.select_algorithm import TritonTemplateCaller
from torch.utils._ordered_set import OrderedSet

from diode_engine.choosing.choice import Choice, Why
from diode_engine.choosing.policy import Policy, best_of_library, chosen, plain_library_call
from diode_engine.choosing.stats import Fallback
from diode_engine.core.problem import Problem
from diode_engine.core.templates import template_of
from diode_engine.inductor.choosing import trace
from diode_engine.inductor.choosing.decision import ChosenKernel, Decision, chosen_kernel_of
from diode_engine.inductor.choosing.default_mode import leave_to_default
from diode_engine.inductor.fusion import registers
from diode_engine.inductor.fusion.epilogue import charged_us
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
    """Reports to the outcomes of the first prediction; None where no choice has one."""
    seen = next((p for p in map(chosen_kernel_of, choices) if p is not None), None)
    return None if seen is None else seen.outcomes.failed


@guard("the last choice failed", stock=_leave_to_default, report=_report)
def final_choice(choices: list[Any]) -> list[Any]:
    """A preprocessing function for Inductor, which calls it with the complete list of one op's
    choices. It returns those to take (see `_best_of`). Where that fails, the product is lowered as
    in the default mode; where the program asks for a search, the list stays as it is, and Inductor
    benchmarks the choices."""
    predicted = any(chosen_kernel_of(choice) is not None for choice in choices)
    return _best_of(choices) if predicted else choices


def _best_of(choices: list[Any]) -> list[Any]:
    """The best of the complete list of one op. Where another backend (CUTLASS, an external matmul,
    …) has added a kernel, the list stays as it is and Inductor benchmarks it: the user who turned
    that backend on wants it considered, and no prediction compares it with the others."""
    seen = [p for p in map(chosen_kernel_of, choices) if p is not None]
    outcomes = seen[0].outcomes
    if len(seen) < len(choices):
        outcomes.fall_back(
            Fallback.FOREIGN_CHOICE, "another backend offers kernels that the model cannot predict"
        )
        return choices
    # If the op has asked several times, the decision on the largest offer counts.
    decision = max((p.decision for p in seen), key=lambda decision: decision.considered)
    costs, saved_us = _costs(seen, decision)
    policy = Policy(
        plain_library_call([p.pick.candidate for p in seen]),
        np.array([p.pick.proven for p in seen], np.bool_),
        decision.margin,
    )
    choose = partial(chosen, policy=policy, keep=decision.keep, threshold=decision.threshold)
    order, why = choose(costs)
    if why is Why.FASTEST and len(seen) == 1:
        why = decision.why
    if len(order) == 1 and not seen[order[0]].pick.candidate.is_extern:
        operands = choices[order[0]].input_nodes
        if policy.library.any() and layouts.will_move(operands):
            order, why = [best_of_library(costs[0], policy.library)], Why.LAYOUT
        else:
            _keep_as_predicted(choices[order[0]], seen[order[0]].pick.uid)
            registers.note(choices[order[0]], seen[order[0]].pick.candidate, decision.problem)
    if any(saved_us):
        fused = np.array([template_of(p.pick.uid).fuses_epilogue for p in seen], np.bool_)
        alone = costs - charged_us(saved_us, fused)
        fusing_decided = decision.fusing_decided or choose(alone)[0] != order
        outcomes.stats.count("fusion_decided", int(fusing_decided))
    library_us = None if decision.library is None else decision.library.cost_us
    if library_us is not None and not math.isfinite(library_us):
        library_us = None
    selection = Choice(
        decision.problem,
        tuple(seen[i].pick.candidate for i in order),
        tuple(seen[i].pick.cost_us for i in order),
        library_us,
        decision.confidence,
        seen[order[0]].remembered,
        why,
    )
    outcomes.stats.selected(selection)
    trace.tell(selection)
    return [choices[i] for i in order]


def _costs(
    seen: Sequence[ChosenKernel], decision: Decision
) -> tuple[npt.NDArray[np.float64], list[float]]:
    """[n problems, n choices] the costs for the problem with the hints of its sizes, and for those
    of the decision's other problems for which all choices were judged; and what fusing the epilogue
    saves for each."""
    rows, saved_us = [[p.pick.cost_us for p in seen]], [decision.saved_us[0]]
    others = [
        dict(zip(map(_matrices, p.decision.problems[1:]), p.pick.costs_us[1:], strict=True))
        for p in seen
    ]
    for problem, saved in zip(decision.problems[1:], decision.saved_us[1:], strict=True):
        matrices = _matrices(problem)
        if all(matrices in costs for costs in others):
            rows.append([costs[matrices] for costs in others])
            saved_us.append(saved)
    return np.array(rows), saved_us


def _matrices(problem: Problem) -> Hashable:
    """The matrices of a problem, whatever its bias, of which an op asks in several forms."""
    return problem.B, problem.M, problem.N, problem.K, problem.a, problem.b
