"""How long it takes to load a model, and to rank the whole candidate space of a problem that was
never asked about.

    python benchmarks/predict.py [MODEL FOLDER]

Without a model it takes an ensemble (three networks and 400 trees) and a distilled network of the
usual sizes, with made-up weights. One thread is used. The reference in the same run is torch, which
evaluates one 256-256-128 network on feature rows that are computed before; a ratio below 1 is
faster. Then it checks whether the predictions of 20 new processes, with 1 to 4 threads, are equal
bit for bit. Targets: a problem in 1 ms, a load in 50 ms.
"""

from __future__ import annotations

import hashlib
import itertools
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
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
from diode_engine.models.artifact import save_artifact
from diode_engine.models.coverage import Coverage
from diode_engine.models.distilled import quantized
from diode_engine.models.fit_trees import TreesSettings, fit_trees
from diode_engine.models.fitting import Examples
from diode_engine.models.manifest import Data, Manifest
from diode_engine.models.network import Network
from diode_engine.models.predictor import Predictor
from diode_engine.models.protocol import TimingModel

PROBLEMS = 200
PROCESSES = 20
COVERAGE = Coverage(("mm triton::mm",), ("float16", "bfloat16", "float32"))


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


def made_up_network(hidden: tuple[int, ...], outputs: int = 1) -> Network:
    rng = np.random.default_rng(0)
    sizes = (len(features.NAMES), *hidden, outputs)
    layers = tuple(
        (
            rng.standard_normal(pair).astype(np.float32) / np.float32(pair[0] ** 0.5),
            np.zeros(pair[1], np.float32),
        )
        for pair in itertools.pairwise(sizes)
    )
    edge = np.full(sizes[0], 100, np.float32)
    zero, one = np.zeros(sizes[0], np.float32), np.ones(sizes[0], np.float32)
    return Network(-edge, edge, zero, one, layers, True)


def made_up_models(folder: Path, candidates: tuple[Candidate, ...]) -> dict[str, Path]:
    rng = np.random.default_rng(1)
    x = np.concatenate([rows(problem, candidates[::14]) for problem in new_problems(200, 1)])
    noise = rng.normal(0, 1, len(x)).astype(np.float32)
    examples = Examples(x, x[:, features.BASE] + noise, np.repeat(np.arange(200), len(x) // 200))
    trees = fit_trees(examples, examples, TreesSettings(rounds=400, patience=400))
    network = made_up_network((256, 256, 128))
    members: dict[str, tuple[TimingModel, ...]] = {
        "an ensemble": (trees, network, network, network),
        "a distilled network": (quantized(made_up_network((256, 128), 4), x),),
    }
    for name, of_one in members.items():
        manifest = Manifest("made-up", "", H200, COVERAGE, Data())
        save_artifact(folder / name, manifest, of_one)
    return {name: folder / name for name in members}


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
from diode_engine.models.families import FAMILIES
from diode_engine.models.predictor import Predictor
folder = Path(sys.argv[1])
for member in json.loads((folder / "manifest.json").read_text())["members"]:
    FAMILIES[member["family"]].model_class()  # its module is imported when it is first needed
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


def answers(folder: Path) -> str:
    """A digest of the model's predictions for ten problems, bit for bit."""
    predictor, candidates = Predictor.load(folder), space()
    digest = hashlib.sha256()
    for problem in new_problems(10, 2):
        digest.update(predictor.predict_us(problem, candidates).tobytes())
        digest.update(predictor.predict(problem, candidates).order.tobytes())
    return digest.hexdigest()


def different_answers(folder: Path) -> int:
    """How many different digests fresh processes with 1, 2 and 4 threads give."""
    found = set()
    for place in range(PROCESSES):
        threads = str((1, 2, 4)[place % 3])
        environment = {**os.environ, "OMP_NUM_THREADS": threads, "OPENBLAS_NUM_THREADS": threads}
        command = [sys.executable, __file__, "--answers", str(folder)]
        found.add(subprocess.check_output(command, env=environment))
    return len(found)


def main() -> None:
    import torch

    torch.set_num_threads(1)
    candidates, problems = space(), new_problems(PROBLEMS, 0)
    network = made_up_network((256, 256, 128))
    modules: list[torch.nn.Module] = []
    for weight, bias in network.layers:
        linear = torch.nn.Linear(*weight.shape)
        linear.weight.data, linear.bias.data = torch.from_numpy(weight.T), torch.from_numpy(bias)
        modules += [linear, torch.nn.ReLU()]
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
    with tempfile.TemporaryDirectory() as made:
        if len(sys.argv) > 1:
            folders = {"the model": Path(sys.argv[1])}
        else:
            folders = made_up_models(Path(made), candidates)
        for name, folder in folders.items():
            predictor = Predictor.load(folder)
            asked = median_ms(lambda p, it=predictor: it.predict(p, candidates), problems)
            line(f"a problem ranked by {name}", asked)
            imported, loaded = load_ms(folder)
            print(f"{f'loading {name}':46s}{loaded:8.3f} ms, after imports of {imported:.0f} ms")
            different = different_answers(folder)
            print(f"  {different} different answers of {PROCESSES} processes, 1 to 4 threads")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--answers"]:
        print(answers(Path(sys.argv[2])))
    else:
        main()
