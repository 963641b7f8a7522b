"""What the formulas behind the features say about a problem and its candidates, to be shown to
people. No model is asked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from diode_engine import features
from diode_engine.core.candidate import Candidate
from diode_engine.core.hardware import Hardware
from diode_engine.core.problem import Problem
from diode_engine.core.resources import fits


@dataclass(frozen=True)
class Roofline:
    """The least time that a device could take: all operands read and the output written once at
    full bandwidth, or all operations at the peak rate, whichever takes longer (Williams,
    Waterman and Patterson, CACM 52(4), 2009)."""

    time_us: float
    bytes: float
    intensity: float  # operations per byte
    compute_bound: bool

    def share(self, time_us: float) -> float:
        """The share of the device's limit that a kernel of this time reaches."""
        return self.time_us / time_us


@dataclass(frozen=True)
class Resources:
    """What a candidate needs and how it fills the device, by the features' formulas. For a
    library's kernel the sizes of its tiles are guesses."""

    tiles: float  # of the output, each computed by one block of threads
    waves: float  # how often the device is filled with blocks, one after another
    fill: float  # share of the work that is useful; the rest is lost in the last wave and at edges
    shared_bytes: float  # shared memory per block
    registers: float  # per thread, for the accumulator and the operands
    blocks: float  # that a multiprocessor holds at a time
    limits_us: tuple[tuple[str, float], ...]  # microseconds by their cause, the longest first


def roofline(
    problem: Problem, candidates: Sequence[Candidate], hardware: Hardware
) -> tuple[Roofline | None, npt.NDArray[np.float64]]:
    """The problem's roofline, and [n] the microseconds that the features estimate for each
    candidate; NaN for what the device cannot launch. None and NaNs where the features do not know
    the problem's type."""
    n = len(candidates)
    base = np.full(n, np.nan)
    place = np.zeros(n, np.intp), np.arange(n)
    known = features.supported((problem,), candidates, *place) & fits(problem, candidates, hardware)
    if not known.any():
        return None, base
    x = features.matrix((problem,), candidates, place[0][known], place[1][known], hardware)
    base[known] = np.exp2(x[:, features.BASE].astype(np.float64))
    of = dict(zip(features.NAMES, x[0].astype(np.float64).tolist(), strict=True))
    return (
        Roofline(
            time_us=2.0 ** of["log2_ideal_us"],
            bytes=2.0 ** of["log2_bytes"],
            intensity=2.0 ** of["log2_intensity"],
            compute_bound=of["compute_bound"] > 0.5,
        ),
        base,
    )


def resources(problem: Problem, candidate: Candidate, hardware: Hardware) -> Resources | None:
    """What the candidate needs on this problem and device; None where the features do not know the
    problem's type or the candidate."""
    one = np.zeros(1, np.intp)
    if not features.supported((problem,), (candidate,), one, one)[0]:
        return None
    x = features.matrix((problem,), (candidate,), one, one, hardware)[0].astype(np.float64)
    of = dict(zip(features.NAMES, x.tolist(), strict=True))
    limits = [
        (says, 2.0 ** of[f"log2_{name}_us"])
        for name, says in (
            ("compute", "arithmetic"), ("dram", "memory"), ("l2", "L2 cache"),
            ("latency", "waiting for loads"), ("issue", "load instructions"),
            ("extra", "launch and reductions"),
        )
    ]  # fmt: skip
    return Resources(
        tiles=2.0 ** of["log2_tiles"],
        waves=2.0 ** of["log2_waves"],
        fill=of["fill"] * of["efficiency_m"] * of["efficiency_n"],
        shared_bytes=2.0 ** of["log2_shared"],
        registers=2.0 ** of["log2_registers"],
        blocks=of["blocks_per_multiprocessor"],
        limits_us=tuple(sorted(limits, key=lambda item: -item[1])),
    )
