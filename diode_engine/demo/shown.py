"""The problems that the demonstration shows: what is predicted, measured and chosen for them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import geometric_mean
from typing import Any

import numpy as np

from diode_engine.core.candidate import Candidate
from diode_engine.core.operators import OPERATORS
from diode_engine.core.problem import Problem
from diode_engine.core.table import TimingTable
from diode_engine.core.timing import Timing
from diode_engine.models.predictor import Predictor
from diode_engine.problems.spaces import default_space
from diode_engine.validation.choosers import kernel_keys


def pick_problems(held_out: TimingTable, count: int = 5) -> list[Problem]:
    """Return at most `count` problems with timings: one of each op, then those with the fewest rows
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
    return (chosen + rest)[:count]


def describe_choice(
    problem: Problem, answer: Mapping[str, Any], table: TimingTable, predictor: Predictor
) -> str:
    """Return a heading, and a line with the predicted and the measured time for Diode's choice
    (`answer` is that of `demo.choose`), and for the fastest measured kernels: of ATen, of those
    that max-autotune times in its DEFAULT space, and of all."""
    timings = find_timings(problem, table)
    chosen = Candidate.from_dict(answer["chosen"])
    us = predictor.predict_us(problem, list(timings)) if timings else ()
    predicted = {**dict(zip(timings, us, strict=True)), chosen: answer["predicted_us"]}
    keys = dict(zip(timings, kernel_keys(list(timings)), strict=True)) if timings else {}
    default = set(kernel_keys(default_space(problem)))
    measured = sorted(
        (c for c in timings if timings[c].time_us is not None),
        key=lambda candidate: timings[candidate].time_us or 0.0,
    )
    rows = {
        "Diode's choice": chosen,
        "ATen": next((c for c in measured if c.is_extern), None),
        "DEFAULT's best": next((c for c in measured if keys[c] in default), None),
        "best measured": next(iter(measured), None),
    }
    lines = [f"{problem!s:<62}{'predicted':>12}{'measured':>12}"]
    for title, kernel in rows.items():
        if kernel is None:
            lines.append(f"  {title:<15} none")
            continue
        timing = timings.get(kernel)
        found = _us(None if timing is None else timing.time_us)
        if timing is not None and timing.failure is not None:
            found = str(timing.failure)
        lines.append(f"  {title:<15} {kernel!s:<44}{_us(predicted[kernel]):>12}{found:>12}")
    return "\n".join(lines)


def find_timings(problem: Problem, table: TimingTable) -> dict[Candidate, Timing]:
    """Return the timings of this problem's candidates; the shortest one where a candidate was timed
    more than once."""
    is_asked = np.array([known == problem for known in table.problems], np.bool_)
    rows = np.flatnonzero(is_asked[table.problem])
    rows = rows[np.argsort(-np.nan_to_num(table.time_us[rows], nan=np.inf), kind="stable")]
    return {table.candidates[table.candidate[row]]: table.timing(int(row)) for row in rows}


def _us(us: float | None) -> str:
    return "–" if us is None or np.isnan(us) else f"{us:.1f} µs"


def describe_timings(
    gpu: str,
    problems: Sequence[Problem],
    stock: Sequence[Mapping[str, Any]],
    diode: Sequence[Mapping[str, Any]],
) -> str:
    """Return a table of the answers of `demo.measure` without and with the model."""
    lines = [
        f"On this {gpu}: microseconds a launch, and seconds to compile",
        f"{'':<54}{'eager':>9}{'DEFAULT':>18}{'Diode':>18}",
    ]
    for problem, before, after in zip(problems, stock, diode, strict=True):
        remark = "" if after["chosen_by_model"] else "  not chosen by the model"
        if not (before["right"] and after["right"]):
            remark += "  WRONG RESULT"
        lines.append(
            f"{problem!s:<54}{after['eager_us']:>9.1f}{before['us']:>9.1f}"
            f"{before['compile_s']:>7.2f} s{after['us']:>9.1f}{after['compile_s']:>7.2f} s{remark}"
        )
    eager = geometric_mean(a["eager_us"] / a["us"] for a in diode)
    default = geometric_mean(b["us"] / a["us"] for a, b in zip(diode, stock, strict=True))
    compiling = sum(b["compile_s"] for b in stock) / sum(a["compile_s"] for a in diode)
    lines.append(
        f"Diode's kernels run {eager:.2f} times as fast as eager's and {default:.2f} times as fast "
        f"as DEFAULT's (geometric means), and are compiled {compiling:.1f} times as fast."
    )
    return "\n".join(lines)
