"""The problems counted by their sizes."""

from __future__ import annotations

from dataclasses import dataclass

from diode_app.data.tables import Row
from diode_engine.store import Store
from diode_engine.store.problem_counts import space_map

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
    def gaps(self) -> tuple[int, int]:
        """How many of the bins between measured ones, left and right or above and below, have no
        problem, and how many have some but fewer than FEW."""
        inside = [n for i, row in enumerate(self.counts) for j, n in enumerate(row)
                  if self._is_between(i, j)]  # fmt: skip
        return sum(n == 0 for n in inside), sum(0 < n < FEW for n in inside)

    def _is_between(self, i: int, j: int) -> bool:
        across, down = self.counts[i], [row[j] for row in self.counts]
        return (any(across[:j]) and any(across[j + 1 :])) or (any(down[:i]) and any(down[i + 1 :]))

    def table_rows(self) -> tuple[Row, ...]:
        """Return a row for each `down` bin, whose key is the bin's filter query; the columns' keys
        are the first sizes of the `across` bins."""
        found = []
        for (first, last), counts in zip(self.rows, self.counts, strict=True):
            names = [str(least) for least, _ in self.columns]
            record = {"size": first, **dict(zip(names, counts, strict=True))}
            cells = {name: short_count(n) for name, n in record.items() if name != "size"}
            term = f"{self.down}:{first}" if first == last else f"{self.down}:{first}..{last}"
            found.append(Row(term, {"size": short_size(first), **cells}, record))
        return tuple(found)


def size_map(store: Store, query: str, across: str, down: str) -> SizeMap:
    """Return the map of the problems that a filter query matches. Raises QueryError for a mistake
    in it."""
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


def short_size(number: int) -> str:
    """Return a power of two in at most four characters: 64, 2k, 1M."""
    for unit, size in (("G", 2**30), ("M", 2**20), ("k", 2**10)):
        if number >= size:
            return f"{number // size}{unit}"
    return str(number)


def short_count(count: int) -> str:
    """Return a count in at most four characters: 998, 1.2k, 35k, 2.1M; a dot for none."""
    for size, unit in ((1_000_000, "M"), (1_000, "k")):
        if count >= size:
            value = count / size
            return f"{value:.1f}{unit}" if value < 9.95 else f"{value:.0f}{unit}"
    return str(count or "·")
