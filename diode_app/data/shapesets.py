"""The problems of a shapeset file: what `diode-engine capture` wrote of a program."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from diode_app.data.pages import Row
from diode_app.data.problem_columns import dtype
from diode_engine.core.problem import Problem

_SEED = 0  # for the fields of a problem that the file leaves open, which are drawn


@dataclass(frozen=True)
class CapturedProblems:
    """`rows` are the problems, with their indices as keys; `left_out` counts those that Diode does
    not know."""

    problems: tuple[Problem, ...]
    rows: tuple[Row, ...]
    left_out: int


def read_captured(path: Path) -> CapturedProblems:
    """Return the problems of the file. Raises DatasetError where it is no shapeset."""
    from diode_engine.problems.sources import read_shapeset

    shapeset = read_shapeset(path)
    problems = tuple(shapeset.problems(_SEED))
    rows = tuple(Row(str(i), _cells(p), p.to_dict()) for i, p in enumerate(problems))
    return CapturedProblems(problems, rows, shapeset.left_out)


def _cells(p: Problem) -> dict[str, str]:
    return {
        "op": str(p.op),
        "B": str(p.B),
        "M": str(p.M),
        "N": str(p.N),
        "K": str(p.K),
        "dtype": dtype(p),
        "a_layout": str(p.a.layout),
        "b_layout": str(p.b.layout),
        "bias": str(p.bias),
    }
