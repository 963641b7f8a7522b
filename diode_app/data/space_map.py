"""The problems counted by their sizes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from diode_engine.store import Store

AXES = ("b", "m", "n", "k")
FEW = 3  # problems in a bin that a model could learn little from


@dataclass(frozen=True)
class SizeMap:
    """``counts[i][j]`` problems have a `down` size in the i-th of `rows` and an `across` size in
    the j-th of `columns`. Each bin is (first, last); the largest `down` sizes come first."""

    across: str
    down: str
    rows: tuple[tuple[int, int], ...]
    columns: tuple[tuple[int, int], ...]
    counts: tuple[tuple[int, ...], ...]

    @property
    def problems(self) -> int:
        return sum(map(sum, self.counts))

    @property
    def thinnest(self) -> tuple[int, int]:
        """The bin with the fewest problems among those with problems on both sides, left and right
        or above and below: a gap in what was measured. Of equal ones, that with the most problems
        around it."""
        inside = [cell for cell in self._cells() if self._between(*cell)]
        return min(
            inside or self._cells(),
            key=lambda cell: (self.counts[cell[0]][cell[1]], -self._around(*cell)),
        )

    @property
    def gaps(self) -> tuple[int, int]:
        """How many of those bins have no problem, and how many have some but fewer than FEW."""
        inside = [self.counts[i][j] for i, j in self._cells() if self._between(i, j)]
        return sum(n == 0 for n in inside), sum(0 < n < FEW for n in inside)

    def query(self, row: int, column: int) -> str:
        """Return the filter query of a bin."""
        return f"{_term(self.down, self.rows[row])} {_term(self.across, self.columns[column])}"

    def _cells(self) -> list[tuple[int, int]]:
        return [(i, j) for i in range(len(self.rows)) for j in range(len(self.columns))]

    def _around(self, i: int, j: int) -> int:
        near = self.counts[max(i - 1, 0) : i + 2]
        return sum(sum(row[max(j - 1, 0) : j + 2]) for row in near)

    def _between(self, i: int, j: int) -> bool:
        across, down = self.counts[i], [row[j] for row in self.counts]
        return (any(across[:j]) and any(across[j + 1 :])) or (any(down[:i]) and any(down[i + 1 :]))


def size_map(store: Store, query: str, across: str, down: str) -> SizeMap:
    """Return the map of the problems that a filter query matches. Raises QueryError for a mistake
    in it."""
    from diode_engine.store.problem_counts import space_map

    found = space_map(store, query, x=across, y=down)
    rows, columns = found.counts.shape
    return SizeMap(
        across,
        down,
        _bins(found.y_first, rows)[::-1],
        _bins(found.x_first, columns),
        tuple(tuple(row) for row in found.counts[::-1].tolist()),
    )


def _bins(first: int, count: int) -> tuple[tuple[int, int], ...]:
    return tuple((2**power, 2 ** (power + 1) - 1) for power in range(first, first + count))


def _term(axis: str, ends: tuple[int, int]) -> str:
    return f"{axis}:{ends[0]}" if ends[0] == ends[1] else f"{axis}:{ends[0]}..{ends[1]}"
