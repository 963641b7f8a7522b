"""The choice for a problem, and why it was made."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from diode_engine.core.candidate import Candidate
from diode_engine.core.problem import Problem


class Why(StrEnum):
    """Why a problem's kernels were chosen."""

    FASTEST = "predicted to be the fastest"
    SEVERAL = "Inductor times these"
    LIBRARY = "the library's: no other is predicted to be faster by enough"
    UNPROVEN = "the library's: how fast kernels like the others are is not known well enough"
    SIZES = "the library's: another may be slower at other values of a dynamic size"
    INVARIANT = "the fastest of those that add up in the order fixed for all batches"
    LAYOUT = "the library's: an operand will have another layout"
    FROZEN = "the file of frozen choices has it"


@dataclass(frozen=True)
class Choice:
    """The choice for a problem.

    `candidates` are the chosen kernels, best first: one, or those that Inductor benchmarks.
    `predicted_us` are their times in microseconds, including what a fused epilogue saves, and
    `library_us` that of the best library's kernel, None where it is not known. `confidence` is the
    probability that the first is within 5 % of the best, None for a model without confidence.
    `remembered` says whether the problem was met before. Where the program chooses by the real M,
    `by_rows` has each kernel with the M up to which it is taken, the last with None, and
    `candidates` the one for the problem's M.
    """

    problem: Problem
    candidates: tuple[Candidate, ...]
    predicted_us: tuple[float, ...]
    library_us: float | None
    confidence: float | None
    why: Why
    remembered: bool = False
    by_rows: tuple[tuple[int | None, Candidate], ...] = ()
