"""What Diode's hook costs a GEMM, in the real lowering for a pretended H200 (no GPU is needed).

    python benchmarks/hook.py [MODEL]

Milliseconds in the hook by the model that is taken for an H200, or the one named: of the first
problem of a kind of space (see diode_engine/inductor/space.py), of another new problem, and of
one that was met before, in another graph or in the same one. The reference in the same run is what
stock max-autotune's DEFAULT space costs to render, which Diode saves.
"""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
import time
from typing import Any

os.environ["TORCHINDUCTOR_CACHE_DIR"] = tempfile.mkdtemp(prefix="diode-benchmark-")

import torch
from torch._inductor import select_algorithm
from torch._inductor.choices import InductorChoices

import diode_engine
from diode_engine.hardware import H200
from diode_engine.inductor import without_gpu

SIZES = [(128 * m, 128 * n, 256 * k) for m in (3, 5, 9) for n in (3, 7, 11) for k in (1, 3, 5)]


def gemm(m: int, n: int, k: int) -> Any:
    def empty(*shape: int) -> torch.Tensor:
        return torch.empty(shape, dtype=torch.bfloat16, device="cuda")

    return lambda: (torch.mm, (empty(m, k), empty(k, n)))


def hook_ms(sizes: list[tuple[int, int, int]]) -> list[float]:
    out = []
    for size in sizes:
        with diode_engine.profile_predictions() as profile:
            without_gpu.lower(gemm(*size))
        out.append(1e3 * profile.seconds)
    return out


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

    InductorChoices.get_template_configs = timed  # type: ignore[method-assign]
    diode_engine.uninstall_diode_choices()
    for size in SIZES[:9]:
        without_gpu.lower(gemm(*size), benchmark=lambda _: 1.0)
    InductorChoices.get_template_configs = original  # type: ignore[method-assign]
    return statistics.median(took)


def main() -> None:
    select_algorithm.PRINT_AUTOTUNE = False
    without_gpu.pretend(H200)
    reference = stock_ms()
    model = sys.argv[1] if len(sys.argv) > 1 else None
    if not diode_engine.install_diode_choices(model, top_k_configs=1):
        sys.exit(1)
    first, *new = hook_ms(SIZES)
    again = hook_ms(SIZES)
    print(f"{'stock, rendering DEFAULT (reference)':40s}{reference:10.3f} ms{1:10.4f}")
    for what, ms in (
        ("the first problem of a space", first),
        ("a new problem, median", statistics.median(new)),
        ("one of an earlier graph, median", statistics.median(again)),
        ("one of the same graph", repeated_ms()),
    ):
        print(f"{what:40s}{ms:10.3f} ms{ms / reference:10.4f}")


if __name__ == "__main__":
    main()
