"""The few held-out problems that the demonstration shows."""

from __future__ import annotations

from diode_engine.core.operators import OPERATORS
from diode_engine.core.problem import Problem
from diode_engine.core.table import TimingTable


def pick(held_out: TimingTable, count: int = 5) -> list[Problem]:
    """At most `count` problems with timings: one of each op, then those with the fewest rows of
    output. The same table gives the same problems.

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
