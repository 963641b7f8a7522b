"""How long the dashboard's questions to a store of millions of timings take.

    python benchmarks/store_queries.py [--timings 5000000] [--keep FILE|URL]

The store is made of the shipped H200 timings, repeated with altered sizes. Each figure is the
median of five, beside a plain lookup by an index (one problem by its key) on the same store, and
beside the 100 ms that a dashboard may take. `--keep` leaves the store in a file, or takes it from
there if it exists, or from a server.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from diode_engine import paths, runs
from diode_engine.core.table import TimingTable
from diode_engine.location import location_of
from diode_engine.store import Store, problem_counts, query, read_dataset, run_query, schema

LIMIT_MS = 100.0


def altered(table: TimingTable, by: int) -> TimingTable:
    """The same timings on problems of other sizes."""
    problems = tuple(replace(p, M=p.M + 8 * by, K=p.K + 8 * by) for p in table.problems)
    return replace(table, problems=problems)


def fill(path: Path | str, timings: int) -> None:
    (shipped,) = (paths.shipped_dir() / "datasets/nvidia-h200").glob("*.msgpack.zst")
    table = read_dataset(shipped)
    start = time.perf_counter()
    with Store.open(path) as store:
        for i in range(-(-timings // len(table))):
            run = store.start_run("collect", {"problems": len(table.problems), "part": i})
            store.add(run, altered(table, i))
            store.finish_run(run, "done")
        count = store.stats().timings
    say(f"{count:,} timings written, {count / (time.perf_counter() - start):,.0f} a second\n")


def milliseconds(work: Callable[[], Any]) -> float:
    taken = []
    for _ in range(5):
        start = time.perf_counter()
        work()
        taken.append(1000 * (time.perf_counter() - start))
    return statistics.median(taken)


def say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def main() -> None:
    parser = argparse.ArgumentParser(description="Measures the store's queries on this machine.")
    parser.add_argument("--timings", type=int, default=5_000_000)
    parser.add_argument("--keep", type=location_of, metavar="FILE|URL")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = given.keep or Path(folder, "store.db")
        if isinstance(path, Path) and not path.exists():
            fill(path, given.timings)
        with Store.open(path, read_only=True) as store:
            measure(store)


def measure(store: Store) -> None:
    rows = query.count_problems(store)
    (some,) = query.problems(store, offset=rows // 2, limit=1)
    p = schema.problems
    by_key = sa.select(p).where(p.c.key == some.problem.key)

    def lookup() -> None:
        with store.reads() as connection:
            connection.execute(by_key).one()

    plain = milliseconds(lookup)
    say(f"{'one problem by its key':55}{plain:8.2f} ms")
    filtered = "op:mm,addmm dtype:bf16 m>=64 k%8=0"
    for name, work in {
        "problems, first page": lambda: query.problems(store),
        "problems, middle page": lambda: query.problems(store, offset=rows // 2),
        "problems, last page": lambda: query.problems(store, offset=rows - 500),
        **{
            f"problems by {sort}, first page": lambda sort=sort: query.problems(store, sort=sort)
            for sort in query.SORTS
        },
        "problems by efficiency, last page": lambda: query.problems(
            store, sort="efficiency", offset=rows - 500
        ),
        f"{filtered}, by efficiency": lambda: query.problems(store, filtered, sort="efficiency"),
        "model:llama-7b gpu:h200": lambda: query.problems(store, "model:llama-7b gpu:h200"),
        "count of all": lambda: query.count_problems(store),
        f"count of {filtered}": lambda: query.count_problems(store, filtered),
        "count of efficiency<0.8 gpu:h200": lambda: query.count_problems(
            store, "efficiency<0.8 gpu:h200"
        ),
        "count of model:llama": lambda: query.count_problems(store, "model:llama"),
        "a problem's candidates": lambda: query.candidates(
            store, some.number, some.environment_number
        ),
        "map of M and N": lambda: problem_counts.space_map(store),
        f"map of M and K, {filtered}": lambda: problem_counts.space_map(store, filtered, x="k"),
        "statistics by GPU, op and dtype": lambda: problem_counts.statistics(store),
        "stats": store.stats,
        "runs": lambda: runs.find(store),
        "runs with problems>100 gpu:h200": lambda: runs.find(store, "problems>100 gpu:h200"),
        "what a run holds": lambda: run_query.run_contents(store, 1),
        "values for completions": lambda: run_query.known_values(store),
    }.items():
        taken = milliseconds(work)
        verdict = "" if taken <= LIMIT_MS else "  TOO SLOW"
        say(
            f"{name:55}{taken:8.2f} ms {taken / plain:8.1f} × the lookup "
            f"{taken / LIMIT_MS:6.2f} of the limit{verdict}"
        )


if __name__ == "__main__":
    main()
