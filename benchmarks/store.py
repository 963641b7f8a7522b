"""How fast timings go into and out of the store, and what they take on disk.

    python benchmarks/store.py [--timings 1000000]

The times are made up, 1,000 candidates for each problem: only their number and types matter here.
Each figure has a reference in the same run: the same rows through plain sqlite3, with a rowid
table, no constraint and no check, and fetching all rows as Python tuples. The best of three
repetitions is printed, which other work on the machine disturbs less.
"""

from __future__ import annotations

import argparse
import sqlite3
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from diode_engine import features
from diode_engine.core.candidate import Candidate
from diode_engine.core.hardware import H200, Environment
from diode_engine.core.operand import DType
from diode_engine.core.problem import Problem
from diode_engine.core.table import FAILURES, TimingTable
from diode_engine.core.timing import Failure
from diode_engine.store import Store, read_dataset, write_dataset

CANDIDATES = 1000
BATCH = 50  # problems a transaction


def made_up(problems: int) -> TimingTable:
    rng = np.random.default_rng(0)
    n = problems * CANDIDATES
    failed = rng.random(n) < 0.05
    time_us = np.where(failed, np.nan, rng.lognormal(4, 1.5, n))
    dims = 8 * rng.integers(1, 1024, (problems, 3))
    types = [DType.FLOAT16, DType.BFLOAT16, DType.FLOAT32]
    tiles = [
        (m, n, k)
        for m in (16, 32, 64, 128, 256)
        for n in (16, 32, 64, 128, 256)
        for k in (16, 32, 64, 128)
    ]
    knobs = [(*t, stages, warps) for t in tiles for stages in (1, 2, 3, 4, 5) for warps in (4, 8)]
    return TimingTable(
        tuple(Problem.make("mm", *map(int, row), types[i % 3]) for i, row in enumerate(dims)),
        tuple(
            Candidate.make(
                "triton::mm", BLOCK_M=m, BLOCK_N=n, BLOCK_K=k, GROUP_M=8, num_stages=s, num_warps=w
            )
            for m, n, k, s, w in knobs[:CANDIDATES]
        ),
        (Environment(H200, "570.124.06", "2.13.0", "3.7.1"),),
        problem=np.repeat(np.arange(problems, dtype=np.int32), CANDIDATES),
        candidate=np.tile(np.arange(CANDIDATES, dtype=np.int32), problems),
        environment=np.zeros(n, dtype=np.int32),
        min_us=time_us,
        median_us=time_us * 1.01,
        spread_us=time_us * 0.02,
        repeats=np.where(failed, 0, 100).astype(np.int32),
        failure=np.where(failed, FAILURES.index(Failure.TIMEOUT) + 1, 0).astype(np.uint8),
    )


def seconds(work: Callable[[], Any]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def best(work: Callable[[], Any], before: Callable[[], Any] = lambda: None) -> float:
    times = []
    for _ in range(3):
        before()
        times.append(seconds(work))
    return min(times)


def main() -> None:
    parser = argparse.ArgumentParser(description="Measures the store on this machine.")
    parser.add_argument("--timings", type=int, default=1_000_000)
    n = parser.parse_args().timings // CANDIDATES * CANDIDATES
    table = made_up(n // CANDIDATES)
    batches = [
        table.take(np.arange(start, min(start + BATCH * CANDIDATES, n)))
        for start in range(0, n, BATCH * CANDIDATES)
    ]
    with tempfile.TemporaryDirectory() as folder:
        ours, plain = Path(folder, "store.db"), Path(folder, "plain.db")

        def remove(path: Path) -> None:
            for file in path.parent.glob(path.name + "*"):
                file.unlink()

        def ingest() -> None:
            with Store.open(ours) as store:
                run = store.start_run("collect", {})
                for batch in batches:
                    store.add(run, batch)

        def plain_ingest() -> None:
            with closing(sqlite3.connect(plain, isolation_level=None)) as connection:
                connection.execute("PRAGMA journal_mode = WAL")
                connection.execute("PRAGMA synchronous = NORMAL")
                connection.execute(
                    "CREATE TABLE t (p, c, e, min, median, spread, repeats, failure)"
                )
                for b in batches:
                    columns = (
                        b.problem, b.candidate, b.environment, b.min_us, b.median_us, b.spread_us,
                        b.repeats, b.failure,
                    )  # fmt: skip
                    connection.execute("BEGIN IMMEDIATE")
                    connection.executemany(
                        "INSERT INTO t VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                        zip(*(column.tolist() for column in columns), strict=True),
                    )
                    connection.execute("COMMIT")

        into = best(ingest, lambda: remove(ours))
        plain_into = best(plain_ingest, lambda: remove(plain))
        say(
            f"ingest    {n / into:12,.0f} timings/s   {plain_into / into:5.2f} × plain sqlite3 "
            f"({n / plain_into:,.0f}/s)"
        )
        size, plain_size = ours.stat().st_size, plain.stat().st_size
        say(
            f"on disk   {size / n:12.1f} bytes each  {size / plain_size:5.2f} × a plain table "
            f"({plain_size / n:.1f})"
        )
        with (
            Store.open(ours, read_only=True) as store,
            closing(sqlite3.connect(plain)) as connection,
        ):
            out = best(store.read)
            plain_out = best(lambda: connection.execute("SELECT * FROM t ORDER BY p, c").fetchall())
            say(
                f"read      {out:12.3f} s           {plain_out / out:5.2f} × as fast as fetching "
                f"tuples ({plain_out:.3f} s)"
            )

            def to_matrix() -> None:
                t = store.read()
                features.matrix(t.problems, t.candidates, t.problem, t.candidate, H200)

            both = best(to_matrix)
            say(f"to matrix {both:12.3f} s           {both / out:5.2f} × the read alone")
        for suffix in (".msgpack", ".json", ".msgpack.zst", ".json.zst"):
            path = Path(folder, f"timings{suffix}")
            write = seconds(partial(write_dataset, table, path))
            read = seconds(partial(read_dataset, path))
            say(
                f"{suffix:13} write {write:6.2f} s, read {read:5.2f} s "
                f"({out / read:.2f} × the store's speed), {path.stat().st_size / n:5.1f} bytes each"
            )


if __name__ == "__main__":
    main()
