"""The columns of a table, and which of them there is room for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rich.text import Text


@dataclass(frozen=True)
class TableColumn:
    """`key` is the cell's name in a row and, where `sortable`, what the reader sorts by. `state`
    cells hold a run's state as `text.state` writes it; cells with a `sign` are coloured by it.
    Where there is no room for all columns, those with the highest `rank` are left out first; one of
    rank 0 never is."""

    key: str
    label: str
    sortable: bool = True
    right: bool = False
    state: bool = False
    sign: Callable[[str], Text] | None = None
    rank: int = 0


def fitting(
    columns: Sequence[TableColumn], widths: Sequence[int], room: int
) -> tuple[TableColumn, ...]:
    """The columns that fit, in their order. The one with the highest rank is left out first; of
    several with this rank, the last one."""
    left = list(zip(columns, widths, strict=True))
    while sum(width for _, width in left) > room:
        rank = max(column.rank for column, _ in left)
        if rank == 0:
            break
        del left[max(place for place, (column, _) in enumerate(left) if column.rank == rank)]
    return tuple(column for column, _ in left)


def shared(wanted: Sequence[int], room: int) -> list[int]:
    """The widths of columns that want these widths: all of it, where there is room; else the
    widest ones share what the others leave."""
    given = list(wanted)
    open_places = sorted(range(len(given)), key=lambda place: given[place])
    for done, place in enumerate(open_places):
        fair = max(1, room) // (len(open_places) - done)
        given[place] = max(1, min(given[place], fair))
        room -= given[place]
    return given
