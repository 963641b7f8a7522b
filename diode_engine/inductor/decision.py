"""What is decided of a GEMM, and how it comes into force.

An op can ask for choices several times; every choice carries what was decided of it to
`final_choice`, which sees the complete list of one op.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from diode_engine.inductor.stats import Fallback, Selection
from diode_engine.problem import Candidate, Problem

if TYPE_CHECKING:
    from diode_engine.inductor.chooser import Chooser

log = logging.getLogger(__name__)

Microseconds = npt.NDArray[np.float64]

ANNOTATION = "diode"
# Where there is nothing to fuse, a library's kernel goes before one that is predicted to be faster
# by less than this: alone it is as fast in the mean (benchmarks/library_first.py), it needs no
# compiling, and in a program cuBLAS's kernels overlap with their neighbours, which their times
# alone do not show (docs/integration.md).
_LIBRARY_WITHIN = 1.02


@dataclass(frozen=True)
class Pick:
    """A chosen kernel, apart from the graph it was chosen in; `cost_us` is its predicted time
    and what it costs not to fuse."""

    uid: str
    params: Any
    candidate: Candidate
    cost_us: float


@dataclass(frozen=True)
class Decision:
    """What is kept of what was offered: `picks`, best first, are at most `keep` whose cost is
    within `threshold` times the least one. `saved_us` is what fusing the epilogue saves,
    `swayed` whether another would be first without that, `considered` how many were offered."""

    problem: Problem
    picks: tuple[Pick, ...]
    keep: int
    threshold: float
    confidence: float | None
    saved_us: float
    swayed: bool
    considered: int


@dataclass(frozen=True)
class Prediction:
    """What a rendered choice carries to the end of the pipeline."""

    pick: Pick
    decision: Decision
    chooser: Chooser
    remembered: bool


def fuses(uid: str) -> bool:
    """Whether Inductor fuses an epilogue into this template's kernels."""
    return uid.startswith("triton::")


def best(
    us: Microseconds, keep: int, threshold: float, library: npt.NDArray[np.bool_] | None = None
) -> list[int]:
    """Where the `keep` best of the times [n] are, best first, of those within `threshold` times
    the least one; one at least must be known. `library` [n] are those that go before others that
    are hardly faster: they count as that much faster."""
    times = np.where(known(us), us, np.inf)
    key = times if library is None else np.where(library, times / _LIBRARY_WITHIN, times)
    order = np.argsort(key, kind="stable")[:keep]
    most = threshold * key[order[0]]
    return [int(i) for i in order if key[i] <= most and key[i] < np.inf]


def known(us: Microseconds) -> npt.NDArray[np.bool_]:
    """[n] which of the times mean something."""
    return np.isfinite(us) & (us > 0)


def prediction_of(choice: Any) -> Prediction | None:
    """What Diode predicted for one of Inductor's rendered choices; None where it did not."""
    return (getattr(choice, "annotations", None) or {}).get(ANNOTATION)


def final_choice(choices: list[Any]) -> list[Any]:
    """A preprocessing function of Inductor's: `_best_of` the complete list of one op, or where
    that fails the list as it is, whose choices Inductor benchmarks."""
    chooser: Chooser | None = None
    try:
        seen = [p for p in map(prediction_of, choices) if p is not None]
        chooser = seen[0].chooser if seen else None
        return _best_of(choices)
    except Exception as error:
        if chooser is None:  # what is there instead of Diode's annotations is not Diode's
            log.debug("A list of choices could not be read.", exc_info=True)
        else:
            chooser.failed("the last choice failed", error)
        return choices


def _best_of(choices: list[Any]) -> list[Any]:
    """The best of the complete list of one op.

    Where another backend (CUTLASS, an external matmul, …) has added a kernel, the list stays
    as it is and Inductor benchmarks it: whoever turned that backend on wants it considered,
    and no prediction says how it compares.
    """
    seen = [p for p in map(prediction_of, choices) if p is not None]
    if not seen:
        return choices
    chooser = seen[0].chooser
    if len(seen) < len(choices):
        chooser.fall_back(
            Fallback.FOREIGN_CHOICE, "another backend offers kernels that the model cannot predict"
        )
        return choices
    # An op that has asked several times is judged by the time that it offered most.
    decision = max((p.decision for p in seen), key=lambda decision: decision.considered)
    cost = np.array([p.pick.cost_us for p in seen])
    library = None if decision.saved_us else np.array([p.pick.candidate.is_extern for p in seen])
    order = [0]
    if len(seen) > 1:
        order = best(cost, decision.keep, decision.threshold, library)
    if decision.saved_us:
        alone = cost - np.where([fuses(p.pick.uid) for p in seen], 0.0, decision.saved_us)
        swayed = decision.swayed or alone.argmin() != order[0]
        chooser.stats.count("fusion_decided", int(swayed))
    chooser.stats.selected(
        Selection(
            decision.problem,
            tuple(seen[i].pick.candidate for i in order),
            tuple(seen[i].pick.cost_us for i in order),
            decision.confidence,
            seen[order[0]].remembered,
        )
    )
    return [choices[i] for i in order]
