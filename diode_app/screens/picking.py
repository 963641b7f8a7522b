"""Picking a problem of a captured program."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path

from diode_app.data.columns import Column
from diode_app.data.shapesets import read_captured
from diode_app.data.threads import in_thread
from diode_app.screens.base import DiodeScreen
from diode_app.widgets.pick_row import PickRow
from diode_app.widgets.table import MemoryTable
from diode_engine.core.problem import Problem

Picking = Callable[[], Awaitable[Problem | None]]

_CAPTURED = (
    Column("op", "op"),
    *(Column(name, name, right=True) for name in ("M", "N", "K", "B")),
    Column("dtype", "dtype"),
    Column("a_layout", "A"),
    Column("b_layout", "B"),
    Column("bias", "bias"),
)


async def pick_from_shapeset(screen: DiodeScreen, path: Path) -> Problem | None:
    """Return a problem of a shapeset; None where the person leaves. Raises DatasetError."""
    found = await in_thread(partial(read_captured, path.expanduser()), "shapeset")
    table = MemoryTable(screen.session, _CAPTURED, what="problems")
    table.show_rows(found.rows)
    key = await screen.app.push_screen_wait(
        PickRow(f"Which problem of {path.name}? Enter takes it.", table)
    )
    return None if key is None else found.problems[int(key)]
