"""Reports what Inductor benchmarks, as Diode's records."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Sequence
from typing import Any

from diode_engine.core.candidate import Candidate
from diode_engine.core.operators import OPERATORS
from diode_engine.core.problem import Problem
from diode_engine.inductor.guard import do_nothing, guard
from diode_engine.inductor.on_import import when_imported

# Called with a problem, and with each candidate and the shortest time, in microseconds, that
# Inductor has measured for it.
Listener = Callable[[Problem, Sequence[tuple[Candidate, float]]], None]

_listeners: list[Listener] = []


def listen(listener: Listener) -> None:
    """From now on the function is called, in the compiling thread, after each product's benchmark,
    with Diode's choices or without. It must return at once; what it raises is logged and
    ignored."""
    _listeners.append(listener)
    when_imported("torch._inductor.compile_fx", _attach)


def _attach() -> None:
    from torch._inductor.select_algorithm import add_feedback_saver, get_algorithm_selector_cache

    if save not in get_algorithm_selector_cache().feedback_saver_fns:
        add_feedback_saver(save)


@guard("a benchmark was not recorded", stock=do_nothing)
def save(timings: dict[Any, float], name: str, *_: Any) -> None:
    """Save timings as feedback: Inductor calls it with five arguments up to torch 2.10 and
    with six from then on. `timings` are milliseconds by choice."""
    found = _records(timings, name)
    if found is not None:
        for listener in _listeners:
            listener(*found)


def _records(
    timings: dict[Any, float], name: str
) -> tuple[Problem, list[tuple[Candidate, float]]] | None:
    from diode_engine.inductor.lowering.candidates import (
        candidate_of,
        problem_of,
        template_choice_of,
    )

    if name not in OPERATORS:
        return None
    problem: Problem | None = None
    records = []
    for choice, ms in timings.items():
        ktc = template_choice_of(choice)
        if ktc is None:
            continue
        if problem is None:
            problem = problem_of(ktc.inputs, name, {"": ktc.params.to_kwargs()})
        if math.isfinite(ms) and ms > 0:
            with contextlib.suppress(ValueError):
                records.append((candidate_of(ktc), ms * 1e3))
    return (problem, records) if problem is not None and records else None
