"""How good a choice can look: two timings of one kernel differ, so the kernel that an exhaustive
search finds fastest is not the fastest when all are timed again.

    python benchmarks/searched_again.py [MODEL …]

43 problems with some 400 candidates each were timed in three runs (the first whole, the others the
kernels within 15 % of the best, the library's and `gemm@10`'s choices). For each pair of runs it
prints the efficiency of the search's choice: the kernel that was fastest in the one run, by the
times of the other. That is the reference. Beside it are the choices of the models (default: those
that ship), by their own order and as a compile takes them, by the times of each run. A choice that
was not timed in every run is left out, and counted.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from itertools import permutations
from pathlib import Path

import numpy as np

from diode_engine.core.candidate import Candidate
from diode_engine.core.problem import Problem
from diode_engine.models.predictor import Predictor
from diode_engine.models.preference import taken
from diode_engine.store import read_dataset

ROOT = Path(__file__).parents[1]
FILES = ("judged-2026-11-23", "judged-again-1-2026-11-24", "judged-again-2-2026-11-24")
MODELS = [ROOT / "trained_models" / "nvidia-h200" / "gemm" / version for version in ("10", "11")]
KINDS: dict[str, Callable[[Problem], bool]] = {
    "all": lambda problem: True,
    "M up to 16": lambda problem: problem.M <= 16,
    "in batches": lambda problem: problem.op.batched,
}

Times = dict[Problem, dict[Candidate, float]]


def times_of(name: str) -> Times:
    """The microseconds of each problem's candidates."""
    table = read_dataset(ROOT / "datasets" / "nvidia-h200" / f"{name}.packed.zst")
    table = table.take(table.failure == 0)
    found: Times = {}
    for problem, candidate, us in zip(table.problem, table.candidate, table.time_us, strict=True):
        found.setdefault(table.problems[problem], {})[table.candidates[candidate]] = float(us)
    return found


def geomean(efficiencies: list[float]) -> str:
    return f"{np.exp(np.log(efficiencies).mean()):.3f}" if efficiencies else "-"


def main() -> None:
    runs = [times_of(name) for name in FILES]
    models = {
        f"{path.parent.name}@{path.name}": Predictor.load(path)
        for path in ([Path(given) for given in sys.argv[1:]] or MODELS)
    }
    for kind, belongs in KINDS.items():
        problems = [p for p in runs[0] if belongs(p) and all(p in run for run in runs)]
        timed = {p: [c for c in runs[0][p] if all(c in run[p] for run in runs)] for p in problems}
        best = [{p: min(run[p][c] for c in timed[p]) for p in problems} for run in runs]
        print(f"{kind}: {len(problems)} problems")
        for searched, judged in permutations(range(len(runs)), 2):
            found = [
                best[judged][p] / runs[judged][p][min(timed[p], key=runs[searched][p].__getitem__)]
                for p in problems
            ]
            print(f"  search of run {searched + 1}, by the times of run {judged + 1}: "
                  f"{geomean(found)}, worst {min(found):.3f}")  # fmt: skip
        for name, model in models.items():
            chosen: dict[str, dict[Problem, Candidate]] = {"its own order": {}, "as a compile": {}}
            for problem in problems:
                candidates = list(runs[0][problem])
                ranking = model.rank(problem, candidates)
                chosen["its own order"][problem] = candidates[ranking.order[0]]
                chosen["as a compile"][problem] = candidates[taken(problem, candidates, ranking)[0]]
            for how, choices in chosen.items():
                known = [p for p in problems if choices[p] in timed[p]]
                each = [
                    geomean([best[i][p] / run[p][choices[p]] for p in known])
                    for i, run in enumerate(runs)
                ]
                left = f" (without {len(problems) - len(known)})" if known != problems else ""
                print(f"  {name}, {how}, by the times of each run: {', '.join(each)}{left}")


if __name__ == "__main__":
    main()
