"""A benchmark of two checkouts side by side: whether a change has made something slower.

    git worktree add --detach OTHER COMMIT
    python benchmarks/beside.py OTHER hook.py trained_models/nvidia-h200/gemm/17

Each checkout has the script. The other checkout's and this one's run in turn, ROUNDS times each.
Time is processor time (user and system, of all threads), which other work on the machine changes
less. For each figure it prints the best of the rounds, and the ratio of this checkout to the other:
below 1, this one is faster. It is for hook.py, predict.py and store.py, whose figures are times or
timings a second.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROUNDS = 4
HERE = Path(__file__).parents[1]
# Python imports this module at its start, in the benchmark's child processes too.
CLOCK = "import time\ntime.perf_counter = time.process_time\n"
FIGURE = re.compile(r"^ *(?P<what>\S.*?) {2,}(?P<value>[\d,]+(\.\d+)?) (?P<unit>ms|s|timings/s)\b")


def figures(checkout: Path, words: list[str], clock: str) -> dict[tuple[str, str], float]:
    """The figures that one run of the script prints, by name and unit."""
    path = os.pathsep.join((clock, str(checkout)))
    ran = subprocess.run(
        [sys.executable, checkout / "benchmarks" / words[0], *words[1:]],
        env={**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE, text=True, check=True,
    )  # fmt: skip
    found = filter(None, map(FIGURE.match, ran.stdout.splitlines()))
    return {(m["what"], m["unit"]): float(m["value"].replace(",", "")) for m in found}


def main() -> None:
    other, words = Path(sys.argv[1]).resolve(), sys.argv[2:]
    words[1:] = [str(Path(word).resolve()) if Path(word).exists() else word for word in words[1:]]
    runs: dict[Path, list[dict[tuple[str, str], float]]] = {other: [], HERE: []}
    with tempfile.TemporaryDirectory() as clock:
        Path(clock, "sitecustomize.py").write_text(CLOCK)
        for _ in range(ROUNDS):
            for checkout, done in runs.items():
                done.append(figures(checkout, words, clock))
    print(f"{'':46s}{'other':>12s}{'this':>12s}{'ratio':>8s}")
    for what, unit in runs[HERE][0]:
        if (what, unit) not in runs[other][0]:
            continue
        more_is_better = unit.endswith("/s")
        best = max if more_is_better else min
        theirs, ours = (best(run[what, unit] for run in done) for done in runs.values())
        ratio = theirs / ours if more_is_better else ours / theirs
        print(f"{what:46s}{theirs:12,.3f}{ours:12,.3f}{ratio:8.2f}  {unit}")


if __name__ == "__main__":
    main()
