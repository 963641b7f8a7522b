"""The problems as rows of a table, and how a filter query on them can be completed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from diode_app import text
from diode_app.data.pages import Page, PageQuery, Row
from diode_engine.core.candidate import Candidate
from diode_engine.core.problem import Problem
from diode_engine.core.templates import template_of

if TYPE_CHECKING:
    from diode_engine.store import Store
    from diode_engine.store.query import ProblemRow

FASTEST = 8  # of a problem's candidates, in its preview


def dtype(problem: Problem) -> str:
    """As filter queries write it: bf16, fp32, ...; tf32 where TF32 is allowed."""
    return "tf32" if problem.allow_tf32 else problem.dtype.short


def short(candidate: Candidate) -> str:
    """A candidate in about 26 characters: its template's short name and its parameters."""
    name = candidate.template
    return str(candidate).replace(name, template_of(name).short_name, 1)


def key_of(row: ProblemRow) -> str:
    """The key of a row: the problem's content key, and the number of the environment."""
    return f"{row.problem.key}/{row.environment_number}"


def parse_key(key: str) -> tuple[str, int]:
    """The inverse of `key_of`."""
    problem, _, environment = key.partition("/")
    return problem, int(environment)


def problems_page(store: Store, query: PageQuery) -> Page:
    """The problems that the filter matches, sorted by a column of SORTS. Raises QueryError for a
    mistake in the filter."""
    from diode_engine.store.query import count_problems, problems

    found = problems(
        store, query.filter,
        sort=query.sort or "problem",
        descending=query.descending,
        offset=query.page * query.rows,
        limit=query.rows,
    )  # fmt: skip
    rows = tuple(Row(key_of(row), _cells(row), row.to_dict()) for row in found)
    return Page(rows, count_problems(store, query.filter))


def _cells(row: ProblemRow) -> Mapping[str, str]:
    p = row.problem
    return {
        "problem": str(row.number),
        "op": str(p.op),
        "b": str(p.B),
        "m": str(p.M),
        "n": str(p.N),
        "k": str(p.K),
        "dtype": dtype(p),
        "layout": f"{p.a.layout}/{p.b.layout}",
        "align": f"{p.a.align}/{p.b.align}",
        "bias": str(p.bias),
        "best": text.microseconds(row.best_us),
        "aten": text.microseconds(row.aten_us),
        "efficiency": text.ratio(row.efficiency),
        "candidates": f"{row.candidates:,}",
        "failed": f"{row.failed:,}",
        "timings": f"{row.timings:,}",
        "gpu": row.environment.hardware.name,
        "fastest": "" if row.best is None else short(row.best),
    }


@dataclass(frozen=True)
class Preview:
    """A problem's fastest candidates with their times in microseconds; `more` others were timed."""

    row: ProblemRow
    fastest: tuple[tuple[str, float], ...]
    more: int


def preview(store: Store, key: str) -> Preview | None:
    """The preview of the row with this key (see `key_of`); None where there is no such row."""
    from diode_engine.store.query import candidates

    row = row_of(store, *parse_key(key))
    if row is None:
        return None
    found = candidates(store, row.number, row.environment_number, limit=FASTEST)
    timed = [(short(c.candidate), c.time_us) for c in found if c.time_us is not None]
    return Preview(row, tuple(timed), row.candidates - row.failed - len(timed))


def rows_of(store: Store, key: str) -> list[ProblemRow]:
    """The problem in each environment that it was measured in, by its content key."""
    from diode_engine.store.query import problems

    return problems(store, f"key:{key}")


def row_of(store: Store, key: str, environment: int) -> ProblemRow | None:
    found = rows_of(store, key)
    return next((row for row in found if row.environment_number == environment), None)


def suggestions(known: Mapping[str, list[str]]) -> Callable[[str, int], list[str]]:
    """How a query can be completed, for a FilterBox over problems. `known` are the values in the
    store (see `known_values`)."""
    from diode_engine.store.fields import PROBLEMS

    def suggest(query: str, cursor: int) -> list[str]:
        found = PROBLEMS.suggest(query, cursor, known)
        return [query[: found.start] + choice + query[found.end :] for choice in found.choices]

    return suggest


def known_values(store: Store) -> dict[str, list[str]]:
    """The store's values of the fields without choices of their own: GPUs, versions of torch,
    ..."""
    from diode_engine.store import run_query

    return run_query.known_values(store)
