"""How sure a choice is: the probability that the best of the first k candidates takes at most 5 %
longer than the best of all.

There is a logistic regression for each k. Its inputs come from what the members of a model predict
for one problem: how much they differ, how far behind the next candidates are, and how far the
problem is from those that were trained on. It is fitted (`fit_confidence`) to predictions of models
that had not seen the problems; that calibrates it (Platt, Probabilistic Outputs for Support Vector
Machines, 1999, with several inputs instead of one). At compile time it needs numpy alone.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import Self

import numpy as np
import numpy.typing as npt

from diode_engine.choosing.evidence import MAX_NEIGHBOURS, Evidence
from diode_engine.core.problem import Problem
from diode_engine.models.neighbours import COORDINATES, Places, library_kinds, nearest, places
from diode_engine.models.tensors import Tensors

WITHIN = 0.05  # of the best time: a kernel that takes at most so much longer is a good choice
MAX_K = 10  # the largest k
# The inputs of a regression, in the order of the columns of `inputs`; gaps are in log time. A
# member's regret is what it predicts to be lost if the best of the first k is taken.
INPUTS = (
    "log regret", "regret", "agreement", "to the next", "to the next 5", "to the next 10",
    "near ties", "spread of the first", "spread", "log time", "library first", "to the library",
    "log distance",
)  # fmt: skip
_SHORTLIST = 32  # only so many of the best candidates are looked at, in a space of any size
_SPREAD = 10  # the mean spread of the members is taken over so many of the best candidates
_MAX_GAP = 0.5  # log time: the largest gap to a library's kernel, also where there is none
_NEIGHBOURS = 5
_RANKS = np.arange(MAX_K)
_LATER_RANKS = _RANKS[:, None] + np.array([1, 5, 10])  # [MAX_K, 3], behind the k-th candidate
_REGRET, _DISTANCE = 0.005, 0.1  # added before a logarithm is taken, since 0 has none

Values = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Confidence:
    """The weights of the regressions. `weight` is [MAX_K, len(INPUTS)] and `bias` is [MAX_K], one
    row for each k from 1 on; `places` is [COORDINATES, problems], the coordinates of the training
    problems (see neighbours.places). `evidence` is of these problems; None where the model was made
    before there was any."""

    weight: npt.NDArray[np.float32]
    bias: npt.NDArray[np.float32]
    places: Places
    evidence: Evidence | None = None

    @np.errstate(over="ignore", invalid="ignore")  # a damaged file may have huge coordinates
    def judge(
        self, problem: Problem, members: Values, library: npt.NDArray[np.bool_]
    ) -> tuple[tuple[float, ...], float | None]:
        """Return [MAX_K] the probabilities for k = 1, 2, …, which never fall, and
        Evidence.error_near the problem (None without evidence). `members` is [members, n], the log
        times that each member of the model predicts for n candidates, at least one; `library` [n]
        says which of the candidates are a library's kernels."""
        x = inputs(members, library, distance(problem, self.places))
        # Sums, not a product of matrices: they give the same bits for any number of threads.
        logits = (x * self.weight).sum(axis=1) + self.bias
        out = 1 / (1 + np.exp(-np.clip(logits, -30, 30)))
        out = np.where(np.isnan(out), 0.0, out)  # what cannot be computed is not sure at all
        return tuple(np.maximum.accumulate(out).tolist()), self._error_near(problem)

    def _error_near(self, problem: Problem) -> float | None:
        """Return Evidence.error_near the problem, by its neighbours of the same type and layouts;
        None without evidence."""
        if self.evidence is None:
            return None
        kind = float(library_kinds(places([problem]))[0])
        if kind not in self._of_kind:
            found = np.flatnonzero(library_kinds(self.places) == kind)
            self._of_kind[kind] = found, self.places[:, found]
        numbers, of_kind = self._of_kind[kind]
        near, away = nearest(problem, of_kind, MAX_NEIGHBOURS)
        return self.evidence.error_near(numbers[near], away)

    @cached_property
    def _of_kind(self) -> dict[float, tuple[npt.NDArray[np.intp], Places]]:
        """The training problems of a type and layouts: their numbers and places."""
        return {}

    def with_places(self, places: Places) -> Confidence:
        """This confidence with more training problems, of which no errors are known."""
        evidence = self.evidence and self.evidence.with_problems(places.shape[1])
        return replace(
            self, places=np.concatenate([self.places, places], axis=1), evidence=evidence
        )

    def to_bytes(self) -> bytes:
        """The safetensors format."""
        from safetensors.numpy import save

        evidence = {} if self.evidence is None else asdict(self.evidence)
        return save(
            {"weight": self.weight, "bias": self.bias, "places": self.places}
            | {f"evidence.{name}": values for name, values in evidence.items()}
        )

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """The inverse of `to_bytes`. Raises ModelError where the bytes are not what it writes."""
        tensors = Tensors(data, "confidence")
        n = len(INPUTS)
        weight, bias = tensors.take("weight", MAX_K, n), tensors.take("bias", MAX_K)
        places = tensors.take("places", COORDINATES, None)
        evidence = None
        if "evidence.errors" in tensors:
            errors = tensors.take("evidence.errors", places.shape[1])
            kinds = tensors.take("evidence.kinds", None)
            counts = (tensors.take(f"evidence.{n}", len(kinds)) for n in ("timings", "misses"))
            evidence = Evidence(errors, kinds, *counts)
        tensors.end()
        return cls(weight, bias, places, evidence)


def distance(problem: Problem, seen: Places) -> float:
    """The mean distance of a problem to the _NEIGHBOURS nearest training problems; infinite where
    there are none."""
    _, away = nearest(problem, seen, _NEIGHBOURS)
    # In float64 the sum is exact, so that it does not depend on the order.
    return float(away.mean(dtype=np.float64)) if len(away) else math.inf


def inputs(members: Values, library: npt.NDArray[np.bool_], away: float) -> Values:
    """[MAX_K, len(INPUTS)] the inputs of the regressions. `away` is the problem's `distance`; the
    others are as in `Confidence.judge`."""
    mean = members.sum(axis=0) / len(members)
    short = np.arange(len(mean))
    if len(mean) > _SHORTLIST:
        short = np.sort(np.argpartition(mean, _SHORTLIST)[:_SHORTLIST])
    short = short[mean[short].argsort(kind="stable")]
    members, mean, library = members[:, short], mean[short], library[short]
    gap, last = mean - mean[0], len(mean) - 1
    # [members, MAX_K]: the log time that is lost if the best of the first k is taken, as each
    # member itself predicts it.
    reached = np.minimum.accumulate(members, axis=1)
    regret = (reached - reached[:, -1:])[:, np.minimum(_RANKS, last)]
    out = np.empty((MAX_K, len(INPUTS)))
    out[:, 0] = np.log(regret.sum(axis=0) / len(members) + _REGRET)
    out[:, 1] = regret.max(axis=0)
    out[:, 2] = (regret <= 0).sum(axis=0) / len(members)
    out[:, 3:6] = gap[np.minimum(_LATER_RANKS, last)]
    out[:, 6] = math.log1p(np.count_nonzero(gap < WITHIN))
    away_from_mean = members[:, :_SPREAD] - mean[:_SPREAD]
    spread = np.sqrt((away_from_mean * away_from_mean).sum(axis=0) / len(members))
    out[:, 7], out[:, 8] = spread[0], spread.sum() / len(spread)
    out[:, 9] = mean[0]
    out[:, 10] = library[0]
    out[:, 11] = gap[library].min(initial=_MAX_GAP)
    out[:, 12] = math.log(min(away, 1e3) + _DISTANCE)
    return out
