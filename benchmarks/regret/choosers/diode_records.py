"""The set's problems and candidates as Diode's records; for the choosers that use Diode."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from diode_engine.core.candidate import Candidate
from diode_engine.core.problem import Problem

Row = dict[str, Any]
Choose = Callable[[Row, Sequence[Row]], list[int] | None]
# A chooser on Diode's records: it gives an order of places, empty where it has no answer.
ChooseRecords = Callable[[Problem, list[Candidate]], list[int]]


def of_records(choose: ChooseRecords, name: str) -> Choose:
    """The chooser as the scorer asks it."""
    made: dict[int, tuple[Row, Candidate]] = {}  # by identity: the scorer gives the same rows again

    def candidate(row: Row) -> Candidate:
        if id(row) not in made:
            made[id(row)] = row, Candidate.make(**row)
        return made[id(row)][1]

    def choose_places(problem: Row, candidates: Sequence[Row]) -> list[int] | None:
        return choose(Problem.from_dict(problem), [candidate(row) for row in candidates]) or None

    choose_places.name = name  # type: ignore[attr-defined]
    return choose_places
