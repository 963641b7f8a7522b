"""The problems as rows of a table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from diode_app import text
from diode_app.data.problem_columns import CANDIDATE, PROBLEM_COLUMNS, short
from diode_app.data.tables import Column, Page, PageQuery, Row, make_cells, make_row
from diode_engine.core.candidate import Candidate
from diode_engine.store import Store
from diode_engine.store.query import ProblemRow, candidates, count_problems, problems

FASTEST = 8  # of a problem's candidates, in its preview


def key_of(row: ProblemRow) -> str:
    """Return the key of a row: the problem's content key, and the number of the environment."""
    return f"{row.problem.key}/{row.environment_number}"


def parse_key(key: str) -> tuple[str, int]:
    """Return the inverse of `key_of`."""
    problem, _, environment = key.partition("/")
    return problem, int(environment)


def problems_page(store: Store, query: PageQuery) -> Page:
    """Return the problems that the filter matches, sorted by one of PROBLEM_COLUMNS. Raises
    QueryError for a mistake in the filter."""
    found = problems(
        store, query.filter,
        sort=query.sort or "problem",
        descending=query.descending,
        offset=query.page * query.rows,
        limit=query.rows,
    )  # fmt: skip
    rows = tuple(Row(key_of(row), make_cells(row, PROBLEM_COLUMNS), row.to_dict()) for row in found)
    return Page(rows, count_problems(store, query.filter))


PREVIEW_COLUMNS = (
    Column("bar", "", "the best time divided by this one", sortable=False),
    Column("efficiency", "eff.", "the best time divided by this one", show=text.ratio, right=True),
    Column("time_us", "µs", "median measured time, in µs", show=text.microseconds, right=True),
    CANDIDATE[2],
)
_BAR = 12


@dataclass(frozen=True)
class Preview:
    """A problem's fastest candidates: rows of a table, and the candidates by the rows' keys."""

    row: ProblemRow
    rows: tuple[Row, ...]
    candidates: Mapping[str, Candidate]


def preview(store: Store, key: str) -> Preview | None:
    """Return the preview of the row with this key (see `key_of`); None where there is no such
    row."""
    row = row_of(store, *parse_key(key))
    if row is None:
        return None
    found = candidates(store, row.number, row.environment_number, limit=FASTEST)
    # With the problem in the key: the same candidate of another problem is another row.
    timed = {f"{key}/{c.candidate.key}": c for c in found if c.time_us is not None}
    rows = []
    for name, c in timed.items():
        efficiency = (row.best_us or 0.0) / (c.time_us or 1.0)
        record = {"efficiency": efficiency, "time_us": c.time_us, "candidate": short(c.candidate)}
        bar = {"bar": text.bar(efficiency, _BAR)}
        rows.append(make_row(name, record, PREVIEW_COLUMNS, bar))
    return Preview(row, tuple(rows), {name: c.candidate for name, c in timed.items()})


def rows_of(store: Store, key: str) -> list[ProblemRow]:
    """Return the problem in each environment that it was measured in, by its content key."""
    return problems(store, f"key:{key}")


def row_of(store: Store, key: str, environment: int) -> ProblemRow | None:
    found = rows_of(store, key)
    return next((row for row in found if row.environment_number == environment), None)
