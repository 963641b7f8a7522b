"""Picking a problem, of the store or of a captured program."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path

from diode_app.data.columns import Column, pick
from diode_app.data.filters import suggestions
from diode_app.data.problem_columns import PROBLEM_COLUMNS
from diode_app.data.problems import (
    parse_key,
    problems_page,
    row_of,
)
from diode_app.data.shapesets import read_captured
from diode_app.data.threads import in_thread
from diode_app.screens.base import DiodeScreen
from diode_app.widgets.pick_row import PickRow
from diode_app.widgets.table import MemoryTable, PagedTable
from diode_engine.core.problem import Problem

Picking = Callable[[], Awaitable[Problem | None]]

_STORED = pick(PROBLEM_COLUMNS, ("problem", "op", "m", "n", "k", "b", "dtype", "layout", "best"))
_CAPTURED = (
    Column("op", "op"),
    *(Column(name, name, right=True) for name in ("M", "N", "K", "B")),
    Column("dtype", "dtype"),
    Column("a_layout", "A"),
    Column("b_layout", "B"),
    Column("bias", "bias"),
)


async def pick_from_store(screen: DiodeScreen) -> Problem | None:
    """Return a problem of the store; None where the person leaves. Raises StoreError."""
    from diode_engine.store.run_query import known_values

    access = screen.session.store
    known = await access.read(known_values)
    table = PagedTable(
        screen.session, _STORED, problems_page, what="problems", sort="problem",
        filter_hint="op:mm dtype:bf16 m<=64 k%8!=0", suggest=suggestions("data", known),
    )  # fmt: skip
    key = await screen.app.push_screen_wait(
        PickRow("Which problem of the store? Enter takes it.", table)
    )
    if key is None:
        return None
    row = await access.read(lambda store: row_of(store, *parse_key(key)))
    return None if row is None else row.problem


async def pick_from_shapeset(screen: DiodeScreen, path: Path) -> Problem | None:
    """Return a problem of a shapeset; None where the person leaves. Raises DatasetError."""
    found = await in_thread(partial(read_captured, path.expanduser()), "shapeset")
    table = MemoryTable(screen.session, _CAPTURED, what="problems")
    table.show_rows(found.rows)
    key = await screen.app.push_screen_wait(
        PickRow(f"Which problem of {path.name}? Enter takes it.", table)
    )
    return None if key is None else found.problems[int(key)]
