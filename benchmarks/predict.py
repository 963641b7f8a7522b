"""How long it takes to load a model, and to rank the whole candidate space of a problem that was
never asked about; and to choose among cuBLASLt's algorithms by the trees that ship for an H100.

    python benchmarks/predict.py [MODEL FOLDER]

Without a model it takes the one that ships for an H200. One thread is used. The reference in the
same run is torch, which evaluates one 256-256-128 network on feature rows that are computed before;
a ratio below 1 is faster. Targets: a problem in 1 ms, a load in 50 ms.
"""

from __future__ import annotations

import itertools
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

if __name__ == "__main__":
    for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        os.environ.setdefault(variable, "1")

import numpy as np

from diode_engine import features
from diode_engine.core.candidate import Candidate
from diode_engine.core.encoding import _encode
from diode_engine.core.hardware import H200
from diode_engine.core.problem import Problem
from diode_engine.models.library_algorithms import Offer, model_for
from diode_engine.models.predictor import Predictor
from diode_engine.registry import best_for

PROBLEMS = 200


def space() -> tuple[Candidate, ...]:
    """Inductor's exhaustive space, approximately."""
    return tuple(
        Candidate.make(
            "triton::mm", BLOCK_M=m, BLOCK_N=n, BLOCK_K=k, num_stages=s, num_warps=w, GROUP_M=8
        )
        for m, n, k in itertools.product((16, 32, 64, 128, 256), repeat=3)
        for s in range(1, 6)
        for w in (2, 4, 8)
        if 32 * w * 255 >= m * n >= 256 * w
    )


def new_problems(count: int, seed: int) -> list[Problem]:
    rng = np.random.default_rng(seed)
    types = ("float16", "bfloat16", "float32")
    return [
        Problem.make("mm", *(int(2**v) for v in rng.uniform(0, 14, 3)), types[i % 3])
        for i in range(count)
    ]


def rows(problem: Problem, candidates: tuple[Candidate, ...]) -> np.ndarray:
    n = len(candidates)
    return features.matrix((problem,), candidates, np.zeros(n, np.intp), np.arange(n), H200)


def median_ms(work: Callable[[Problem], object], problems: list[Problem]) -> float:
    for problem in problems[:10]:
        work(problem)
    took = []
    for problem in problems:
        start = time.perf_counter()
        work(problem)
        took.append(time.perf_counter() - start)
    return 1e3 * statistics.median(took)


LOAD = """
import json, sys, time
import numpy
started = time.perf_counter()
from pathlib import Path
from diode_engine.models.model_types import MODEL_TYPES
from diode_engine.models.predictor import Predictor
folder = Path(sys.argv[1])
for member in json.loads((folder / "manifest.json").read_text())["members"]:
    MODEL_TYPES[member["family"]].model_class()  # its module is imported when it is first needed
imported = time.perf_counter()
Predictor.load(folder)
print(1e3 * (imported - started), 1e3 * (time.perf_counter() - imported))
"""


def load_ms(folder: Path) -> tuple[float, float]:
    """(the time of the imports that loading and asking a model needs, without numpy's; the time of
    the load): the medians of seven new processes, in milliseconds."""
    took = [
        [float(v) for v in subprocess.check_output([sys.executable, "-c", LOAD, folder]).split()]
        for _ in range(7)
    ]
    imported, loaded = (statistics.median(part) for part in zip(*took, strict=True))
    return imported, loaded


def main() -> None:
    import torch

    torch.set_num_threads(1)
    candidates, problems = space(), new_problems(PROBLEMS, 0)
    modules: list[torch.nn.Module] = []
    for sizes in itertools.pairwise((len(features.NAMES), 256, 256, 128, 1)):
        modules += [torch.nn.Linear(*sizes), torch.nn.ReLU()]
    reference = torch.nn.Sequential(*modules[:-1])
    ready = {problem: torch.from_numpy(rows(problem, candidates)) for problem in problems}
    with torch.inference_mode():
        torch_ms = median_ms(lambda p: reference(ready[p]).argmin(), problems)

    def line(what: str, ms: float) -> None:
        print(f"{what:46s}{ms:8.3f} ms{ms / torch_ms:8.2f}")

    print(f"{len(candidates)} candidates, {PROBLEMS} new problems, median a problem")
    line("torch, one network alone (reference)", torch_ms)
    line("features", median_ms(lambda p: features.space(p, candidates, H200), problems))
    line("encoding a space not seen before", median_ms(lambda p: _encode(candidates), problems))
    match = best_for(H200)
    assert match is not None
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else match.model.folder
    predictor = Predictor.load(folder)
    line(
        "a problem ranked by the model",
        median_ms(lambda p: predictor.predict(p, candidates), problems),
    )
    h100 = replace(H200, name="NVIDIA H100 80GB HBM3")
    trees = model_for(h100)
    assert trees is not None
    offers = [Offer(config, 0, 1.0) for config in trees.configs]
    line(
        f"choosing among {len(offers)} algorithms of cuBLASLt",
        median_ms(lambda p: trees.choose(p, offers, h100), problems),
    )
    line("loading their trees", median_ms(lambda _: model_for(h100), problems[:20]))
    imported, loaded = load_ms(folder)
    print(f"{'loading the model':46s}{loaded:8.3f} ms, after imports of {imported:.0f} ms")


if __name__ == "__main__":
    main()
