"""What fused epilogues cost in registers, beside the estimate by which Diode keeps some from being
fused.

    python benchmarks/epilogue_registers.py

For products of 2048×4096×4096 in bfloat16, TF32 and 8-bit integers it has Inductor fuse up to four
operands of the output's size into several tiles, compiles the kernels for the H200 (which need not
be here; some minutes), and compares the bytes that ptxas spills for each element of the output with
the registers beyond 255 by the estimate of `inductor/fusion/registers.py`. The reference, in the
same run, is what fusing saves: to write and read the output.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch._inductor.codecache import PyCodeCache

import diode_engine
from diode_engine.core.candidate import Candidate
from diode_engine.core.hardware import H200
from diode_engine.core.problem import Problem
from diode_engine.inductor import without_gpu
from diode_engine.inductor.fusion import registers
from diode_engine.inductor.lowering.binary import kernel_facts, resource_usage
from diode_engine.inductor.replaced import replaced

M, N, K = 2048, 4096, 4096
TILES = (  # BLOCK_M, BLOCK_N, warps
    (128, 256, 8), (256, 128, 8), (64, 256, 4), (128, 128, 4), (128, 128, 8), (64, 128, 4),
    (128, 64, 4), (64, 64, 4),
)  # fmt: skip
OPERANDS = range(5)
KINDS = {
    "bfloat16": (torch.bfloat16, (torch.bfloat16, torch.float32)),
    "tf32": (torch.float32, (torch.float32,)),
    "int8": (torch.int8, (torch.bfloat16, torch.int32)),
}


class Kernel(NamedTuple):
    """A compiled kernel. `beyond` is the number of registers of a thread beyond 255 by the
    estimate, `spilled` the bytes that ptxas spills for each element of the output."""

    kind: str
    tile: tuple[int, int, int]
    operand: torch.dtype
    operands: int
    beyond: float
    spilled: float


class Tile:
    """Predicts that kernels with this tile are the fastest."""

    def __init__(self, block_m: int, block_n: int, warps: int) -> None:
        self.tile = {"BLOCK_M": block_m, "BLOCK_N": block_n, "num_warps": warps}
        self.identity = str(self.tile)

    def predict_us(self, problem: Problem, candidates: Sequence[Candidate]) -> np.ndarray:
        asked = [c.template == "triton::mm" and self.tile.items() <= c.config.items()
                 for c in candidates]  # fmt: skip
        return np.where(asked, 1.0, np.nan)


def net(kind: str) -> Callable[..., torch.Tensor]:
    def step(
        a: torch.Tensor, b: torch.Tensor, rows: torch.Tensor, columns: torch.Tensor,
        *more: torch.Tensor,
    ) -> torch.Tensor:  # fmt: skip
        out = a @ b if kind != "int8" else (torch._int_mm(a, b) * rows * columns).bfloat16()
        for place, each in enumerate(more):
            out = out + each if place % 2 else out * torch.sigmoid(each)
        return out

    return step


def compiled(kind: str, tile: tuple[int, int, int], operand: torch.dtype, count: int) -> Kernel:
    """Raises StopIteration where Inductor does not take the tile for this product."""
    seen: list[float] = []

    def may_fuse(first: Any, second: Any) -> bool:
        if (needed := registers.needed(first, second)) is not None:
            seen.append(needed)
        return True

    def build() -> tuple[Callable[..., torch.Tensor], Sequence[torch.Tensor]]:
        def empty(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
            return torch.empty(shape, dtype=dtype, device="cuda")

        dtype, _ = KINDS[kind]
        more = [empty(M, N, dtype=operand) for _ in range(count)]
        a, b = empty(M, K, dtype=dtype), empty(N, K, dtype=dtype).t()
        return net(kind), (a, b, empty(M, 1), empty(N), *more)

    diode_engine.install_diode_choices(
        predictor=Tile(*tile), top_k_configs=1, performance_threshold=1e9
    )
    with replaced(registers, "may_fuse", may_fuse):
        source = without_gpu.lower(build).sources[0]
    written = re.findall(r"^(triton_tem_\w+) = async_compile\.triton\('\w+', '''(.*?)'''", source,
                         re.MULTILINE | re.DOTALL)  # fmt: skip
    name, code = next(iter(written))
    kernel = getattr(PyCodeCache.load(code), name)
    kernel.precompile(warm_cache_only=True)
    binary = kernel.compile_results[0].kernel
    cubin = binary.asm["cubin"]
    facts = kernel_facts(cubin, resource_usage(cubin)[0], binary.metadata.shared)
    accumulators = tile[0] * tile[1] / (32 * tile[2])
    beyond = max(seen, default=0.0) - registers.MAX_REGISTERS
    return Kernel(kind, tile, operand, count, beyond, facts.spill_stores / accumulators)


def main() -> None:
    without_gpu.pretend(H200)
    torch.backends.cuda.matmul.fp32_precision = "tf32"
    found = []
    print("type      operands     tile         beyond 255  spilled, bytes an element")
    for kind, (_, types) in KINDS.items():
        for tile, operand, count in itertools.product(TILES, types, OPERANDS):
            if count == 0 and operand is not types[0]:
                continue
            try:
                one = compiled(kind, tile, operand, count)
            except Exception as error:  # noqa: BLE001  # a tile that is not offered for the type
                print(f"{kind} {tile}: {str(error).splitlines()[0][:80]}")
                continue
            found.append(one)
            print(f"{kind:9s} {count}×{str(operand)[6:]:9s} {tile!s:14s} {one.beyond:9.0f} "
                  f"{one.spilled:9.1f}", flush=True)  # fmt: skip
    beyond = np.array([one.beyond for one in found])
    spilled = np.array([one.spilled for one in found])
    print(f"{len(found)} kernels; what fusing saves is 4 bytes an element, of integers 8")
    for name, some in (
        ("not beyond 255 registers", beyond <= 0),
        ("beyond, and fused", (beyond > 0) & (beyond <= registers.MAX_SPILLED)),
        ("beyond, and kept apart", beyond > registers.MAX_SPILLED),
    ):
        print(f"{name}: {some.sum()} kernels, spilled bytes an element: median "
              f"{np.median(spilled[some]):.1f}, at most {spilled[some].max():.1f}")  # fmt: skip


if __name__ == "__main__":
    main()
