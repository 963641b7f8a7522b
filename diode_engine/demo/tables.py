"""The problems that the demonstration shows: what is predicted, measured and chosen for them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import compress
from statistics import geometric_mean
from typing import Any

import numpy as np

from diode_engine.core.candidate import Candidate
from diode_engine.core.operators import OPERATORS
from diode_engine.core.problem import Problem
from diode_engine.core.table import TimingTable
from diode_engine.plain_text import format_records
from diode_engine.problems.spaces import default_space
from diode_engine.validation.choosers import kernel_keys


def pick_problems(held_out: TimingTable) -> list[Problem]:
    """Return at most five problems with timings: one of each op, then those with the fewest rows
    of output. The same table gives the same problems.

    Products with a single row or column are left out: Inductor turns them into a sum before it asks
    for kernels. Products whose output has another type than the operands are left out too.
    """
    timed = set(held_out.problem[held_out.failure == 0].tolist())
    shown = sorted(
        (p for p in (held_out.problems[i] for i in timed)
         if min(p.M, p.N, p.K) > 1 and p.out_dtype is p.dtype),
        key=lambda problem: problem.key,
    )  # fmt: skip
    firsts = (next((p for p in shown if p.op == op), None) for op in OPERATORS)
    chosen = [p for p in firsts if p is not None]
    rest = sorted((p for p in shown if p not in chosen), key=lambda problem: problem.M)
    return (chosen + rest)[:5]


def describe_choices(
    problems: Sequence[Problem], answers: Sequence[Mapping[str, Any]], table: TimingTable
) -> str:
    """Return a table of the choices (`answers` are those of `answers.choose`): the predicted and
    the measured time of each, and that of the fastest measured kernels of ATen, of those that
    max-autotune times in its DEFAULT space, and of all, in microseconds."""
    records = []
    for problem, answer in zip(problems, answers, strict=True):
        chosen = Candidate.from_dict(answer["chosen"])
        measured = find_times(problem, table)
        default = set(kernel_keys(default_space(problem)))
        in_default = [key in default for key in kernel_keys(list(measured))]
        records.append(
            {
                "product": str(problem), "Diode's choice": str(chosen),
                "predicted µs": _us(answer["predicted_us"]),
                "measured µs": _us(measured.get(chosen)),
                "ATen's": _least(us for kernel, us in measured.items() if kernel.is_extern),
                "DEFAULT's best": _least(compress(measured.values(), in_default)),
                "best": _least(measured.values()),
            }
        )  # fmt: skip
    return format_records(records)


def find_times(problem: Problem, table: TimingTable) -> dict[Candidate, float]:
    """Return the times of this problem's candidates in microseconds; the shortest one where a
    candidate was timed more than once. Candidates that failed are left out."""
    is_asked = np.array([known == problem for known in table.problems], np.bool_)
    rows = np.flatnonzero(is_asked[table.problem] & (table.failure == 0))
    rows = rows[np.argsort(-table.time_us[rows], kind="stable")]
    return {table.candidates[table.candidate[row]]: float(table.time_us[row]) for row in rows}


def _least(times: Iterable[float]) -> str:
    return _us(min(times, default=None))


def _us(us: float | None) -> str:
    return "–" if us is None else f"{us:.1f}"


def describe_timings(
    gpu: str,
    problems: Sequence[Problem],
    stock: Sequence[Mapping[str, Any]],
    diode: Sequence[Mapping[str, Any]],
) -> str:
    """Return a table of the answers of `answers.measure` without and with the model."""
    rows = []
    for problem, before, after in zip(problems, stock, diode, strict=True):
        remarks = [
            "" if after["chosen_by_model"] else "not chosen by the model",
            "" if before["right"] and after["right"] else "WRONG RESULT",
        ]
        rows.append(
            {
                "product": str(problem), "eager": _us(after["eager_us"]),
                "DEFAULT": _us(before["us"]), "DEFAULT's compile s": f"{before['compile_s']:.2f}",
                "Diode": _us(after["us"]), "Diode's compile s": f"{after['compile_s']:.2f}",
                "": ", ".join(filter(None, remarks)),
            }
        )  # fmt: skip
    eager = geometric_mean(a["eager_us"] / a["us"] for a in diode)
    default = geometric_mean(b["us"] / a["us"] for a, b in zip(diode, stock, strict=True))
    compiling = sum(b["compile_s"] for b in stock) / sum(a["compile_s"] for a in diode)
    return (
        f"On this {gpu}: microseconds a launch, and seconds to compile\n{format_records(rows)}\n"
        f"Diode's kernels run {eager:.2f} times as fast as eager's and {default:.2f} times as fast "
        f"as DEFAULT's (geometric means), and are compiled {compiling:.1f} times as fast."
    )
