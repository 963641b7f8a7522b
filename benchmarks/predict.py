"""How long it takes to rank the whole candidate space of a problem that was never asked about.

    python benchmarks/predict.py [MODEL FOLDER]

Without a model: a network (256, 256, 128) and 400 trees of depth 9 with made-up weights of the
usual size. The reference in the same run is torch evaluating the same network on feature rows
that are there already; a ratio below 1 is faster. Threads are as the environment sets them.
"""

from __future__ import annotations

import itertools
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from diode_engine import features
from diode_engine.encoding import _encode
from diode_engine.hardware import H200
from diode_engine.models.artifact import load_artifact
from diode_engine.models.fit_trees import TreesSettings, fit_trees
from diode_engine.models.fitting import Examples
from diode_engine.models.members import Ensemble
from diode_engine.models.network import Network
from diode_engine.models.protocol import TimingModel
from diode_engine.problem import Candidate, Problem

PROBLEMS = 200


def space() -> tuple[Candidate, ...]:
    """Inductor's exhaustive space, about."""
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


def made_up_network() -> Network:
    rng = np.random.default_rng(0)
    sizes = (len(features.NAMES), 256, 256, 128, 1)
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


def made_up_trees(candidates: tuple[Candidate, ...]) -> TimingModel:
    rng = np.random.default_rng(1)
    x = np.concatenate([rows(problem, candidates[::14]) for problem in new_problems(200, 1)])
    noise = rng.normal(0, 1, len(x)).astype(np.float32)
    examples = Examples(x, x[:, features.BASE] + noise, np.repeat(np.arange(200), len(x) // 200))
    return fit_trees(examples, examples, TreesSettings(rounds=400, patience=400))


def median_ms(work: Callable[[Problem], object], problems: list[Problem]) -> float:
    for problem in problems[:10]:
        work(problem)
    took = []
    for problem in problems:
        start = time.perf_counter()
        work(problem)
        took.append(time.perf_counter() - start)
    return 1e3 * statistics.median(took)


def main() -> None:
    import torch

    candidates = space()
    problems = new_problems(PROBLEMS, 0)
    network = made_up_network()
    if len(sys.argv) > 1:
        models = {"the model": Ensemble(load_artifact(Path(sys.argv[1])).members)}
    else:
        models = {"network": network, "trees": made_up_trees(candidates)}

    modules: list[torch.nn.Module] = []
    for weight, bias in network.layers:
        linear = torch.nn.Linear(*weight.shape)
        linear.weight.data, linear.bias.data = torch.from_numpy(weight.T), torch.from_numpy(bias)
        modules += [linear, torch.nn.ReLU()]
    reference = torch.nn.Sequential(*modules[:-1])
    ready = {problem: torch.from_numpy(rows(problem, candidates)) for problem in problems}
    with torch.inference_mode():
        torch_ms = median_ms(lambda p: reference(ready[p]).argmin(), problems)

    print(f"{len(candidates)} candidates, {PROBLEMS} new problems, median a problem")
    print(f"{'torch, the network alone (reference)':44s}{torch_ms:8.3f} ms{1:8.2f}")

    def line(what: str, ms: float) -> None:
        print(f"{what:44s}{ms:8.3f} ms{ms / torch_ms:8.2f}")

    line("features", median_ms(lambda p: rows(p, candidates), problems))
    line("encoding a space not seen before", median_ms(lambda p: _encode(candidates), problems))
    for name, model in models.items():
        line(
            f"features and {name}",
            median_ms(lambda p, m=model: m.predict(rows(p, candidates)).argmin(), problems),
        )


if __name__ == "__main__":
    main()
