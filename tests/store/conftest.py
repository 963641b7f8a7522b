from __future__ import annotations

import runpy
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from diode_engine.core.candidate import Candidate
from diode_engine.core.hardware import H200, Environment
from diode_engine.core.problem import Problem
from diode_engine.core.table import FAILURES, TimingTable
from diode_engine.core.timing import Failure, Timing
from diode_engine.store import Store, migrations
from tests.samples import timing_at

ENVIRONMENT = Environment(H200, "570.1", "2.13.0", "3.7.1")
ELSEWHERE = Environment(replace(H200, name="Other"), "", "2.11.0", "")
# What somebody else may write: little, by hand, of kernels that Diode has never heard of.
FOREIGN: dict[str, Any] = {
    "format": "diode-dataset",
    "version": 1,
    "environments": [{"hardware": "NVIDIA H200"}, {"hardware": H200.to_dict(), "torch": "2.11.0"}],
    "problems": [
        {"op": "mm", "M": 128, "N": 256, "K": 512, "dtype": "float16"},
        {"op": "baddbmm", "B": 4, "M": 1, "N": 7, "K": 33, "dtype": "float32", "b_layout": "col"},
    ],
    "candidates": [
        {"template": "cutlass::gemm", "kwargs": {"stages": 3, "swizzle": None, "alpha": 0.5}},
        {"template": "aten::mm"},
    ],
    "timings": [
        {"problem": 1, "environment": 1, "candidate": [1, 0], "median_us": [10, 12.5]},
        {
            "problem": 0,
            "environment": 0,
            "candidate": [0, 1, 1],
            "min_us": [7.25, None, 7],
            "spread_us": [0, None, None],
            "repeats": [5, None, 100],
            "failure": [None, "timeout", None],
        },
    ],
}


def make_table(problems: int = 3, candidates: int = 5, *, first: int = 0) -> TimingTable:
    """Every candidate on every problem; one in seven failed, one in five has no spread.
    `first` numbers the first problem, so that tables can differ in their problems."""
    n = problems * candidates
    rows = np.arange(n)
    failed = rows % 7 == 3
    time = np.where(failed, np.nan, np.random.default_rng(first).lognormal(3, 1, n))
    return TimingTable(
        tuple(Problem.make("mm", first + i + 1, 64, 96, "bfloat16") for i in range(problems)),
        tuple(
            Candidate.make("triton::mm", BLOCK_M=16 << i % 4, num_warps=i, ratio=0.1)
            for i in range(candidates)
        ),
        (ENVIRONMENT,),
        problem=np.repeat(np.arange(problems, dtype=np.int32), candidates),
        candidate=np.tile(np.arange(candidates, dtype=np.int32), problems),
        environment=np.zeros(n, dtype=np.int32),
        min_us=time,
        median_us=time * 1.01,
        spread_us=np.where(failed | (rows % 5 == 0), np.nan, 0.1 * time),
        repeats=np.where(failed, 0, 30).astype(np.int32),
        failure=np.where(failed, FAILURES.index(Failure.TIMEOUT) + 1, 0).astype(np.uint8),
    )


_PROBLEM, _CANDIDATE = Problem.make("mm", 8, 8, 8, "float16"), Candidate.make("aten::mm")


def one_product(
    *timings: Timing,
    problem: Problem = _PROBLEM,
    candidate: Candidate = _CANDIDATE,
    environment: Environment = ENVIRONMENT,
) -> TimingTable:
    """Timings of one candidate on one problem."""
    return TimingTable.from_records((problem, candidate, environment, each) for each in timings)


def as_rows(table: TimingTable) -> list[tuple[object, ...]]:
    """The rows with their records' keys in place of indices; equal exactly or not at all."""
    return [
        (
            table.problems[table.problem[i]].key,
            table.candidates[table.candidate[i]].key,
            table.environments[table.environment[i]].key,
            timing_at(table, i),
        )
        for i in range(len(table))
    ]


def load_migration(name: str) -> SimpleNamespace:
    """What the module of a migration defines."""
    return SimpleNamespace(
        **runpy.run_path(str(migrations.migrations_folder() / "versions" / f"{name}.py"))
    )


@pytest.fixture
def store(place: str | Path) -> Iterator[Store]:
    """An empty store, of both kinds."""
    with Store.open(place) as opened:
        yield opened
