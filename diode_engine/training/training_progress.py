"""The progress of a whole training or cross-validation; each fit reports only its own steps.

The fits are planned before it begins. The progress is the share of their work that is done.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from diode_engine.models.fitting import FitProgress
from diode_engine.models.model_types import MODEL_TYPES, TUNED, member_types
from diode_engine.training.confidence import FOLDS as CONFIDENCE_FOLDS
from diode_engine.training.confidence import STEPS_DIVISOR as CONFIDENCE_STEPS_DIVISOR
from diode_engine.training.fit_steps import fit_label, fit_labels
from diode_engine.training.search import FOLDS as SEARCH_FOLDS

_REST = 0.25  # the work of judging and writing a model, relative to a fit of trees
_PACE_SECONDS = 10.0  # the rate is the mean over so long

# How long each fit takes, by its label, relative to a fit of trees to all rows.
PlannedFits = dict[str, float]


def planned_trials(family: str, trials: int) -> PlannedFits:
    """Return the fits of a search (see `search`) of this many trials, in order."""
    searched = (MODEL_TYPES[family].teacher if family in MODEL_TYPES else "") or family
    share = (SEARCH_FOLDS - 1) / SEARCH_FOLDS
    names = (
        f"trial {trial}, fold {part} of {SEARCH_FOLDS}"
        for trial in range(1, trials + 1)
        for part in range(1, SEARCH_FOLDS + 1)
    )
    return _planned(searched, dict.fromkeys(names, share))


def planned_fits(
    family: str, *, tuned: bool = False, everything: bool = False, confidence: bool = True
) -> PlannedFits:
    """Return the fits of a training (see `train`), in order. Without `confidence` there are too few
    problems to learn it from."""
    less = (CONFIDENCE_FOLDS - 1) / CONFIDENCE_FOLDS / CONFIDENCE_STEPS_DIVISOR
    models = {"": 1.0}
    if confidence and not tuned:
        models |= {f"fold {i} of {CONFIDENCE_FOLDS}": less for i in range(1, CONFIDENCE_FOLDS + 1)}
    if everything:
        models["all problems"] = 1.0
    if tuned:
        return {fit_label(f"{TUNED}-0", name): MODEL_TYPES[TUNED].cost for name in models}
    return _planned(family, models)


def planned_fits_of_parts(family: str, parts: Sequence[str]) -> PlannedFits:
    """Return the fits of a cross-validation over these parts, in order."""
    return _planned(family, dict.fromkeys(parts, 1.0))


def _planned(family: str, models: Mapping[str, float]) -> PlannedFits:
    """The fits of models of the family with these names. A model's number is the work of its fits,
    relative to fits to all rows."""
    return {
        label: MODEL_TYPES[kind].cost * work
        for name, work in models.items()
        for kind, label in zip(member_types(family), fit_labels(family, name), strict=True)
    }


@dataclass
class TrainingProgress:
    """The progress of planned fits. `record` must be called with each report of a fit; `fraction`
    never falls."""

    fits: PlannedFits
    clock: Callable[[], float] = time.monotonic
    _shares: dict[str, float] = field(default_factory=dict)  # that is done of a fit
    _most: float = 0.0
    # (when, step) of the last seconds, of the fits in progress.
    _marks: dict[str, deque[tuple[float, int]]] = field(default_factory=dict)
    # Fits that ended without a report: a checkpoint had them, or their trial was given up.
    _skipped: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self._began = self.clock()
        self.nodes = FitNodes()

    def record(self, label: str, progress: FitProgress | None) -> None:
        """Take a report of the fit with this label (fit_pool.FitCallback)."""
        if progress is None:
            if label not in self._shares:
                self._skipped.add(label)
            self._shares[label] = 1.0
            self._marks.pop(label, None)
            return
        now = self.clock()
        self.nodes.record(label, progress)
        self._shares[label] = min(1.0, progress.step / max(progress.steps, 1))
        marks = self._marks.setdefault(label, deque())
        marks.append((now, progress.step))
        while len(marks) > 2 and marks[0][0] < now - _PACE_SECONDS:
            marks.popleft()

    @property
    def rate(self) -> float | None:
        """Steps (epochs or rounds) per second of the fit in progress; None before its second step,
        and where several fits are in progress."""
        if len(self._marks) != 1:
            return None
        (marks,) = self._marks.values()
        (since, before), (now, step) = marks[0], marks[-1]
        return (step - before) / (now - since) if now > since else None

    @property
    def fraction(self) -> float:
        """The share of the work that is done; it never falls."""
        self._most = max(self._most, self._part_done(self.fits.keys()))
        return self._most

    def _part_done(self, labels: Iterable[str]) -> float:
        """The share of the whole work that is done in these fits."""
        done = sum(self.fits[label] * self._shares.get(label, 0.0) for label in labels)
        return done / (sum(self.fits.values()) + _REST)

    @property
    def seconds_left(self) -> float | None:
        """The seconds that the rest of the work will take at the same speed; None before there is a
        report."""
        worked = self._part_done(self.fits.keys() - self._skipped)
        return (self.clock() - self._began) * (1 - self.fraction) / worked if worked else None

    def to_dict(self) -> dict[str, Any]:
        """Return the progress as a run has it; `stage` is how many fits have begun."""
        left, rate = self.seconds_left, self.rate
        return {
            "fraction": round(self.fraction, 4),
            "seconds_left": None if left is None else round(left, 1),
            "rate": None if rate is None else round(rate, 3),
            "stage": len(self.fits.keys() & self._shares.keys()),
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
