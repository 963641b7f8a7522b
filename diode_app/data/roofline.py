"""What the arithmetic of the features says of a problem and its candidates."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from diode_engine.hardware import Hardware
from diode_engine.problem import Candidate, Problem


@dataclass(frozen=True)
class Roofline:
    """The least time that a device could take: all operands read and the output written once at
    full bandwidth, or all operations at the peak rate, whichever takes longer (Williams,
    Waterman and Patterson, CACM 52(4), 2009)."""

    time_us: float
    bytes: float
    intensity: float  # operations a byte
    compute_bound: bool

    def share(self, time_us: float) -> float:
        """How much of the possible a kernel of this time reaches."""
        return self.time_us / time_us


def roofline(
    problem: Problem, candidates: Sequence[Candidate], hardware: Hardware
) -> tuple[Roofline | None, npt.NDArray[np.float64]]:
    """The problem's roofline, and [n] the microseconds that the features estimate for each
    candidate, NaN for what the device cannot launch. None and NaNs where the features know the
    problem's type not."""
    from diode_engine import features
    from diode_engine.resources import fits

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
