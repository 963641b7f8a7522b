"""Fits models to timings."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from diode_engine import features
from diode_engine.core.hardware import Environment, Hardware, find_name
from diode_engine.core.table import TimingTable
from diode_engine.errors import TrainingError
from diode_engine.models.coverage import Coverage
from diode_engine.models.families import FAMILIES, members_of, trainable
from diode_engine.models.fitting import Checkpoint, Examples, FitProgress
from diode_engine.models.members import answers_of
from diode_engine.models.protocol import TimingModel
from diode_engine.problems.splits import split_validation
from diode_engine.store.datasets.key import dataset_key
from diode_engine.training.checkpoints import Checkpoints
from diode_engine.training.lessons import asked_problems, lessons, part, with_timings
from diode_engine.training.settings import TrainingSettings

MIN_FITTED = 4  # problems; a model of so few is for trying the steps
MIN_WATCHED = 1  # problems that early stopping watches

# Called with the member that is being fitted, such as "network-1", and its progress.
MemberProgressCallback = Callable[[str, FitProgress], None]


def one_environment(table: TimingTable, hardware: str | None = None) -> TimingTable:
    """The rows from which one model can be made: of one device with one torch and one Triton, since
    each of them changes the kernels. Where the GPU of this name (or slug) has timings with several
    versions of torch or Triton, the rows of the pair with the most timings.

    Raises TrainingError where there is no such GPU, or none is named and there are several.
    """
    counts = Counter(table.environment.tolist())
    names = sorted({table.environments[i].hardware.name for i in counts})
    if hardware is None:
        if len(names) > 1:
            raise TrainingError(
                f"There are timings of several GPUs ({', '.join(names)}); name the one to train "
                "for with --hardware."
            )
        if not names:
            raise TrainingError("There are no timings to learn from; collect or import some.")
        hardware = names[0]
    elif (meant := find_name(hardware, names)) is not None:
        hardware = meant
    else:
        raise TrainingError(
            f"There are no timings of a GPU named {hardware!r}; there are some of: "
            f"{', '.join(names) or 'none'}."
        )
    kinds: Counter[tuple[Hardware, str, str]] = Counter()
    for i, count in counts.items():
        if table.environments[i].hardware.is_called(hardware):
            kinds[_kind(table.environments[i])] += count
    (kind, _), *_ = kinds.most_common(1)
    same = np.array([_kind(environment) == kind for environment in table.environments], np.bool_)
    return table.take(same[table.environment])


def trainable_rows(table: TimingTable, hardware: str | None = None) -> TimingTable:
    """The rows from which a model can be made: as `one_environment` for the GPU of this name. If
    none is named and there are several, those of all GPUs of the generation that has the most
    timings, with one torch and one Triton; a problem that several GPUs timed becomes one of each
    (see `by_gpu`). Raises TrainingError as `one_environment` does, but not for several GPUs."""
    gpus = {table.environments[i].hardware for i in np.unique(table.environment)}
    if hardware is not None or len({gpu.slug for gpu in gpus}) < 2:
        return one_environment(table, hardware)
    counts = Counter(table.environment.tolist())
    kinds: Counter[tuple[Hardware, str, str]] = Counter()
    for i, count in counts.items():
        kinds[_kind(table.environments[i])] += count
    ((most, *software), _), *_ = kinds.most_common(1)
    kept = np.array(
        [
            [e.torch, e.triton] == software and most.likeness(e.hardware) > 0
            for e in table.environments
        ],
        np.bool_,
    )
    return by_gpu(table.take(kept[table.environment]))


def by_gpu(table: TimingTable) -> TimingTable:
    """The table with each problem once for each GPU that it was timed on, so that rows of one
    problem are of one GPU."""
    slugs = [environment.hardware.slug for environment in table.environments]
    gpu = np.unique(slugs, return_inverse=True)[1][table.environment]
    pairs, index = np.unique(np.stack([table.problem, gpu], axis=1), axis=0, return_inverse=True)
    problems = tuple(table.problems[i] for i in pairs[:, 0])
    return replace(table, problems=problems, problem=index.reshape(-1).astype(np.int32))


def gpus_of(table: TimingTable) -> tuple[Hardware, ...]:
    """The GPUs that the rows were timed on, one of each name, that with the most rows first."""
    counts: Counter[Hardware] = Counter()
    for i, count in Counter(table.environment.tolist()).items():
        counts[table.environments[i].hardware] += count
    return tuple({gpu.slug: gpu for gpu, _ in reversed(counts.most_common())}.values())[::-1]


def rows_on(table: TimingTable, hardware: Hardware) -> TimingTable:
    """The rows that were timed on GPUs of this name."""
    here = np.array([e.hardware.slug == hardware.slug for e in table.environments], np.bool_)
    return table.take(here[table.environment])


def _kind(environment: Environment) -> tuple[Hardware, str, str]:
    return environment.hardware, environment.torch, environment.triton


def learnable(table: TimingTable) -> TimingTable:
    """The rows that succeeded, of problems and candidates that features can describe."""
    known = features.supported(table.problems, table.candidates, table.problem, table.candidate)
    return table.take(known & (table.failure == 0))


def fitted_and_watched(table: TimingTable, *, seed: int) -> tuple[TimingTable, TimingTable]:
    """(the rows to fit to, the rows that early stopping watches). Raises TrainingError where there
    are too few problems for either."""
    fitted, watched = split_validation(table, seed=seed)
    problems, spare = len(set(fitted.problem.tolist())), len(set(watched.problem.tolist()))
    if problems < MIN_FITTED or spare < MIN_WATCHED:
        raise TrainingError(
            f"{problems + spare} problems to learn from are too few ({problems} to fit to and "
            f"{spare} to watch; {MIN_FITTED} and {MIN_WATCHED} are needed at least): collect "
            "or import timings of more."
        )
    return fitted, watched


def thinned(table: TimingTable, most: int, *, seed: int = 0) -> TimingTable:
    """At most `most` rows of each problem; all rows must have succeeded. A third of them are the
    problem's fastest, the others are drawn at random. A problem with thousands of timings teaches
    little more than one with hundreds, but would weigh as much as ten of these."""
    drawn = np.random.default_rng(seed).random(len(table))
    fastest = _rank(table.problem, table.time_us) < most // 3
    order = np.where(fastest, -1.0, drawn)
    return table.take(_rank(table.problem, order) < most)


def _rank(group: npt.NDArray[Any], key: npt.NDArray[Any]) -> npt.NDArray[np.intp]:
    """[n] each row's index, from 0, among its group's rows when they are sorted by this key."""
    order = np.lexsort((key, group))
    sorted_groups = group[order]
    first = np.searchsorted(sorted_groups, sorted_groups, side="left")
    rank = np.empty(len(group), np.intp)
    rank[order] = np.arange(len(group)) - first
    return rank


def fit(
    table: TimingTable,
    family: str,
    *,
    seed: int = 0,
    settings: TrainingSettings | None = None,
    report: MemberProgressCallback = lambda member, progress: None,
    checkpoints: Checkpoints | None = None,
) -> tuple[TimingModel, ...]:
    """The fitted members of this family, from rows that are `learnable` and of one environment.

    Some of the problems are taken for early stopping. The same rows in the same order and the same
    seed give the same members on one machine. With `checkpoints`, a fit that was interrupted
    continues where it was. Raises TrainingError where there is no such family or there are too few
    problems.
    """
    fits = MemberFits(table, family, seed=seed, settings=settings)
    members: tuple[TimingModel, ...] = ()
    for place, member in enumerate(fits.families):
        teacher = members if FAMILIES[member].teacher else ()
        model = fits.fit(place, teacher, report=report, checkpoints=checkpoints)
        members = (model,) if teacher else (*members, model)
    return members


class MemberFits:
    """The fits of a family's members to the same rows, each by its place among `families`. Raises
    TrainingError as `fit` does."""

    def __init__(
        self,
        table: TimingTable,
        family: str,
        *,
        seed: int = 0,
        settings: TrainingSettings | None = None,
    ) -> None:
        self.families = families_of(family)
        self._table, self._seed = table, seed
        self._settings = settings = settings or TrainingSettings()
        parts = fitted_and_watched(table, seed=seed)
        fitted, watched = (thinned(part, settings.rows, seed=seed) for part in parts)
        self._sees = settings.feature_set
        self.train, self.held_out = (
            Examples.of(part, feature_set=self._sees) for part in (fitted, watched)
        )

    def fit(
        self,
        place: int,
        teacher: tuple[TimingModel, ...] = (),
        *,
        report: MemberProgressCallback = lambda member, progress: None,
        checkpoints: Checkpoints | None = None,
    ) -> TimingModel:
        """The member at this place. `teacher` are the members that it learns from, if its family
        has a teacher."""
        member = self.families[place]
        method = FAMILIES[member].fitting_method()

        def told(progress: FitProgress) -> None:
            report(f"{member}-{place}", progress)

        def make(checkpoint: Checkpoint | None) -> TimingModel:
            examples = self._taught(teacher) if teacher else (self.train, self.held_out)
            of_member = replace(self._settings.of(member), seed=self._seed + place)
            model = method.fit(*examples, of_member, told, checkpoint)
            if method.with_teacher is None:
                return model
            return method.with_teacher(model, teacher, *examples, of_member)

        if checkpoints is None:
            return make(None)
        what = made_from(self._table, self._seed, place, self._settings)
        return checkpoints.fitted(what, member, make, self._sees)

    def _taught(self, teacher: Sequence[TimingModel]) -> tuple[Examples, Examples]:
        """(the examples to learn, those that early stopping watches): the teacher's answers. The
        timings to fit to are among the former."""
        environment = self._table.environments[int(self._table.environment[0])]
        coverage = Coverage.of(self._table)
        learned, checks = part(
            lessons(
                teacher,
                coverage,
                asked_problems(self._table, coverage, self._settings.lessons, seed=self._seed),
                torch=environment.torch,
                seed=self._seed,
                feature_set=self._sees,
            )
        )
        return with_timings(learned, answers_of(teacher, self.train.x), self.train), checks


def made_from(table: TimingTable, seed: int, place: int, settings: TrainingSettings) -> list[Any]:
    """What a member is made from, as `Checkpoints` takes it."""
    return [dataset_key(table), seed, place, settings.to_dict()]


def families_of(name: str) -> tuple[str, ...]:
    """As families.members_of. Raises TrainingError where there is no such name."""
    families = members_of(name)
    if families is None:
        raise TrainingError(f"There is no family {name!r}; there are {', '.join(trainable())}.")
    return families
