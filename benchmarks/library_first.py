"""What it costs, on products alone, to take a library's kernel before one that is predicted to be
hardly faster, as Diode does where there is nothing to fuse.

    python benchmarks/library_first.py [MODEL]

On the held-out problems of the shipped datasets of directly launched kernels: how many choices the
rule changes, and the speed of its choices beside those of the model's own order (the reference), by
measured times.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

from diode_engine.hardware import H200
from diode_engine.inductor.decision import best
from diode_engine.models.predictor import Predictor
from diode_engine.registry import load_predictor
from diode_engine.store import read_dataset
from diode_engine.validation.splits import split

FOLDER = Path(__file__).parents[1] / "datasets" / "nvidia-h200"


def main() -> None:
    model = Predictor.load(Path(sys.argv[1])) if len(sys.argv) > 1 else load_predictor(H200)
    faster: list[float] = []  # logarithms
    for file in sorted(FOLDER.glob("gemm-direct-*.zst")):
        every = split(read_dataset(file))[1]
        table = every.take(every.failure == 0)
        predicted = model.predict_table(table)
        library = np.array([c.is_extern for c in table.candidates])[table.candidate]
        found = []
        problems = np.unique(table.problem)
        for problem in problems:
            rows = np.flatnonzero((table.problem == problem) & np.isfinite(predicted))
            if not len(rows):
                continue
            own = rows[best(predicted[rows], 1, 1.0)[0]]
            ours = rows[best(predicted[rows], 1, 1.0, library[rows])[0]]
            if ours != own:
                found.append(np.log(table.time_us[own] / table.time_us[ours]))
        print(f"{file.name}: {len(found)} of {len(problems)} choices are others")
        faster += found
    mean, error = np.mean(faster), np.std(faster) / len(faster) ** 0.5
    print(
        f"speed of those {len(faster)} / the model's own: {np.exp(mean):.3f} ± {error:.3f} in the "
        f"geomean, {np.exp(min(faster)):.2f} to {np.exp(max(faster)):.2f}"
    )


if __name__ == "__main__":
    main()
