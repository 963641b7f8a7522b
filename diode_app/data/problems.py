"""The problems as rows of a table."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from diode_app.data.pages import Page, PageQuery, Row
from diode_app.data.problem_columns import PROBLEM_COLUMNS, short

if TYPE_CHECKING:
    from diode_engine.store import Store
    from diode_engine.store.query import ProblemRow

FASTEST = 8  # of a problem's candidates, in its preview


def key_of(row: ProblemRow) -> str:
    """Return the key of a row: the problem's content key, and the number of the environment."""
    return f"{row.problem.key}/{row.environment_number}"


def parse_key(key: str) -> tuple[str, int]:
    """Return the inverse of `key_of`."""
    problem, _, environment = key.partition("/")
    return problem, int(environment)


def problems_page(store: Store, query: PageQuery) -> Page:
    """Return the problems that the filter matches, sorted by a column of SORTS. Raises QueryError
    for a mistake in the filter."""
    from diode_engine.store.query import count_problems, problems

    found = problems(
        store, query.filter,
        sort=query.sort or "problem",
        descending=query.descending,
        offset=query.page * query.rows,
        limit=query.rows,
    )  # fmt: skip
    rows = tuple(
        Row(key_of(row), {c.key: c.cell(row) for c in PROBLEM_COLUMNS}, row.to_dict())
        for row in found
    )
    return Page(rows, count_problems(store, query.filter))


@dataclass(frozen=True)
class Preview:
    """A problem's fastest candidates with their times in microseconds; `more` others were timed."""

    row: ProblemRow
    fastest: tuple[tuple[str, float], ...]
    more: int


def preview(store: Store, key: str) -> Preview | None:
    """Return the preview of the row with this key (see `key_of`); None where there is no such
    row."""
    from diode_engine.store.query import candidates

    row = row_of(store, *parse_key(key))
    if row is None:
        return None
    found = candidates(store, row.number, row.environment_number, limit=FASTEST)
    timed = [(short(c.candidate), c.time_us) for c in found if c.time_us is not None]
    return Preview(row, tuple(timed), row.candidates - row.failed - len(timed))


def rows_of(store: Store, key: str) -> list[ProblemRow]:
    """Return the problem in each environment that it was measured in, by its content key."""
    from diode_engine.store.query import problems

    return problems(store, f"key:{key}")


def row_of(store: Store, key: str, environment: int) -> ProblemRow | None:
    found = rows_of(store, key)
    return next((row for row in found if row.environment_number == environment), None)
