"""What `import diode_engine` costs, beside `import torch` in the same run.

    python benchmarks/import_cost.py [repeats]

Every import is timed in a Python of its own; medians are printed. The limit is 50 ms beyond
`import torch`.
"""

from __future__ import annotations

import statistics
import subprocess
import sys

PROGRAM = """
import time
{before}
start = time.perf_counter()
import {module}
print(time.perf_counter() - start)
"""


def cost_ms(module: str, before: str = "") -> float:
    """Milliseconds that importing the module takes in a fresh process."""
    program = PROGRAM.format(module=module, before=before)
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    return float(done.stdout) * 1e3


def main() -> None:
    repeats = int(sys.argv[1]) if len(sys.argv) > 1 else 9
    rounds = [
        (
            cost_ms("torch"),
            cost_ms("diode_engine", before="import torch"),
            cost_ms("diode_engine"),
        )
        for _ in range(repeats)
    ]
    torch, beyond, alone = (statistics.median(column) for column in zip(*rounds, strict=True))
    print(f"import torch                     {torch:8.1f} ms")
    print(f"import diode_engine after torch  {beyond:8.1f} ms   {beyond / torch:.4f} of torch")
    print(f"import diode_engine alone        {alone:8.1f} ms   {alone / torch:.4f} of torch")


if __name__ == "__main__":
    main()
