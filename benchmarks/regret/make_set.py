"""Makes the public set out of the shipped datasets; needs Diode.

    python benchmarks/regret/make_set.py

Of datasets of directly launched kernels it takes the problems whose sizes training holds out
(`diode_engine/problems/splits.py`), and of the harvest's also those of held-out families of
models, with all candidates that have a time. README.md describes the file.
"""

from __future__ import annotations

import json
import lzma
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from diode_engine.choosing.policy import plain_library_call
from diode_engine.core.candidate import Candidate
from diode_engine.core.problem import Problem
from diode_engine.core.table import TimingTable
from diode_engine.problems.default_space import default_space
from diode_engine.problems.harvested import families_of, held_out_family
from diode_engine.problems.splits import held_out
from diode_engine.store import read_dataset
from diode_engine.validation.choosers import kernel_keys
from diode_engine.validation.pool import CandidatePool

DATASETS = Path(__file__).parents[2] / "datasets" / "nvidia-h200"
DIRECT = (
    "gemm-direct-2026-11-21.packed.zst",
    "gemm-direct-bf16-2026-11-21.packed.zst",
    "gemm-direct-2026-11-22.packed.zst",
)
HARVEST = "harvest-2026-11-22.packed.zst"
SET = Path(__file__).parent / "h200-2026-11-22.jsonl.xz"
MIN_CANDIDATES = 10
DIGITS = 4  # of a time; two runs differ by a percent


def problems_of(table: TimingTable) -> Iterator[tuple[Problem, TimingTable]]:
    """Each problem of the table with those of its candidates that have a time, each once."""
    pool = CandidatePool.of(table)
    for problem, _, rows in pool.cases():
        of_problem = pool.table.take(np.arange(rows.start, rows.stop))
        yield problem, of_problem.take(of_problem.failure == 0)


def splits_of(problem: Problem, dataset: str) -> list[str]:
    """In which held-out parts the problem is."""
    return [
        name
        for name, out in (
            ("sizes", held_out(problem)),
            ("families", dataset == HARVEST and held_out_family(problem)),
        )
        if out
    ]


def row(problem: Problem, table: TimingTable, splits: list[str], dataset: str) -> dict[str, Any]:
    """The problem's line, but for the numbers of its candidates."""
    candidates = [table.candidates[i] for i in table.candidate]
    library, us = np.flatnonzero(plain_library_call(candidates)), table.time_us
    offered = set(kernel_keys(default_space(problem, table.environments[0].torch)))
    return {
        "id": problem.key[:12],
        "splits": splits,
        "families": sorted(families_of(problem)) if "families" in splits else [],
        "dataset": dataset,
        "problem": problem.to_dict(),
        "library": int(library[us[library].argmin()]),
        "default": [i for i, key in enumerate(kernel_keys(candidates)) if key in offered],
        "candidates": candidates,
        "us": [float(f"{t:.{DIGITS}g}") for t in us],
    }


def rows() -> Iterator[dict[str, Any]]:
    """One for each problem: of a problem that several datasets have, the one with the most
    candidates. Problems of which no library's kernel was timed are left out, and, of a held-out
    family, those of sizes that another dataset has on the side to learn from."""
    found: dict[Problem, dict[str, Any]] = {}
    learned = set()
    for dataset in (*DIRECT, HARVEST):
        for problem, table in problems_of(read_dataset(DATASETS / dataset)):
            sizes = (problem.B, problem.M, problem.N, problem.K)
            splits = splits_of(problem, dataset)
            if not splits:
                learned.add(sizes)
            if not splits or ("sizes" not in splits and sizes in learned):
                continue
            candidates = [table.candidates[i] for i in table.candidate]
            if len(candidates) < MIN_CANDIDATES or not plain_library_call(candidates).any():
                continue
            before = found.get(problem)
            if before is None or len(before["us"]) < len(candidates):
                found[problem] = row(problem, table, splits, dataset)
    yield from sorted(found.values(), key=lambda r: r["id"])


def flat(candidate: Candidate) -> dict[str, Any]:
    return {"template": candidate.template, **dict(candidate.kwargs)}


def main() -> None:
    lines = list(rows())
    candidates: dict[Candidate, int] = {}
    for line in lines:
        line["candidates"] = [candidates.setdefault(c, len(candidates)) for c in line["candidates"]]
    environment = read_dataset(DATASETS / HARVEST).environments[0]
    head = {
        "format": "diode-regret",
        "version": 1,
        "gpu": environment.hardware.to_dict(),
        "driver": environment.driver,
        "torch": environment.torch,
        "triton": environment.triton,
        "candidates": [flat(candidate) for candidate in candidates],
    }
    text = "\n".join(json.dumps(line, separators=(",", ":")) for line in (head, *lines)) + "\n"
    SET.write_bytes(lzma.compress(text.encode()))
    print(
        f"{len(lines)} problems, {sum(len(r['us']) for r in lines)} times, "
        f"{len(candidates)} candidates, {SET.stat().st_size} bytes"
    )


if __name__ == "__main__":
    main()
