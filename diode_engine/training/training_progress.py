"""The progress of a whole training or cross-validation; each fit reports only its own steps.

The fits are planned before it begins. The progress is the share of their work that is done.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from diode_engine.models.fitting import FitProgress
from diode_engine.models.model_types import MODEL_TYPES, TUNED, member_types
from diode_engine.training.confidence import FOLDS as CONFIDENCE_FOLDS
from diode_engine.training.confidence import STEPS_DIVISOR as CONFIDENCE_STEPS_DIVISOR
from diode_engine.training.search import FOLDS as SEARCH_FOLDS

_REST = 0.25  # the work of judging and writing a model, relative to a fit of trees
_PACE_SECONDS = 10.0  # the rate is the mean over so long


@dataclass(frozen=True)
class PlannedFit:
    """A fit of one member of a model."""

    group: str  # the part of the training that it belongs to, such as "fold 1 of 3"; "": the model
    member: str  # such as "network-1"
    work: float = 1.0  # relative to a fit of the same family to all rows

    @property
    def family(self) -> str:
        """The member's family."""
        return self.member.rpartition("-")[0]

    @property
    def cost(self) -> float:
        """How long it takes, relative to a fit of trees to all rows."""
        return MODEL_TYPES[self.family].cost * self.work

    @property
    def has_teacher(self) -> bool:
        """Whether the other fits of its group come before it."""
        return bool(MODEL_TYPES[self.family].teacher)


def planned_fits(
    family: str,
    *,
    tuned: bool = False,
    everything: bool = False,
    trials: int = 0,
    confidence: bool = True,
) -> list[PlannedFit]:
    """Return the fits of a training (see `train`), in order. Without `confidence` there are too few
    problems to learn it from."""
    members = [f"{TUNED}-0"] if tuned else _members(family)
    teacher = MODEL_TYPES[family].teacher if family in MODEL_TYPES else ""
    searched = _members(teacher or family)
    share = (SEARCH_FOLDS - 1) / SEARCH_FOLDS
    less = (CONFIDENCE_FOLDS - 1) / CONFIDENCE_FOLDS / CONFIDENCE_STEPS_DIVISOR
    fits = [
        PlannedFit(f"trial {trial}, fold {part} of {SEARCH_FOLDS}", member, share)
        for trial in range(1, trials + 1)
        for part in range(1, SEARCH_FOLDS + 1)
        for member in searched
    ]
    fits += [PlannedFit("", member) for member in members]
    if confidence and not tuned:
        fits += [
            PlannedFit(f"fold {part} of {CONFIDENCE_FOLDS}", member, less)
            for part in range(1, CONFIDENCE_FOLDS + 1)
            for member in members
        ]
    if everything:
        fits += [PlannedFit("all problems", member) for member in members]
    return fits


def planned_fits_of_parts(family: str, parts: Sequence[str]) -> list[PlannedFit]:
    """Return the fits of a cross-validation over these parts, in order."""
    return [PlannedFit(part, member) for part in parts for member in _members(family)]


def _members(family: str) -> list[str]:
    """The members of a model, as reports name them."""
    return [f"{member}-{place}" for place, member in enumerate(member_types(family))]


def _group_and_member(label: str) -> tuple[str, str]:
    """The group and the member of a fit, from its label in reports: `trees-0`, `trees-0, fold 1 of
    3`, `trial 2, fold 1 of 3, trees-0`, `trees-0, all problems`."""
    words = label.split(", ")
    if words[0].startswith("trial "):
        return ", ".join(words[:-1]), words[-1]
    return ", ".join(words[1:]), words[0]


