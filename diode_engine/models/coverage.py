"""What a model knows: the kernels, element types and operators of its training timings."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

from diode_engine.core.operators import Operator
from diode_engine.core.problem import Problem
from diode_engine.core.resources import many_loads
from diode_engine.core.table import TimingTable

# Kernels with many loads count as covered where they were timed on so many problems: among millions
# of timings, a few on each of a hundred problems teach a model nothing.
MIN_PROBLEMS = 300
_MANY = ", many loads"
_INNER = ", inner batch"


@dataclass(frozen=True)
class Coverage:
    """What occurs in the training timings. The model predicts nothing else."""

    kernels: tuple[str, ...]  # the names that `kernel` makes
    types: tuple[str, ...]  # the names that `type_of` makes
    op_types: tuple[str, ...]  # the names that `op_type` makes

    def joined(self, other: Coverage) -> Coverage:
        """What either covers."""
        return Coverage(
            tuple(sorted({*self.kernels, *other.kernels})),
            tuple(sorted({*self.types, *other.types})),
            tuple(sorted({*self.op_types, *other.op_types})),
        )

    @classmethod
    def make(cls, table: TimingTable) -> Coverage:
        """What occurs in the table's successful timings."""
        timed = table.take(table.failure == 0)
        problems = [table.problems[i] for i in set(timed.problem.tolist())]
        many = many_loads(timed.problems, timed.candidates, timed.problem, timed.candidate)
        found: dict[str, set[int]] = defaultdict(set)
        for p, c, m in zip(
            timed.problem.tolist(), timed.candidate.tolist(), many.tolist(), strict=True
        ):
            found[kernel(table.problems[p].op, table.candidates[c].template, many=m)].add(p)
        kernels = {k for k, on in found.items() if not k.endswith(_MANY) or len(on) >= MIN_PROBLEMS}
        return cls(
            tuple(sorted(kernels)),
            tuple(sorted({type_of(problem) for problem in problems})),
            tuple(sorted({op_type(problem) for problem in problems})),
        )


def kernel(op: Operator, template: str, *, many: bool = False) -> str:
    """How the coverage names a template on an op. The op is part of it: timings of decompose_k on
    mm say nothing of decompose_k on bmm.

    With `many`, it names those of the template's kernels in which a thread has many loads
    (resources.many_loads). Timings of other kernels say nothing about these. They must have been
    timed on at least MIN_PROBLEMS problems.
    """
    return f"{op} {template}{_MANY if many else ''}"


def type_of(problem: Problem) -> str:
    """The kind of arithmetic: the operands' type, or "tf32" for a float32 product that may be
    computed so."""
    return "tf32" if problem.allow_tf32 else str(problem.dtype)


def op_type(problem: Problem) -> str:
    """How the coverage names an op with its kind of arithmetic. An op that was timed in bfloat16
    only is not covered in float32, even where other ops were timed in float32. Nor are operands
    whose batch is innermost covered by timings of others."""
    return f"{problem.op} {type_of(problem)}{_INNER if problem.inner_batches else ''}"
