"""How many candidates a collection would time, computed without torch."""

from __future__ import annotations

from dataclasses import dataclass

from diode_engine.core.problem import Problem
from diode_engine.problems.default_space import default_space
from diode_engine.problems.exhaustive_space import exhaustive_counts


@dataclass(frozen=True)
class SpaceSize:
    """How many candidates a problem has: library calls, which need no compile, and kernels."""

    libraries: int
    kernels: int

    @property
    def candidates(self) -> int:
        return self.libraries + self.kernels


def space_size(problem: Problem, torch: str = "", *, default: bool = False) -> SpaceSize:
    """The size of the EXHAUSTIVE space, with persistent TMA, of this problem under a version of
    torch (the newest known one, if empty), or of the `default` one."""
    if not default:
        return SpaceSize(*exhaustive_counts(problem, torch))
    space = default_space(problem, torch)
    libraries = sum(candidate.is_extern for candidate in space)
    return SpaceSize(libraries, len(space) - libraries)
