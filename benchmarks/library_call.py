"""What the host pays to launch a product by a named algorithm of cuBLASLt, beside torch's own call
in the same run, on a GPU.

    python benchmarks/library_call.py

The product is so small that the device waits for the host. The limit is 2 us beyond torch's call.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import torch

from diode_engine.inductor.library.cublaslt import Product
from diode_engine.inductor.library.product import Plan, diode_library_product, library_of

CALLS, ROUNDS = 2000, 15


def host_us(call: Callable[[], object]) -> float:
    """Microseconds of the host for a call; the device is idle when it begins."""
    torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(CALLS):
        call()
    spent = time.perf_counter() - start
    torch.cuda.synchronize()
    return spent / CALLS * 1e6


def main() -> None:
    a, b, out, bias = (
        torch.zeros(size, dtype=torch.bfloat16, device="cuda")
        for size in ((16, 64), (64, 64), (16, 64), (64,))
    )
    torch.mm(a, b)
    for name, inputs, function in (("mm", [a, b], torch.mm), ("addmm", [bias, a, b], torch.addmm)):
        library = library_of(0)
        given = bias if len(inputs) > 2 else None
        found = Product(library, a, b, out, bias=given).list_algorithms(1)[0]
        plan = str(Plan(name, False, library.config(found.algorithm)))
        rounds = [
            (
                host_us(lambda inputs=inputs, f=function: f(*inputs, out=out)),  # type: ignore[misc]
                host_us(
                    lambda inputs=inputs, p=plan: diode_library_product(*inputs, out=out, plan=p)
                ),
            )
            for _ in range(ROUNDS)
        ]
        torchs, ours = (statistics.median(column) for column in zip(*rounds, strict=True))
        print(f"{name:6s} torch {torchs:6.2f} us  by algorithm {ours:6.2f} us  {ours / torchs:.3f}")


if __name__ == "__main__":
    main()
