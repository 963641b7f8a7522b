"""A store of tens of millions of timings on a PostgreSQL server, made by repeating measured rows.

    python benchmarks/repeated_store.py URL [--timings 50000000]

The database at URL must be empty. It gets the shipped timings of all GPUs, as hundreds of runs of
several people on several machines. The server then copies them onto problems of other sizes, as
further runs, until there are as many. Each run's note says that it is a repetition of measured
rows: these are no measurements of the problems that they stand at. What it is for is to measure
the dashboard and its queries:

    python benchmarks/store_queries.py --keep URL
    python benchmarks/dashboard.py --keep URL
"""

from __future__ import annotations

import argparse
import sys
import time
from dataclasses import replace
from typing import Any

import numpy as np
import sqlalchemy as sa
from store_queries import say

from diode_engine import paths
from diode_engine.core.problem import Problem
from diode_engine.store import Store, read_dataset, schema
from diode_engine.store.records import columns_of, problem_of

ROWS_A_RUN = 100_000
PEOPLE = ("ann", "bob", "chen", "dora", "emil", "fatima", "goran")
STEP = 128  # of M and K from one repetition to the next
NOTE = "made by repeating measured rows"
# What a repetition copies inside the server. Each of these columns is a reference: it is increased
# by the number of rows that the first part has in the table that it refers to.
_MOVED = {
    "sweeps": ("id", "problem", "run"),
    "timings": ("sweep",),
    "kernels": ("sweep",),
    "summaries": ("problem",),
    "tallies": ("run",),
}
_REFERS = {"id": "sweeps", "sweep": "sweeps", "problem": "problems", "run": "runs"}


def measured(store: Store) -> None:
    """Writes the shipped timings, in runs of at most ROWS_A_RUN."""
    for file in sorted((paths.shipped_dir() / "datasets").glob("*/*.zst")):
        table = read_dataset(file)
        for start in range(0, len(table), ROWS_A_RUN):
            part = table.take(np.arange(start, min(start + ROWS_A_RUN, len(table))))
            run = store.start_run("collect", {"dataset": file.name})
            store.add(run, part)
            store.finish_run(run, "done")


def others(connection: sa.Connection, problems: list[Problem], by: int, taken: set[str]) -> None:
    """Writes the problems of a repetition, which have other sizes than all there are."""
    rows: list[dict[str, Any]] = []
    for number, problem in enumerate(problems, 1 + by * len(problems)):
        step = by
        while (made := _larger(problem, step)).key in taken:
            step += 1000
        taken.add(made.key)
        rows.append({"id": number, "key": made.key, **columns_of(made)})
    connection.execute(sa.insert(schema.problems), rows)


def _larger(problem: Problem, step: int) -> Problem:
    return replace(problem, M=problem.M + STEP * step, K=problem.K + STEP * step)


def repetition(connection: sa.Connection, by: int, size: dict[str, int]) -> None:
    """Copies the first part, of so many problems, runs and sweeps, once more."""
    r = schema.runs
    columns = ", ".join(f'"{c.name}"' for c in r.columns if c.name not in ("id", "key"))
    connection.exec_driver_sql(
        f"INSERT INTO runs (id, {columns}) SELECT id + {by * size['runs']}, {columns} FROM runs"
        f" WHERE id <= {size['runs']}"
    )
    for name, moved in _MOVED.items():
        table = schema.metadata.tables[name]
        names = [f'"{column.name}"' for column in table.columns]
        values = [
            f'"{c.name}" + {by * size[_REFERS[c.name]]}' if c.name in moved else f'"{c.name}"'
            for c in table.columns
        ]
        first = _REFERS[moved[0]]
        order = ", ".join(f'"{column.name}"' for column in table.primary_key)
        connection.exec_driver_sql(
            f"INSERT INTO {name} ({', '.join(names)}) SELECT {', '.join(values)} FROM {name}"
            f' WHERE "{moved[0]}" <= {size[first]} ORDER BY {order}'
        )


def fill(url: str, timings: int) -> None:
    began = time.perf_counter()
    with Store.open(url) as store:
        measured(store)
        stats = store.stats()
        with store.reads() as connection:
            rows = connection.execute(sa.select(schema.problems).order_by(schema.problems.c.id))
            problems = [problem_of(row) for row in rows]
            count = sa.select(sa.func.count()).select_from
            size = {
                name: int(connection.scalar(count(schema.metadata.tables[name])) or 0)
                for name in ("problems", "runs", "sweeps")
            }
        say(f"{stats.timings:,} measured timings, {time.perf_counter() - began:.0f} s")
        taken = {problem.key for problem in problems}
        for by in range(1, -(-timings // stats.timings)):
            with store.writes(in_turn=True) as connection:
                others(connection, problems, by, taken)
                repetition(connection, by, size)
            say(f"{(by + 1) * stats.timings:,}, {time.perf_counter() - began:.0f} s")
        with store.writes(in_turn=True) as connection:
            named(connection)
            for name in ("problems", "runs", "sweeps"):
                connection.exec_driver_sql(
                    f"SELECT setval(pg_get_serial_sequence('{name}', 'id'), max(id)) FROM {name}"
                )
        say(f"{store.stats().timings:,} timings, {NOTE}")


def named(connection: sa.Connection) -> None:
    """Says of each run that it is made up, and who started it and where."""
    people = ", ".join(f"'{name}'" for name in PEOPLE)
    earlier = "3600 * (SELECT max(id) FROM runs) + 3600 * id"
    connection.exec_driver_sql(
        f"UPDATE runs SET note = '{NOTE}',"
        f' "user" = (ARRAY[{people}])[1 + mod(id, {len(PEOPLE)})],'
        " host = 'gpu-' || lpad((1 + mod(id, 12))::text, 2, '0'),"
        f" started = started - {earlier}, finished = finished - {earlier}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])  # type: ignore[union-attr]
    parser.add_argument("url")
    parser.add_argument("--timings", type=int, default=50_000_000)
    given = parser.parse_args()
    fill(given.url, given.timings)


if __name__ == "__main__" and len(sys.argv) > 1:  # `make bench` runs all scripts here
    main()
