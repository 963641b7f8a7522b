"""Which kernels run differently when they are compiled for many problems at once.

    python benchmarks/static_and_direct.py [STATIC DIRECT]

It takes each pair of a problem and a candidate that both datasets have (the shipped ones, if none
is named). The static time (compiled for the problem alone, as Inductor does it) is divided by the
direct one, and this ratio by the median of the problem's ratios: 1 means that both ways agree on
the order of the problem's kernels. The pairs are grouped by whether Triton compiles wgmma, whether
the loop is pipelined, and the number of load instructions of a thread for its share of both tiles.
The reference, in the same run, are the kernels with few loads.
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from pathlib import Path

import numpy as np

from diode_engine.core.candidate import Candidate
from diode_engine.core.problem import Problem
from diode_engine.core.resources import uses_wgmma, wgmma_operands
from diode_engine.core.table import TimingTable
from diode_engine.core.templates import template_of
from diode_engine.inductor.lowering.kernel_class import loads_per_thread
from diode_engine.store.datasets.reading import read_dataset

DATASETS = Path(__file__).parents[1] / "datasets/nvidia-h200"
STATIC = "gemm-2026-11-21.msgpack.zst"
LOADS = (4, 8, 16, 24, 1 << 20)
FAR = 1.2  # a pair with a larger ratio of its two times is far apart
SHORT_US = 8.0  # below it a timing is mostly that of the launch


def times(table: TimingTable, wanted: set[Problem]) -> dict[Problem, dict[Candidate, float]]:
    """The microseconds of each tiled kernel, of the problems that are wanted."""
    asked = np.array([problem in wanted for problem in table.problems], np.bool_)
    tiled = np.array([template_of(c.template).tiled for c in table.candidates], np.bool_)
    rows = (table.failure == 0) & asked[table.problem] & tiled[table.candidate]
    part = table.take(rows)
    found: dict[Problem, dict[Candidate, float]] = defaultdict(dict)
    for p, c, us in zip(part.problem, part.candidate, part.time_us, strict=True):
        found[table.problems[p]][table.candidates[c]] = float(us)
    return found


def kind(problem: Problem, candidate: Candidate) -> tuple[str, int]:
    loads = loads_per_thread(problem, candidate)
    most = next(limit for limit in LOADS if loads <= limit)
    if template_of(candidate.template).tma:
        return "TMA", most
    assert candidate.tile is not None
    tile = candidate.tile
    wgmma = uses_wgmma(wgmma_operands(problem), tile["block_m"], tile["warps"])
    staged = "one stage" if tile["stages"] == 1 else "pipelined"
    return f"{'wgmma' if wgmma else 'no wgmma'}, {staged}", most


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("static", type=Path, nargs="?", default=DATASETS / STATIC)
    parser.add_argument("direct", type=Path, nargs="?", default=max(DATASETS.glob("*direct*")))
    options = parser.parse_args()

    tables = read_dataset(options.static), read_dataset(options.direct)
    common = set(tables[0].problems) & set(tables[1].problems)
    static, direct = (times(table, common) for table in tables)
    groups: dict[tuple[str, int], list[float]] = defaultdict(list)
    for problem in static.keys() & direct.keys():
        both = static[problem].keys() & direct[problem].keys()
        ratios = {c: static[problem][c] / direct[problem][c] for c in both}
        median = np.median([*ratios.values()]) if ratios else 1.0
        for candidate, ratio in ratios.items():
            if direct[problem][candidate] > SHORT_US:
                groups[kind(problem, candidate)].append(ratio / median)

    few = np.concatenate([v for (_, most), v in groups.items() if most == LOADS[0]])
    usual = far(few)
    print(f"{'kernels':<22}{'loads':>8}{'pairs':>7}{'2 %':>7}{'98 %':>7}{'far':>8}{'ratio':>7}")
    print(f"{'all with few loads':<22}{f'to {LOADS[0]}':>8}{row(few, usual)}")
    for (name, most), found in sorted(groups.items()):
        upto = f"to {most}" if most < LOADS[-1] else f"over {LOADS[-2]}"
        print(f"{name:<22}{upto:>8}{row(np.array(found), usual)}")


def far(ratios: np.ndarray) -> float:
    """The share of pairs that take FAR times longer in one of the ways."""
    return float(np.mean(np.abs(np.log(ratios)) > np.log(FAR)))


def row(ratios: np.ndarray, usual: float) -> str:
    low, high = np.percentile(ratios, [2, 98])
    share = far(ratios)
    return f"{len(ratios):>7}{low:>7.2f}{high:>7.2f}{share:>8.1%}{share / usual:>6.1f}×"


if __name__ == "__main__":
    main()
