"""The plan of a collection: which candidates of which problems, and how long they will take."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

from diode_engine.core.candidate import Candidate
from diode_engine.core.checks import decode
from diode_engine.core.problem import Problem
from diode_engine.documents import Limits, read_document, shortened
from diode_engine.errors import DatasetError, RecordError
from diode_engine.problems.spaces import SpaceSize, space_size

# What a candidate takes: seconds of one core to compile and load it as Inductor does, and seconds
# of a GPU for its launches. A collection on 64 cores and 4 H200s took 1.1 s of a core; the value
# here is cautious. Candidates that are launched directly take far less than these values.
CORE_SECONDS = 1.5
GPU_SECONDS = 0.03
# Of a file of candidates. Inductor offers 4,000, and each is two objects in the file.
_CANDIDATES = Limits(bytes=16 << 20)


@dataclass(frozen=True)
class CandidateSelection:
    """Which candidates of a problem are timed.

    Without a budget: all that Inductor offers, or those of `fixed` that it offers. With a budget:
    at most `budget` of these (CandidatePlan says which); where problems share kernels, `compiles`
    limits how many kernels are compiled for this problem, besides those that every problem has.
    With `default`, only candidates of the DEFAULT space.
    """

    budget: int | None = None
    fixed: tuple[Candidate, ...] | None = None
    compiles: int | None = None
    default: bool = False

    def size(self, problem: Problem) -> SpaceSize:
        """How many of this problem's candidates are timed; with `fixed`, how many at most."""
        if self.fixed is not None:
            libraries = sum(c.is_extern for c in self.fixed)
            space = SpaceSize(libraries, len(self.fixed) - libraries)
        else:
            space = space_size(problem, default=self.default)
        if self.budget is None:
            return space
        libraries = min(space.libraries, self.budget)
        return SpaceSize(libraries, min(space.kernels, self.budget - libraries))

    def __str__(self) -> str:
        if self.fixed is not None:
            return f"{'' if self.budget is None else f'up to {self.budget} '}named candidates"
        whole = "DEFAULT candidates" if self.default else "candidates"
        return f"all {whole}" if self.budget is None else f"up to {self.budget} {whole}"


ALL = CandidateSelection()


@dataclass(frozen=True)
class Rate:
    """How fast candidates are timed."""

    a_second: float  # candidates
    known_from: str  # where the number comes from, in words


@dataclass(frozen=True)
class PlannedProblem:
    """A problem, and which of its candidates are timed."""

    problem: Problem
    selection: CandidateSelection

    @property
    def size(self) -> SpaceSize:
        """How many candidates are expected."""
        return self.selection.size(self.problem)


@dataclass(frozen=True)
class Plan:
    """Problems in the order in which they are timed. Immutable."""

    entries: tuple[PlannedProblem, ...]

    @classmethod
    def for_problems(
        cls, problems: Iterable[Problem], selection: CandidateSelection = ALL, *, whole: int = 0
    ) -> Plan:
        """A plan with each problem once. The first `whole` problems have all their candidates, the
        others this selection."""
        return cls(
            tuple(
                PlannedProblem(problem, ALL if i < whole else selection)
                for i, problem in enumerate(dict.fromkeys(problems))
            )
        )

    def __len__(self) -> int:
        return len(self.entries)

    def summary(self, rate: Rate) -> dict[str, Any]:
        """What will be timed, at most: what the store has already is not timed again.

        Keys: problems; candidates; compiles (how many of the candidates are kernels, which have to
        be compiled; with direct launches fewer are, since problems share them); seconds, at this
        rate; known_from, where the rate comes from; and by_selection, by_op and by_type, with the
        problems and candidates of each.
        """
        sizes = [entry.size for entry in self.entries]
        candidates = sum(size.candidates for size in sizes)
        return {
            "problems": len(self.entries),
            "candidates": candidates,
            "compiles": sum(size.kernels for size in sizes),
            "seconds": round(candidates / rate.a_second, 1),
            "known_from": rate.known_from,
            "by_selection": self._counted(sizes, [str(e.selection) for e in self.entries]),
            "by_op": self._counted(sizes, [str(e.problem.op) for e in self.entries]),
            "by_type": self._counted(
                sizes,
                [f"{e.problem.dtype}{' tf32' if e.problem.allow_tf32 else ''}"
                 for e in self.entries],
            ),
        }  # fmt: skip

    def _counted(self, sizes: list[SpaceSize], names: list[str]) -> dict[str, dict[str, int]]:
        problems = Counter(names)
        candidates: Counter[str] = Counter()
        for size, name in zip(sizes, names, strict=True):
            candidates[name] += size.candidates
        return {
            name: {"problems": count, "candidates": candidates[name]}
            for name, count in problems.most_common()
        }


def expected_rate(
    collections: Sequence[tuple[Mapping[str, Any], Mapping[str, Any]]], *, gpus: int, cores: int
) -> Rate:
    """The expected rate on so many GPUs and cores. `collections` are earlier ones (spec and
    progress of each, the oldest first). The rate is that of the latest one with a thousand timings
    or more, in proportion to the GPUs; without such a one, CORE_SECONDS and GPU_SECONDS give it."""
    for spec, progress in reversed(collections):
        timings, seconds = progress.get("timings", 0), progress.get("seconds", 0.0)
        # A cluster's GPUs are not in the spec.
        earlier = len(spec.get("gpus") or progress.get("gpus") or ())
        if timings >= 1000 and seconds > 0 and earlier:
            return Rate(timings / seconds / earlier * gpus, "the last collection in the store")
    return Rate(
        1.0 / max(CORE_SECONDS / cores, GPU_SECONDS / gpus),
        f"{CORE_SECONDS} s of a core (of {cores}) and {GPU_SECONDS} s of a GPU (of {gpus}) for "
        "each candidate",
    )


def read_candidates(path: str | PathLike[str]) -> tuple[Candidate, ...]:
    """The candidates in a JSON file, a list of {"template": …, "kwargs": {…}}. Raises
    DatasetError, with the place, where it is missing, malformed or empty."""
    where = Path(path)
    given = read_document(where, _CANDIDATES, DatasetError)
    try:
        found = decode(list[Candidate], given)
    except RecordError as error:
        raise DatasetError(f"{where}: {shortened(str(error))}") from None
    if not found:
        raise DatasetError(f"{where} must hold a list of candidates, at least one.")
    return tuple(dict.fromkeys(found))
