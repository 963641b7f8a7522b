"""What is lost by ranking only the candidates with the least base time.

    python benchmarks/shortlist.py [--dataset FILE] [--problems N]

The base time is the features' own estimate, which needs no model. It takes so many timed problems,
none of them held out, and the whole space that Inductor offers for each. It prints how many of the
problems' fastest timed kernels are among the first 80, 160 and 320 candidates, and the geometric
mean of the best time divided by the best time among those; and the same for as many candidates
drawn at random.
"""

from __future__ import annotations

import argparse
import statistics
from pathlib import Path

import numpy as np

from diode_engine import features
from diode_engine.core.hardware import H200
from diode_engine.core.resources import fits
from diode_engine.models.predictor import SHORTLIST
from diode_engine.problems.exhaustive_space import exhaustive_space
from diode_engine.problems.splits import held_out
from diode_engine.store.datasets.reading import read_dataset

DATASETS = Path(__file__).parents[1] / "datasets/nvidia-h200"
SIZES = (SHORTLIST // 4, SHORTLIST // 2, SHORTLIST)
MIN_TIMED = 10  # candidates of a problem
WORST = 1000.0  # times the best: counted where no timed candidate is left


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--dataset", type=Path, default=max(DATASETS.glob("*direct*")))
    parser.add_argument("--problems", type=int, default=100)
    options = parser.parse_args()
    table = read_dataset(options.dataset)
    torch_version = table.environments[0].torch
    table = table.take(table.failure == 0)
    rng = np.random.default_rng(0)
    found: dict[tuple[str, int], list[float]] = {}
    left = options.problems
    groups = list(table.groups())
    for place_of_group in rng.permutation(len(groups)):
        index, rows = groups[place_of_group]
        problem = table.problems[index]
        if held_out(problem) or len(rows) < MIN_TIMED:
            continue
        space = exhaustive_space(problem, torch_version)
        space = [c for c, ok in zip(space, fits(problem, space, H200), strict=True) if ok]
        if len(space) <= SHORTLIST:
            continue
        base = features.space(problem, space, H200).base
        place = {candidate: n for n, candidate in enumerate(space)}
        timed = {table.candidates[table.candidate[r]]: table.time_us[r] for r in rows}
        timed = {c: us for c, us in timed.items() if c in place}
        best = min(timed.values())
        for name, order in (
            ("base time", base.argsort(kind="stable")),
            ("drawn", rng.permutation(len(space))),
        ):
            rank = np.empty(len(space), int)
            rank[order] = np.arange(len(space))
            for size in SIZES:
                kept = [us for c, us in timed.items() if c.is_extern or rank[place[c]] < size]
                found.setdefault((name, size), []).append(best / min(kept, default=WORST * best))
        left -= 1
        if not left:
            break
    for size in SIZES:
        for name in ("base time", "drawn"):
            kept = found[name, size]
            print(
                f"{size:4d} by {name:9s} {np.mean(np.array(kept) == 1):6.1%} of {len(kept)} have "
                f"the best; geomean {statistics.geometric_mean(kept):.4f}, "
                f"worst {min(kept):.3f}"
            )


if __name__ == "__main__":
    main()
