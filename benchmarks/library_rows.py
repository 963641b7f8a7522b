"""Rows of `library_algorithms.py`: the values of an algorithm, and which results are right."""

from __future__ import annotations

from processes import Row

from diode_engine.core.problem import Problem
from diode_engine.models.library_algorithms import Config

# Of an algorithm in a row. Before 29 November 2026 `us` was the mean of six launches behind a
# kernel that waits. The rows of 24 November have two more times at the end, and in `aligned` the
# tensors whose strides were rounded up.
COLUMNS = (
    "aligned", "origin", *Config._fields, "workspace", "waves", "error", "us",
)  # fmt: skip


def right_algorithms(row: Row) -> list[Row]:
    """The algorithms of a row whose results are right, by COLUMNS, each with its place in the row;
    the first of a row are those that the heuristic lists, in its order. All have the product's own
    strides."""
    every = [dict(zip(COLUMNS, each, strict=False)) for each in row["algorithms"]]
    limit = 2 * row["error_of_torch"] + 1e-6
    return [
        each | {"place": i}
        for i, each in enumerate(every)
        if each["error"] <= limit and not each["aligned"]
    ]


def config_of(algorithm: Row) -> Config:
    """The config of an algorithm of `right_algorithms`."""
    return Config(*(algorithm[name] for name in Config._fields))


def line(row: Row) -> str:
    """One row as a line of text: torch's call, and the speed of the fastest algorithm over it."""
    name = f"{row['source']:10s} {Problem.from_dict(row['problem'])!s:56s}"
    if row["error"]:
        return f"{name} failed: {row['error'].splitlines()[0][:120]}"
    torch = min(row["us"]["torch"])
    best = min((each["us"] for each in right_algorithms(row)), default=torch)
    count = len(row["algorithms"])
    return f"{name} torch {torch:8.1f} µs  the best of {count} {torch / best:.3f}"
