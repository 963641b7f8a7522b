"""The progress of a whole training or cross-validation; each fit reports only its own steps.

The fits are planned before it begins (see planned_fits). A fit is expected to take as long as the
earlier fits of its family took, for as much work. For the first fit of a family, the fits of other
families and the families' `cost` are used.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from diode_engine.models.families import FAMILIES
from diode_engine.training.planned_fits import REST, PlannedFit, group_and_member, has_teacher, turn

_PACE_SECONDS = 10.0  # the rate is the mean over so long


@dataclass
class _Running:
    """The fit in progress."""

    place: int  # in the plan
    began: float  # when its preparation began
    first: tuple[float, int] | None = None  # its first report: when, and how many steps were done
    step: int = 0
    steps: int = 1

    def seconds(self, now: float) -> float | None:
        """How long the whole fit takes, at its pace so far; None before its second report."""
        if self.step == self.steps:
            return now - self.began
        if self.first is None or self.step == self.first[1]:
            return None
        at, step = self.first
        pace = (now - at) / (self.step - step)
        return at - self.began + pace * (self.steps - step)


@dataclass
class TrainingProgress:
    """The progress of fits that are made one after the other. `told` must be called with each
    report of a fit; `fraction` never falls. Fits that were made before an interruption report
    nothing, and are skipped."""

    fits: Sequence[PlannedFit]
    rest: float = REST  # the work after them, relative to a fit of trees
    clock: Callable[[], float] = time.monotonic
    _seconds: dict[str, list[float]] = field(default_factory=dict)  # of fits per work, by family
    _now: _Running | None = None
    _label: str = ""
    _most: float = 0.0
    _marks: list[tuple[float, int]] = field(default_factory=list)  # (when, step)

    def __post_init__(self) -> None:
        self._began = self.clock()

    def told(self, label: str, step: int, steps: int) -> None:
        """A fit has done so many of its at most so many steps."""
        now = self.clock()
        if label != self._label or self._now is None:
            self._next(label, now)
        assert self._now is not None
        self._now.step, self._now.steps = step, max(steps, step, 1)
        self._now.first = self._now.first or (now, step)
        self._marks.append((now, step))
        while len(self._marks) > 2 and self._marks[0][0] < now - _PACE_SECONDS:
            del self._marks[0]

    def _next(self, label: str, now: float) -> None:
        self._end(now)
        group, member = group_and_member(label)
        first = 0 if self._now is None else self._now.place + 1
        there = (i for i in range(first, len(self.fits))
                 if (self.fits[i].group, self.fits[i].member) == (group, member))  # fmt: skip
        # A fit that is not planned counts as part of the one before it.
        place = next(there, max(first - 1, 0))
        # The time before its first report, since the end of the fit before, belongs to it too.
        began = self._began if self._now is None else self._ended
        self._label, self._now, self._marks = label, _Running(place, began), []

    def _end(self, now: float) -> None:
        """Keeps how long the fit that has ended took."""
        self._ended = self._marks[-1][0] if self._marks else now
        if self._now is not None:
            fit = self.fits[self._now.place]
            taken = (self._ended - self._now.began) / fit.work
            self._seconds.setdefault(fit.family, []).append(taken)

    @property
    def rate(self) -> float | None:
        """Steps (epochs or rounds) per second of the fit in progress; None before its second
        step."""
        if len(self._marks) < 2:
            return None
        (since, before), (now, step) = self._marks[0], self._marks[-1]
        return (step - before) / (now - since) if now > since else None

    @property
    def seconds_left(self) -> float | None:
        """The seconds that all fits and the rest will still take; None before the first fit has a
        pace."""
        running = self._now
        if running is None:
            return None
        here = self.fits[running.place]
        now = self.clock()
        elapsed, paced, known = now - running.began, running.seconds(now), self._mean(here.family)
        if known is not None:
            # Early stopping ends most fits before their last step.
            expected = known * here.work if paced is None else min(paced, known * here.work)
            unit = known
        elif paced is not None:
            expected, unit = paced, paced / here.work
        elif self._seconds:  # from the fits of another family
            family, taken = next(iter(self._seconds.items()))
            unit = sum(taken) / len(taken) * _cost(here.family) / _cost(family)
            expected = unit * here.work
        else:
            return None
        left = max(expected - elapsed, 0.02 * elapsed)
        scale = unit / _cost(here.family)  # seconds of a fit of trees
        for fit in self.fits[running.place + 1 :]:
            mean = self._mean(fit.family)
            if mean is None:
                mean = unit if fit.family == here.family else scale * _cost(fit.family)
            left += mean * fit.work
        return left + scale * self.rest

    def _mean(self, family: str) -> float | None:
        taken = self._seconds.get(family)
        return sum(taken) / len(taken) if taken else None

    @property
    def fraction(self) -> float:
        """The share of the whole time that is over; it never falls."""
        left = self.seconds_left
        if left is not None:
            over = self.clock() - self._began
            self._most = max(self._most, over / (over + left) if over else 0.0)
        return self._most

    def to_dict(self) -> dict[str, float | int | str | None]:
        """As the progress of a run has it."""
        left, rate = self.seconds_left, self.rate
        place = 0 if self._now is None else self._now.place + 1
        return {
            "fraction": round(self.fraction, 4),
            "seconds_left": None if left is None else round(left, 1),
            "rate": None if rate is None else round(rate, 3),
            "stage": place,
            "stages": len(self.fits),
        }


@dataclass
class ParallelTrainingProgress:
    """As TrainingProgress, for fits that are made side by side: how much of their work is done.
    When a fit reports, all fits with an earlier turn count as done, also those whose last report
    has not arrived."""

    fits: Sequence[PlannedFit]
    rest: float = REST
    clock: Callable[[], float] = time.monotonic
    _done: dict[tuple[str, str], float] = field(default_factory=dict)  # the done share of a fit
    _most: float = 0.0

    def __post_init__(self) -> None:
        self._began = self.clock()

    def told(self, label: str, step: int, steps: int) -> None:
        """A fit has done so many of its at most so many steps."""
        self._done[group_and_member(label)] = min(1.0, step / max(steps, 1))

    def _shares(self) -> list[float]:
        """How much of each fit is done."""
        latest = max((turn(*told) for told in self._done), default=(0, False))
        return [
            1.0 if turn(fit.group, fit.member) < latest else self._told(fit) for fit in self.fits
        ]

    def _told(self, fit: PlannedFit) -> float:
        return self._done.get((fit.group, fit.member), 0.0)

    @property
    def fraction(self) -> float:
        """The share of the work that is done; it never falls."""
        costs = [fit.cost for fit in self.fits]
        done = sum(cost * share for cost, share in zip(costs, self._shares(), strict=True))
        self._most = max(self._most, done / (sum(costs) + self.rest))
        return self._most

    @property
    def seconds_left(self) -> float | None:
        """The seconds that the rest of the work will take at the same speed; None before there is a
        report."""
        done = self.fraction
        return (self.clock() - self._began) * (1 - done) / done if done else None

    def to_dict(self) -> dict[str, float | int | str | None]:
        """As the progress of a run has it; `stage` is how many fits have begun."""
        left = self.seconds_left
        return {
            "fraction": round(self.fraction, 4),
            "seconds_left": None if left is None else round(left, 1),
            "rate": None,
            "stage": sum(share > 0 for share in self._shares()),
            "stages": len(self.fits),
        }


class ParallelPartsProgress(ParallelTrainingProgress):
    """As ParallelTrainingProgress, for a cross-validation: the fits of different parts are made
    side by side, those of one part one after the other."""

    def _shares(self) -> list[float]:
        shares: list[float] = []
        over: set[str] = set()  # parts of which a later fit has begun
        for fit in reversed(self.fits):
            shares.append(1.0 if fit.group in over else self._told(fit))
            if (fit.group, fit.member) in self._done:
                over.add(fit.group)
        return shares[::-1]


class PooledTrainingProgress(ParallelTrainingProgress):
    """As ParallelTrainingProgress, for the fits of all groups together, which are made as cores
    become free for them. The trials of a search still follow each other, and a fit its teacher's
    fits."""

    def _shares(self) -> list[float]:
        order = {fit.group: place for place, fit in enumerate(self.fits)}
        last = max((order.get(group, 0) for group, _ in self._done), default=0)
        taught = {group for group, member in self._done if has_teacher(member)}
        return [
            1.0
            if (fit.group in taught and not has_teacher(fit.member))
            or (fit.group.startswith("trial ") and order[fit.group] < last)
            else self._told(fit)
            for fit in self.fits
        ]


def _cost(family: str) -> float:
    return FAMILIES[family].cost
