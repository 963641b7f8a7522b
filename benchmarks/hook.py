"""What Diode's hook costs a GEMM, in the real lowering for a pretended H200 (no GPU is needed).

    python benchmarks/hook.py [MODEL]

Milliseconds in the hook by the model that is taken for an H200, or the one named: of the first
problem of the process, the first of another op, element type or size class (whose space is made
then, see diode_engine/inductor/lowering/space.py), of another new problem, and of one that was met
before: in another graph, in the same one, and asked for again and again, when all it needs is in
the processor's caches. The reference in the same run is what stock max-autotune's DEFAULT space
costs to render, which Diode saves.
"""

from __future__ import annotations

import functools
import os
import statistics
import sys
import tempfile
import time
import timeit
from collections.abc import Iterable
from typing import Any

os.environ["TORCHINDUCTOR_CACHE_DIR"] = tempfile.mkdtemp(prefix="diode-benchmark-")

import torch
from torch._inductor import select_algorithm
from torch._inductor.choices import InductorChoices

import diode_engine
from diode_engine.collect.workers.inputs import empty
from diode_engine.core.hardware import H200
from diode_engine.core.operators import find_operator
from diode_engine.core.problem import Problem
from diode_engine.inductor import without_gpu
from diode_engine.inductor.hook.choices import DiodeInductorChoices
from diode_engine.inductor.patches import patch_attribute

SIZES = [(128 * m, 128 * n, 256 * k) for m in (3, 5, 9) for n in (3, 7, 11) for k in (1, 3, 5)]


def gemm(m: int, n: int, k: int, op: str = "mm", dtype: str = "bfloat16") -> Any:
    problem = Problem.make(op, m, n, k, dtype, B=4 if find_operator(op).batched else 1)

    def build() -> Any:
        inputs = tuple(empty(shape, "cuda") for shape in problem.input_shapes().values())
        return problem.op.function(torch, problem), inputs

    return build


# Each the first of its kind: in this order none has a space or a decision of those before.
FIRSTS = {
    "the first problem of the process": gemm(640, 640, 512),
    "the first of another op (addmm)": gemm(640, 640, 512, "addmm"),
    "the first of another op (bmm)": gemm(640, 640, 512, "bmm"),
    "the first of another type (float16)": gemm(768, 640, 512, dtype="float16"),
    "the first of another size class (M=64)": gemm(64, 640, 512),
}


def hook_ms(builds: Iterable[Any]) -> list[float]:
    out = []
    for build in builds:
        with diode_engine.profile_predictions() as profile:
            without_gpu.lower(build)
        out.append(1e3 * profile.seconds)
    return out


def once_more_ms() -> float:
    """The hook called again and again on one product."""
    hook = DiodeInductorChoices._finalize_template_configs
    took: list[float] = []

    def timed(self: Any, *args: Any, **kwargs: Any) -> Any:
        if not took:
            ask = functools.partial(hook, self, *args, **kwargs)
            ask()
            took.extend(timeit.repeat(ask, number=1000, repeat=5))
        return hook(self, *args, **kwargs)

    with patch_attribute(DiodeInductorChoices, "_finalize_template_configs", timed):
        without_gpu.lower(gemm(*SIZES[0]))
    return statistics.median(took)  # seconds of a thousand


def repeated_ms() -> float:
    """A product that is there many times in one graph."""
    times = 40

    def chain(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        for _ in range(times):
            x = x @ w
        return x

    def build() -> Any:
        return chain, tuple(
            torch.empty(512, 512, dtype=torch.bfloat16, device="cuda") for _ in "xw"
        )

    seconds = []
    for _ in range(5):
        with diode_engine.profile_predictions() as profile:
            without_gpu.lower(build)
        seconds.append(profile.seconds)
    return 1e3 * statistics.median(seconds[1:]) / times


def stock_ms() -> float:
    took: list[float] = []
    original = InductorChoices.get_template_configs

    def timed(self: Any, *args: Any, **kwargs: Any) -> Any:
        start = time.perf_counter()
        try:
            return original(self, *args, **kwargs)
        finally:
            took.append(1e3 * (time.perf_counter() - start))

    diode_engine.uninstall_diode_choices()
    with patch_attribute(InductorChoices, "get_template_configs", timed):
        for size in SIZES[:9]:
            without_gpu.lower(gemm(*size), benchmark=lambda _: 1.0)
    return statistics.median(took)


def main() -> None:
    select_algorithm.PRINT_AUTOTUNE = False
    without_gpu.pretend(H200)
    reference = stock_ms()
    model = sys.argv[1] if len(sys.argv) > 1 else None
    if not diode_engine.install_diode_choices(model, top_k_configs=1):
        sys.exit(1)
    firsts = dict(zip(FIRSTS, hook_ms(FIRSTS.values()), strict=True))
    new = hook_ms(gemm(*size) for size in SIZES)
    again = hook_ms(gemm(*size) for size in SIZES)
    print(f"{'stock, rendering DEFAULT (reference)':40s}{reference:10.3f} ms{1:10.4f}")
    for what, ms in (
        *firsts.items(),
        ("a new problem, median", statistics.median(new)),
        ("one of an earlier graph, median", statistics.median(again)),
        ("one of the same graph", repeated_ms()),
        ("the same one, again and again", once_more_ms()),
    ):
        print(f"{what:40s}{ms:10.3f} ms{ms / reference:10.4f}")


if __name__ == "__main__":
    main()
