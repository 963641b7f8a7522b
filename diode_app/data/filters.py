"""The filter queries of the lists: how one can be completed, and what is wrong with one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from diode_engine.errors import QueryError

if TYPE_CHECKING:
    from diode_engine.store.filter import Language


def query_language(place: str) -> Language:
    """Return the language of the filter of runs, or of problems (`data`)."""
    # Before its module, which another thread may be importing as a part of it: Python would give
    # one of the two a module that is not complete.
    import diode_engine.store  # noqa: F401
    from diode_engine.store.fields import PROBLEMS, RUNS

    return RUNS if place == "runs" else PROBLEMS


def suggestions(
    place: str, known: Mapping[str, list[str]] | None = None
) -> Callable[[str, int], list[str]]:
    """Return how a query can be completed, for a FilterBox. `known` are the values in the store
    (see `run_query.known_values`)."""
    language = query_language(place)

    def suggest(query: str, cursor: int) -> list[str]:
        found = language.suggest(query, cursor, known)
        return [query[: found.start] + choice + query[found.end :] for choice in found.choices]

    return suggest


def check_query(place: str, query: str) -> str | None:
    """Return what is wrong with a query, as a sentence; None where nothing is."""
    try:
        query_language(place).parse(query)
    except QueryError as error:
        return str(error)
    return None