@dataclass
class TrainingProgress:
    """The progress of planned fits. `record` must be called with each report of a fit; `fraction`
    never falls.

    A fit that reports no more (it was stopped early, or was finished before an interruption) counts
    as done when a fit has begun that cannot begin before: the student of the same group, or a fit
    with a later turn (see `_turn`).
    """

    fits: Sequence[PlannedFit]
    is_parallel: bool = False
    trials_together: int = 1
    clock: Callable[[], float] = time.monotonic
    _shares: dict[tuple[str, str], float] = field(default_factory=dict)  # that is done of a fit
    _most: float = 0.0
    _last: str = ""  # the label of the last report
    _marks: deque[tuple[float, int]] = field(default_factory=deque)  # (when, step) of that fit

    def __post_init__(self) -> None:
        self._began = self.clock()
        self.nodes = FitNodes()

    def record(self, label: str, progress: FitProgress) -> None:
        """Take a report of the fit with this label."""
        now = self.clock()
        self.nodes.record(label, progress)
        self._shares[_group_and_member(label)] = min(1.0, progress.step / max(progress.steps, 1))
        if label != self._last:
            self._last = label
            self._marks.clear()
        self._marks.append((now, progress.step))
        while len(self._marks) > 2 and self._marks[0][0] < now - _PACE_SECONDS:
            self._marks.popleft()

    def _turn(self, place: int) -> float:
        """When a fit begins, relative to others: one after the other, or, where fits are made side
        by side, the trials of a search in groups, and then all others."""
        group = self.fits[place].group
        if not self.is_parallel:
            return place
        if not group.startswith("trial "):
            return math.inf
        return (int(group.split()[1].rstrip(",")) - 1) // self.trials_together

    def _done(self) -> list[float]:
        """The share of each planned fit that is done."""
        shares = [self._shares.get((fit.group, fit.member), 0.0) for fit in self.fits]
        begun = [place for place, share in enumerate(shares) if share]
        turn = max(map(self._turn, begun), default=0.0)
        taught = {self.fits[place].group for place in begun if self.fits[place].has_teacher}
        return [
            1.0
            if self._turn(place) < turn or (fit.group in taught and not fit.has_teacher)
            else shares[place]
            for place, fit in enumerate(self.fits)
        ]

    @property
    def rate(self) -> float | None:
        """Steps (epochs or rounds) per second of the fit in progress; None before its second step,
        and where there may be several fits in progress."""
        if self.is_parallel or len(self._marks) < 2:
            return None
        (since, before), (now, step) = self._marks[0], self._marks[-1]
        return (step - before) / (now - since) if now > since else None

    @property
    def fraction(self) -> float:
        """The share of the work that is done; it never falls."""
        costs = [fit.cost for fit in self.fits]
        done = sum(cost * share for cost, share in zip(costs, self._done(), strict=True))
        self._most = max(self._most, done / (sum(costs) + _REST))
        return self._most

    @property
    def seconds_left(self) -> float | None:
        """The seconds that the rest of the work will take at the same speed; None before there is a
        report."""
        done = self.fraction
        return (self.clock() - self._began) * (1 - done) / done if done else None

    def to_dict(self) -> dict[str, Any]:
        """Return the progress as a run has it; `stage` is how many fits have begun."""
        left, rate = self.seconds_left, self.rate
        return {
            "fraction": round(self.fraction, 4),
            "seconds_left": None if left is None else round(left, 1),
            "rate": None if rate is None else round(rate, 3),
            "stage": sum(share > 0 for share in self._done()),
            "stages": len(self.fits),
            **self.nodes.to_dict(),
        }


@dataclass(frozen=True)
class NodeFitProgress(FitProgress):
    """The progress of a fit on the machine named `node` of a cluster."""

    node: str


class FitNodes:
    """The machines of a cluster that have reported fits. There are none where all fits are made on
    this machine."""

    def __init__(self) -> None:
        self._fits: dict[str, dict[str, FitProgress]] = {}  # the last progress, by machine and fit

    def record(self, label: str, progress: FitProgress) -> None:
        """Take a report of the fit with this label, if the fit is made on another machine."""
        if isinstance(progress, NodeFitProgress):
            fits = self._fits.setdefault(progress.node, {})
            fits.pop(label, None)
            fits[label] = progress  # at the end

    def lines(self) -> Iterator[tuple[str, str, FitProgress]]:
        """For each machine: its name; how many fits have begun there, with the label of the fit
        that has reported last; and the progress of that fit."""
        for node, fits in self._fits.items():
            label, last = next(reversed(fits.items()))
            count = f"{len(fits)} fits" if len(fits) > 1 else "1 fit"
            yield node, f"{count}; {label}", last

    def to_dict(self) -> dict[str, Any]:
        """Return the machines for the progress of a run; empty where there are none."""
        if not self._fits:
            return {}
        lines = self.lines()
        return {"nodes": {node: f"{said}: {at.step} of {at.steps}" for node, said, at in lines}}
