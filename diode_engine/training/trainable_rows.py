"""The rows of timings that a model is fitted to, and their split, from which all stages of a
training take their rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from diode_engine import features
from diode_engine.core.hardware import Environment, Hardware, find_name
from diode_engine.core.table import TimingTable
from diode_engine.errors import NoTimingsError, TrainingError
from diode_engine.problems import splits
from diode_engine.problems.splits import split_validation

_T = TypeVar("_T")

MIN_FITTED = 4  # problems; a model of so few is for trying the steps
MIN_WATCHED = 1  # problems that early stopping watches


def one_environment(table: TimingTable, hardware: str | None = None) -> TimingTable:
    """Return the rows from which one model can be made: of one device with one torch and one
    Triton, since each of them changes the kernels. Where the GPU of this name (or slug) has timings
    with several versions of torch or Triton, the rows of the pair with the most timings.

    Raises TrainingError where there is no such GPU, or none is named and there are several.
    """
    names = table.gpu_names
    known = ", ".join(names)
    if hardware is None and len(names) > 1:
        raise TrainingError(
            f"There are timings of several GPUs ({known}); name the one to train for with "
            "--hardware."
        )
    if hardware is None and not names:
        raise TrainingError("There are no timings to learn from; collect or import some.")
    name = names[0] if hardware is None else find_name(hardware, names)
    if name is None:
        raise NoTimingsError(
            f"There are no timings of a GPU named {hardware!r}; there are some of: "
            f"{known or 'none'}."
        )
    there = table.in_environments(lambda environment: environment.hardware.is_called(name))
    most = _most_timed(there)
    return there.in_environments(lambda environment: _kind(environment) == most)


def trainable_rows(table: TimingTable, hardware: str | None = None) -> TimingTable:
    """Return the rows from which a model can be made: as `one_environment` for the GPU of this
    name. If none is named and there are several, those of all GPUs of the generation that has the
    most timings, with one torch and one Triton; a problem that several GPUs timed becomes one of
    each (see `by_gpu`). Raises TrainingError as `one_environment` does, but not for several
    GPUs."""
    gpus = {environment.hardware for environment in table.used_environments}
    if hardware is not None or len({gpu.slug for gpu in gpus}) < 2:
        return one_environment(table, hardware)
    gpu, *software = _most_timed(table)
    return by_gpu(
        table.in_environments(
            lambda e: [e.torch, e.triton] == software and gpu.likeness(e.hardware) > 0
        )
    )


def _most_timed(table: TimingTable) -> tuple[Hardware, str, str]:
    """The kind of environment with the most rows."""
    return _counted(table, _kind).most_common(1)[0][0]


def _counted(table: TimingTable, what: Callable[[Environment], _T]) -> Counter[_T]:
    """How many rows have each value that `what` gives for their environments."""
    counts: Counter[_T] = Counter()
    for i, count in Counter(table.environment.tolist()).items():
        counts[what(table.environments[i])] += count
    return counts


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
    most_first = _counted(table, lambda environment: environment.hardware).most_common()
    return tuple({gpu.slug: gpu for gpu, _ in reversed(most_first)}.values())[::-1]


def rows_on(table: TimingTable, hardware: Hardware) -> TimingTable:
    """The rows that were timed on GPUs of this name."""
    return table.in_environments(lambda environment: environment.hardware.slug == hardware.slug)


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
    problems, spare = fitted.count_problems(), watched.count_problems()
    if problems < MIN_FITTED or spare < MIN_WATCHED:
        raise TrainingError(
            f"{problems + spare} problems to learn from are too few ({problems} to fit to and "
            f"{spare} to watch; {MIN_FITTED} and {MIN_WATCHED} are needed at least): collect "
            "or import timings of more."
        )
    return fitted, watched


def thin_rows(table: TimingTable, most: int, *, seed: int = 0) -> TimingTable:
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


MIN_HELD_OUT = 2  # problems to judge a model by


@dataclass(frozen=True, eq=False)
class TrainingSplit:
    """Rows of one device or several, with one torch and one Triton (`trainable_rows`), split as
    `splits.split` does."""

    learned: TimingTable  # the successful rows to learn from
    all_learnable: TimingTable  # these, and the successful rows of the held-out problems
    # All rows of the held-out problems, failed ones too: to choose a candidate that fails is a bad
    # choice.
    judged: TimingTable
    held_out_problems: int  # on which a model can be judged
    # How many successful timings are of other hardware, torch or Triton, by the names of these.
    left_out: Mapping[str, int]
    by: tuple[str, ...]  # the ways in which problems are held out (splits.HELD_OUT_BY)

    @classmethod
    def make(
        cls,
        table: TimingTable,
        hardware: str | None = None,
        by: Collection[str] = splits.HELD_OUT_BY,
    ) -> TrainingSplit:
        """The split of the table's timings on the GPU of this name (None: on all GPUs of one
        generation). Raises TrainingError as `trainable_rows` does, and where there are too few
        problems to judge a model on."""
        one = trainable_rows(table, hardware)
        all_learnable = learnable(one)
        learned, held_out = splits.split(all_learnable, by)
        problems = held_out.count_problems()
        if problems < MIN_HELD_OUT:
            raise TrainingError(
                f"Of {all_learnable.count_problems()} problems with timings {problems} are held "
                f"out, which is too few to judge a model by ({MIN_HELD_OUT} are needed): collect "
                "or import more."
            )
        judged = splits.split(one, by)[1]
        return cls(learned, all_learnable, judged, problems, _left_out(table, one), tuple(by))

    @property
    def hardware(self) -> Hardware:
        """The device with the most rows."""
        return gpus_of(self.all_learnable)[0]


def _left_out(table: TimingTable, one: TimingTable) -> dict[str, int]:
    kept = set(one.used_environments)
    others = table.take(table.failure == 0).in_environments(lambda e: e not in kept)
    left = _counted(others, lambda e: f"{e.hardware.name}, torch {e.torch}, Triton {e.triton}")
    return dict(left.most_common())
