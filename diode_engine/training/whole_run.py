"""The progress of a whole training; each fit reports only its own steps.

A training is a list of stages that is known before it begins: fits of members, and what is done
between them. A stage is expected to take as long as its kind has taken so far for as much work;
before there is one of its kind, as long as it takes relative to the others on the shipped timings
(`_COSTS`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from diode_engine.models.families import FAMILIES, TUNED, members_of
from diode_engine.training.confidence import FOLDS as CONFIDENCE_FOLDS
from diode_engine.training.confidence import STEPS as CONFIDENCE_STEPS
from diode_engine.training.search import FOLDS as SEARCH_FOLDS
from diode_engine.training.settings import TrainingSettings

# Of a fit of each kind to the same rows, beside one of trees.
_COSTS = {"trees": 1.0, "network": 1.5, "distilled": 3.0, "cascade": 3.0}
_OTHER_COST = 1.5  # of a family that is not among them
_REST = 0.25  # of a fit of trees with the usual rounds: judging and writing the model
_PACE_SECONDS = 10.0  # over which the steps a second are taken


@dataclass(frozen=True)
class Stage:
    """`group` is the part of the training to which a fit belongs; `work` is how much it has to do,
    relative to a fit of its kind to all rows."""

    group: str
    member: str
    work: float = 1.0

    @property
    def kind(self) -> str:
        return self.member.partition("-")[0]


def stages_of(
    family: str,
    *,
    tuned: bool = False,
    everything: bool = False,
    trials: int = 0,
    confidence: bool = True,
) -> list[Stage]:
    """The stages of a training (see `train`), in order. Without `confidence` there are too few
    problems to learn it from."""
    members = [f"{TUNED}-0"] if tuned else _members(family)
    teacher = FAMILIES[family].teacher if family in FAMILIES else ""
    searched = _members(teacher or family)
    share = (SEARCH_FOLDS - 1) / SEARCH_FOLDS
    less = (CONFIDENCE_FOLDS - 1) / CONFIDENCE_FOLDS / CONFIDENCE_STEPS
    stages = [
        Stage(f"trial {trial}, fold {part} of {SEARCH_FOLDS}", member, share)
        for trial in range(1, trials + 1)
        for part in range(1, SEARCH_FOLDS + 1)
        for member in searched
    ]
    stages += [Stage("", member) for member in members]
    if confidence and not tuned:
        stages += _of_parts(members, CONFIDENCE_FOLDS, less)
    if everything:
        stages += [Stage("all problems", member) for member in members]
    return stages


def stages_of_folds(family: str, parts: Sequence[str]) -> list[Stage]:
    """The stages of a cross-validation over these parts."""
    return [Stage(part, member) for part in parts for member in _members(family)]


def _of_parts(members: Sequence[str], folds: int, work: float) -> list[Stage]:
    return [
        Stage(f"fold {part} of {folds}", member, work)
        for part in range(1, folds + 1)
        for member in members
    ]


def _members(family: str) -> list[str]:
    """The members of a family; none for an unknown family, which `train` reports."""
    return [f"{member}-{place}" for place, member in enumerate(members_of(family) or ())]


def _stage_of(label: str) -> tuple[str, str]:
    """(group, member) from a fit's name in reports: `trees-0`, `trees-0, fold 1 of 3`, `trial 2,
    fold 1 of 3, trees-0`, `trees-0, all problems`."""
    words = label.split(", ")
    if words[0].startswith("trial "):
        return ", ".join(words[:-1]), words[-1]
    return ", ".join(words[1:]), words[0]


def rest_of(family: str, settings: TrainingSettings) -> float:
    """The work after the fits, relative to a fit of trees with these settings."""
    if "trees" not in (members_of(family) or ()):
        return _REST
    return float(_REST * TrainingSettings().of("trees").rounds / settings.of("trees").rounds)


def _cost(kind: str) -> float:
    return _COSTS.get(kind, _OTHER_COST)


@dataclass
class _Running:
    """The fit in progress: when it began, with the preparation for it, and when its first steps
    were done."""

    place: int
    began: float
    first: tuple[float, int] | None = None
    step: int = 0
    steps: int = 1

    def seconds(self, now: float) -> float | None:
        """The time of all its steps, at its pace so far; None where there is no pace yet."""
        if self.step == self.steps:
            return now - self.began
        if self.first is None or self.step == self.first[1]:
            return None
        at, step = self.first
        pace = (now - at) / (self.step - step)
        return at - self.began + pace * (self.steps - step)


@dataclass
class WholeRun:
    """The progress of a list of stages. `told` is called with each report of a fit; the result
    never goes back. A stage that a checkpoint has done already is skipped."""

    stages: Sequence[Stage]
    rest: float = _REST  # beside a fit of trees
    clock: Callable[[], float] = time.monotonic
    _seconds: dict[str, list[float]] = field(default_factory=dict)  # per work, by kind
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
        group, member = _stage_of(label)
        first = 0 if self._now is None else self._now.place + 1
        there = (i for i in range(first, len(self.stages))
                 if (self.stages[i].group, self.stages[i].member) == (group, member))  # fmt: skip
        # An unexpected stage counts as part of the stage before.
        place = next(there, max(first - 1, 0))
        # The time before the first report belongs to it too.
        began = self._began if self._now is None else self._ended
        self._label, self._now, self._marks = label, _Running(place, began), []

    def _end(self, now: float) -> None:
        """Takes note of how long the stage that has ended took."""
        self._ended = self._marks[-1][0] if self._marks else now
        if self._now is not None:
            stage = self.stages[self._now.place]
            taken = (self._ended - self._now.began) / stage.work
            self._seconds.setdefault(stage.kind, []).append(taken)

    @property
    def rate(self) -> float | None:
        """Steps (epochs or rounds) a second of the fit in progress; None before its second step."""
        if len(self._marks) < 2:
            return None
        (since, before), (now, step) = self._marks[0], self._marks[-1]
        return (step - before) / (now - since) if now > since else None

    @property
    def seconds_left(self) -> float | None:
        """The remaining time of all stages; None before the first has a pace."""
        running = self._now
        if running is None:
            return None
        here = self.stages[running.place]
        now = self.clock()
        elapsed, paced, known = now - running.began, running.seconds(now), self._mean(here.kind)
        if known is not None:
            # Early stopping ends most fits before their last step.
            expected = known * here.work if paced is None else min(paced, known * here.work)
            unit = known
        elif paced is not None:
            expected, unit = paced, paced / here.work
        elif self._seconds:  # as the others have it, beside their costs
            kind, taken = next(iter(self._seconds.items()))
            unit = sum(taken) / len(taken) * _cost(here.kind) / _cost(kind)
            expected = unit * here.work
        else:
            return None
        left = max(expected - elapsed, 0.02 * elapsed)
        scale = unit / _cost(here.kind)  # seconds a fit of trees
        for stage in self.stages[running.place + 1 :]:
            mean = self._mean(stage.kind)
            if mean is None:
                mean = unit if stage.kind == here.kind else scale * _cost(stage.kind)
            left += mean * stage.work
        return left + scale * self.rest

    def _mean(self, kind: str) -> float | None:
        taken = self._seconds.get(kind)
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
            "stages": len(self.stages),
        }


@dataclass
class SideBySideRun:
    """As WholeRun, for stages whose fits are made side by side: how much of their work is done. All
    fits that another one waits for are over when that one reports, whatever they said last."""

    stages: Sequence[Stage]
    rest: float = _REST
    clock: Callable[[], float] = time.monotonic
    _done: dict[tuple[str, str], float] = field(default_factory=dict)  # the share of a fit
    _most: float = 0.0

    def __post_init__(self) -> None:
        self._began = self.clock()

    def told(self, label: str, step: int, steps: int) -> None:
        """A fit has done so many of its at most so many steps."""
        self._done[_stage_of(label)] = min(1.0, step / max(steps, 1))

    def _shares(self) -> list[float]:
        """How much of each stage is done."""
        wave = max((_wave(*told) for told in self._done), default=(0, False))
        return [
            1.0 if _wave(stage.group, stage.member) < wave else self._told(stage)
            for stage in self.stages
        ]

    def _told(self, stage: Stage) -> float:
        return self._done.get((stage.group, stage.member), 0.0)

    @property
    def fraction(self) -> float:
        """The share of the work that is done; it never falls."""
        work = [_cost(stage.kind) * stage.work for stage in self.stages]
        done = sum(each * share for each, share in zip(work, self._shares(), strict=True))
        self._most = max(self._most, done / (sum(work) + self.rest))
        return self._most

    @property
    def seconds_left(self) -> float | None:
        """The remaining time, as if the work went on as fast; None before there is a report."""
        done = self.fraction
        return (self.clock() - self._began) * (1 - done) / done if done else None

    def to_dict(self) -> dict[str, float | int | str | None]:
        """As the progress of a run has it; `stage` is how many have begun."""
        left = self.seconds_left
        return {
            "fraction": round(self.fraction, 4),
            "seconds_left": None if left is None else round(left, 1),
            "rate": None,
            "stage": sum(share > 0 for share in self._shares()),
            "stages": len(self.stages),
        }


class SideBySideParts(SideBySideRun):
    """As SideBySideRun, for a cross-validation: the parts' fits are made side by side, those of one
    part one after the other."""

    def _shares(self) -> list[float]:
        shares: list[float] = []
        over: set[str] = set()  # parts of which a later fit has begun
        for stage in reversed(self.stages):
            shares.append(1.0 if stage.group in over else self._told(stage))
            if (stage.group, stage.member) in self._done:
                over.add(stage.group)
        return shares[::-1]


def _wave(group: str, member: str) -> tuple[int, bool]:
    """The place of a fit in the order of those that wait for each other: a search, the model, its
    folds, the model of all problems; in each of them, what learns from a teacher comes last."""
    place = 1 if not group else ("trial", group, "fold", "all").index(group.split()[0])
    kind = member.partition("-")[0]
    return place, kind in FAMILIES and bool(FAMILIES[kind].teacher)
