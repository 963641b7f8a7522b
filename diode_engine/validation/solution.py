"""A model compared with a solution of max-autotune: a file of kernels that it has found
(docs/formats.md describes it). The solutions that torch-diode writes, {"config": [...]}, are read
too: their configs are for all problems, and fields that follow from a problem (ACC_TYPE, EVEN_K,
...) are ignored.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from diode_engine.core.encoding import encode
from diode_engine.core.operators import OPERATORS
from diode_engine.core.problem import Problem
from diode_engine.core.table import TimingTable
from diode_engine.documents import Limits, read_document, show
from diode_engine.errors import DatasetError, TrainingError
from diode_engine.models.predictor import Predictor
from diode_engine.validation import choosers
from diode_engine.validation.choosers import ScoredChooser
from diode_engine.validation.metrics import Values, efficiencies, geomean
from diode_engine.validation.pool import CandidatePool

# Each config is compared with each candidate and each problem. One config for each of the shipped
# dataset's 8,651 problems is allowed.
_LIMITS = Limits(bytes=16 << 20, containers=1 << 14)
_SIZES = ("M", "N", "K")
_TILE = {"block_m": "block_m", "block_n": "block_n", "block_k": "block_k"}
_REST = {"num_stages": "stages", "num_warps": "warps", "group_m": "group_m"}


@dataclass(frozen=True)
class Config:
    """The kernels that a solution has for some problems. `op` and `sizes` (M, N, K) say for which;
    None: for all. `kernel` has the values that the kernels must have, by the names of the columns
    of core.encoding."""

    op: str | None
    sizes: tuple[int, int, int] | None
    kernel: Mapping[str, int]

    def is_for(self, problem: Problem) -> bool:
        """Whether the kernels are for this problem."""
        sizes = (problem.M, problem.N, problem.K)
        return self.op in (None, str(problem.op)) and self.sizes in (None, sizes)


@dataclass(frozen=True)
class Solution:
    """A file of kernels that max-autotune has found, with its name."""

    name: str
    configs: tuple[Config, ...]


def read_solution(path: str | PathLike[str]) -> Solution:
    """The solution in a file. Raises DatasetError, with the place, where the file cannot be read or
    is no solution."""
    where = Path(path)
    document = read_document(where, _LIMITS, DatasetError)
    if isinstance(document, dict) and "config" in document and "configs" not in document:
        document = {"name": where.stem, "configs": _without_rest(document["config"])}
    if not isinstance(document, dict) or not isinstance(document.get("name"), str):
        raise DatasetError(f"{where} must be an object with a text `name` and a list `configs`.")
    configs = document.get("configs")
    if not isinstance(configs, list) or not configs:
        raise DatasetError(f"{where}: configs must be a list of one config or more.")
    return Solution(
        document["name"],
        tuple(_config(given, f"{where}: configs[{i}]") for i, given in enumerate(configs)),
    )


def _without_rest(configs: Any) -> Any:
    """torch-diode's configs, without the fields that Diode's configs do not have."""
    if not isinstance(configs, list):
        return configs
    kept = (*_TILE, *_REST)
    return [
        {name: each[name] for name in kept if name in each} if isinstance(each, dict) else each
        for each in configs
    ]


def _config(given: Any, place: str) -> Config:
    if not isinstance(given, dict):
        raise DatasetError(f"{place} must be an object.")
    known = {"op", *_SIZES, *_TILE, *_REST}
    if unknown := sorted(map(str, set(given) - known)):
        raise DatasetError(
            f"{place} has {show(unknown[0])}; it may have {', '.join(sorted(known))}."
        )
    if missing := [name for name in _TILE if name not in given]:
        raise DatasetError(f"{place} lacks {', '.join(missing)}.")
    op = given.get("op")
    if op is not None and op not in tuple(OPERATORS):
        raise DatasetError(f"{place}.op is {show(op)}; it must be one of {', '.join(OPERATORS)}.")
    for name, value in given.items():
        if name != "op" and (type(value) is not int or value < 1):
            raise DatasetError(
                f"{place}.{name} is {show(value)}; it must be a whole number from 1."
            )
    sizes = [given[name] for name in _SIZES if name in given]
    if len(sizes) not in (0, 3):
        raise DatasetError(f"{place} must have all of M, N and K, or none of them.")
    kernel = {column: given[name] for name, column in {**_TILE, **_REST}.items() if name in given}
    return Config(op, (sizes[0], sizes[1], sizes[2]) if sizes else None, kernel)


def of_solution(pool: CandidatePool, solution: Solution) -> ScoredChooser:
    """Chooses, among the Triton kernels that the solution has for a problem, the fastest measured
    one."""
    table = pool.table
    columns = encode(table.candidates)
    means = [
        columns.tiled
        & np.all([getattr(columns, name) == size for name, size in config.kernel.items()], axis=0)
        for config in solution.configs
    ]
    score = np.full(len(pool), np.nan)
    for problem, _, rows in pool.cases():
        meant = [m for c, m in zip(solution.configs, means, strict=True) if c.is_for(problem)]
        if meant:
            taken = np.any(meant, axis=0)[table.candidate[rows]]
            score[rows] = np.where(taken, pool.time_us[rows], np.nan)
    return ScoredChooser(solution.name, score)


def against_solution(
    table: TimingTable, judged: Predictor, solution: Solution, *, name: str, ns: Sequence[int]
) -> dict[str, Any]:
    """The best of the model's first n, for each of `ns`, compared with the solution and with the
    best measured kernel, for each op and for `all`. Where none of the solution's sizes is among the
    table's, its kernels are compared on all problems, and `sizes_left_out` says so.

    A group has:

    - `problems`: how many there are;
    - `compared`: on how many the solution's kernels were measured and the model has a prediction;
      all further figures are on these;
    - `efficiency`: of the solution, the geometric mean of the best measured time over its time;
      None where nothing was compared;
    - `top`: for each n, the model's `efficiency`, its `speed` (the geometric mean of the solution's
      time over the model's) and `no_slower` (the share of the problems on which the model's choice
      takes no longer); empty where nothing was compared.

    Raises TrainingError where nothing was compared in any group.
    """
    pool = CandidatePool.make(table)
    timed = {(problem.M, problem.N, problem.K) for problem, _, _ in pool.cases()}
    sizes_left_out = all(c.sizes not in (None, *timed) for c in solution.configs)
    if sizes_left_out:
        for_all = tuple(replace(config, sizes=None) for config in solution.configs)
        solution = replace(solution, configs=for_all)
    theirs = efficiencies(pool, of_solution(pool, solution).score, (1,))[0]
    model, _ = choosers.model(pool, judged, judged.predict_table(pool.table), name)
    ours = efficiencies(pool, model.score, tuple(ns))
    both = ~np.isnan(theirs) & (theirs > 0) & ~np.isnan(ours[0])
    if not both.any():
        raise TrainingError(
            f"None of these problems has timings of the kernels that {solution.name} has for it; "
            "collect them with `collect --candidates`, or name others with --query."
        )
    ops = np.array([str(problem.op) for problem, _, _ in pool.cases()])
    groups = {op: ops == op for op in dict.fromkeys(ops.tolist())}
    return {
        "solution": solution.name,
        "configs": len(solution.configs),
        "sizes_left_out": sizes_left_out,
        "model": name,
        "by_op": {op: _group(theirs, ours, both, rows, ns) for op, rows in groups.items()},
        "all": _group(theirs, ours, both, np.ones(len(ops), np.bool_), ns),
    }


def _group(theirs: Values, ours: Values, both: Any, rows: Any, ns: Sequence[int]) -> dict[str, Any]:
    kept = rows & both
    found: dict[str, Any] = {
        "problems": int(np.count_nonzero(rows)),
        "compared": int(np.count_nonzero(kept)),
        "efficiency": None,
        "top": {},
    }
    if not kept.any():
        return found
    found["efficiency"] = geomean(theirs[kept])
    for n, reached in zip(ns, ours, strict=True):
        ratio = reached[kept] / theirs[kept]
        found["top"][str(n)] = {
            "efficiency": geomean(reached[kept]),
            "speed": geomean(ratio),
            "no_slower": float(np.mean(ratio >= 1)),
        }
    return found
