"""The fits that a training or a cross-validation consists of, as far as they are known before it
begins. The progress is computed from this plan (see training_progress)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from diode_engine.models.families import FAMILIES, TUNED, members_of
from diode_engine.training.confidence import FOLDS as CONFIDENCE_FOLDS
from diode_engine.training.confidence import STEPS_DIVISOR as CONFIDENCE_STEPS_DIVISOR
from diode_engine.training.search import FOLDS as SEARCH_FOLDS
from diode_engine.training.settings import TrainingSettings

# The work of judging and writing a model, relative to a fit of trees with the default rounds.
REST = 0.25


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
        return FAMILIES[self.family].cost * self.work


def planned_fits(
    family: str,
    *,
    tuned: bool = False,
    everything: bool = False,
    trials: int = 0,
    confidence: bool = True,
) -> list[PlannedFit]:
    """The fits of a training (see `train`), in order. Without `confidence` there are too few
    problems to learn it from."""
    members = [f"{TUNED}-0"] if tuned else _members(family)
    teacher = FAMILIES[family].teacher if family in FAMILIES else ""
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
    """The fits of a cross-validation over these parts, in order."""
    return [PlannedFit(part, member) for part in parts for member in _members(family)]


def _members(family: str) -> list[str]:
    """The members of a family; none for an unknown family, which `train` reports."""
    return [f"{member}-{place}" for place, member in enumerate(members_of(family) or ())]


def rest_of(family: str, settings: TrainingSettings) -> float:
    """The work after the fits, relative to a fit of trees with these settings."""
    if "trees" not in (members_of(family) or ()):
        return REST
    return float(REST * TrainingSettings().of("trees").rounds / settings.of("trees").rounds)


def group_and_member(label: str) -> tuple[str, str]:
    """The group and the member of a fit, from its label in reports: `trees-0`, `trees-0, fold 1 of
    3`, `trial 2, fold 1 of 3, trees-0`, `trees-0, all problems`."""
    words = label.split(", ")
    if words[0].startswith("trial "):
        return ", ".join(words[:-1]), words[-1]
    return ", ".join(words[1:]), words[0]


def turn(group: str, member: str) -> tuple[int, bool]:
    """When a fit can be made: all fits with an earlier turn must be over. The search comes first,
    then the model, its folds, and the model of all problems; in each of these, a family with a
    teacher comes last."""
    place = 1 if not group else ("trial", group, "fold", "all").index(group.split()[0])
    return place, has_teacher(member)


def has_teacher(member: str) -> bool:
    """Whether the member's family learns from a teacher."""
    family = member.rpartition("-")[0]
    return family in FAMILIES and bool(FAMILIES[family].teacher)
